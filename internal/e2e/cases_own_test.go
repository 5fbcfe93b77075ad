package e2e

import (
	"fmt"
	"slices"
	"strings"

	client "github.com/annals-project/annals/client"
)

// ownCases are cases of the kinds of the open ones, with texts, languages and words of their own. They need no model.
func ownCases() []recallCase {
	return slices.Concat(timeCases(), letterCases(), statementCases())
}

// mioSaid is a data point by the one who asks.
func mioSaid(id, at, content string) client.DataPoint {
	return client.DataPoint{ID: id, Timestamp: at, Identity: "mio", Content: content}
}

// onDays dates texts a day apart from 1 February 2025 on. Their ids are a1, a2, ….
func onDays(texts ...string) (points []client.DataPoint) {
	for i, text := range texts {
		points = append(points, mioSaid(fmt.Sprintf("a%d", i+1), fmt.Sprintf("2025-02-%02dT09:30:00Z", i+1), text))
	}
	return points
}

// others are texts about other matters.
func others() (points []client.DataPoint) {
	for i, text := range []string{
		"The violin teacher moved to a bigger flat.", "Someone left a red scarf in the lecture hall.",
		"The museum opens an hour later in winter.", "Our hens lay fewer eggs since the storm.",
		"The choir sings in the old chapel.", "Nine pupils took part in the spelling contest.",
		"The beekeeper sold all his honey.", "A fox crossed the playground at noon.", "The bus driver whistled all the way.",
		"Soup and bread were served in the yard.",
	} {
		points = append(points, mioSaid(fmt.Sprintf("o%d", i+1), fmt.Sprintf("2025-01-%02dT07:00:00Z", i+1), text))
	}
	return points
}

// first asks for one source as the first result.
func first(query, id string) caseQuery { return wanting(query, wanted{First: id}) }

func wanting(query string, w wanted) caseQuery {
	return caseQuery{Request: client.RecallRequest{Query: query, Identity: "mio"}, Want: w}
}

// askedAt sets the time of a question.
func askedAt(at string, q caseQuery) caseQuery {
	q.Request.QueryTimestamp = at
	return q
}

// within sets the range of a question.
func within(from, to string, q caseQuery) caseQuery {
	q.Request.OccurredFrom, q.Request.OccurredTo = from, to
	return q
}

// timeCases ask for days.
func timeCases() []recallCase {
	var rehearsals []client.DataPoint
	for day := 3; day <= 28; day++ {
		rehearsals = append(rehearsals, mioSaid(fmt.Sprintf("day%d", day), fmt.Sprintf("2025-03-%02dT17:00:00Z", day),
			fmt.Sprintf("Rehearsal of the string quartet: we played piece %s.", string(rune('A'+day-3)))))
	}
	return []recallCase{
		{
			Case: "days by name", Points: append(others(), rehearsals...),
			Queries: []caseQuery{ // 28 March 2025 is a Friday
				askedAt("2025-03-28T20:00:00Z", first("what did the quartet play last monday?", "day24")),
				askedAt("2025-03-28T20:00:00Z", first("What did the quartet play on Wednesday?", "day26")),
				askedAt("2025-03-28T20:00:00Z", first("rehearsal yesterday", "day27")),
				askedAt("2025-03-28T20:00:00Z", first("rehearsal of the quartet on 12 march", "day12")),
				askedAt("2025-03-28T20:00:00Z", first("What did the quartet rehearse on March 5?", "day5")),
				askedAt("2025-03-28T20:00:00Z", first("what did we rehearse on 2025-03-19?", "day19")),
				askedAt("2025-03-28T20:00:00Z", first("what did we play today at the rehearsal?", "day28")),
				askedAt("2025-03-28T20:00:00Z", first("which piece did we play three days ago?", "day25")),
			},
		},
		{
			Case: "day of the caller", Points: append(others(),
				mioSaid("early", "2025-03-09T23:30:00+09:00", "Breakfast talk: the roof is leaking."),
				mioSaid("late", "2025-03-10T08:00:00+09:00", "Breakfast talk: the roof is mended.")),
			Queries: []caseQuery{
				askedAt("2025-03-10T08:30:00+09:00", first("What was the breakfast talk yesterday?", "early")),
				askedAt("2025-03-10T08:30:00+09:00", first("What was the breakfast talk today?", "late")),
			},
		},
		{
			Case: "last day of a range", Points: []client.DataPoint{
				mioSaid("noon", "2024-11-30T12:00:00Z", "Stocktaking: 17 crates."),
				mioSaid("night", "2024-11-30T23:59:59.5Z", "Stocktaking again: 18 crates."),
				mioSaid("next", "2024-12-01T00:00:00Z", "December stocktaking: 19 crates."),
			},
			Queries: []caseQuery{
				within("2024-11-01", "2024-11-30", wanting("crates stocktaking",
					wanted{Has: []string{"noon", "night"}, Absent: []string{"next"}})),
				within("2024-11-30", "2024-11-30", wanting("stocktaking crates",
					wanted{Has: []string{"noon", "night"}, Absent: []string{"next"}})),
			},
		},
		{
			Case: "newest of equal ones", Points: append(others(), onDays("The price of a crate is 14 crowns.",
				"The price of a crate is 15 crowns.", "The price of a crate is 16 crowns.")...),
			Queries: []caseQuery{
				first("What is the current price of a crate?", "a3"), first("What does a crate cost now, the price?", "a3"),
				first("latest price of a crate", "a3"), first("Was the price of a crate ever 14 crowns?", "a1"),
			},
		},
		longCase(),
	}
}

// longCase has a line in a text that exceeds every budget, and another text of many lines.
func longCase() recallCase {
	var diary strings.Builder
	for n := range 700 {
		if n == 610 {
			diary.WriteString("Kirsten hid the cellar torch behind the flour bin.\n")
			continue
		}
		fmt.Fprintf(&diary, "%02d:%02d Quiet hour, all ovens at 220 degrees, tray %d of rolls baked.\n", n/60%24, n%60, n)
	}
	return recallCase{
		Case: "long text", Points: append(others(), mioSaid("diary", "2025-02-20T18:00:00Z", diary.String())),
		Generate: &generated{
			ID: "log", Timestamp: "2025-02-21T18:00:00Z", Lines: 1200, Line: "{n} Boiler normal, valve shut, nothing to report.",
			At: 1010, Text: "Reminder: the fuse box is labelled in Portuguese.",
		},
		Queries: []caseQuery{
			wanting("Where is the cellar torch?", wanted{Excerpt: "hid the cellar torch behind the flour bin"}),
			wanting("fuse box language", wanted{Excerpt: "fuse box is labelled in Portuguese"}),
		},
	}
}

// letterCases ask for words of many scripts, identifiers and numbers, and for what is not there.
func letterCases() []recallCase {
	return []recallCase{
		{
			Case: "forms of letters", Points: append(others(), onDays(
				"Sia\u0302n and Lowri parked the carava\u0301n.", "Έλενα κρατά το κλειδί της αποθήκης.",
				"Фёдор чинит насос на складе.", "ﾊﾟｽﾎﾟｰﾄは金庫にあります。", "Gökçe sulama borusunu onardı.",
				"부산 공장은 다음 달에 문을 엽니다.", "مَكْتَبُ عَلِيٍّ في الطابق الثاني", "Đặng Thị Ngọc trông coi vườn ươm.",
				"The ﬁrst oﬃce is Łukasz's.")...),
			Queries: []caseQuery{
				first("Si\u00e2n", "a1"), first("carav\u00e1n", "a1"), first("ελενα κλειδι", "a2"),
				first("Фе\u0308дор", "a3"), first("федор насос", "a3"), first("パスポート", "a4"), first("gokce", "a5"),
				first("\u1107\u116e\u1109\u1161\u11ab 공장", "a6"), first("مكتب علي", "a7"), first("dang thi ngoc", "a8"),
				first("first office", "a9"),
			},
		},
		{
			Case: "scripts without spaces", Points: append(others(), onDays(
				"京都工場の古い倉庫は四月に閉まります。", "犬の散歩は毎朝六時です。", "我们把客户合同放在三楼的柜子里。", "ร้านกาแฟเปิดตอนเจ็ดโมงเช้า",
				"バスのカードを拾いました。", "新しいガードは月曜日に来ます。")...),
			Queries: []caseQuery{
				first("京都の倉庫", "a1"), first("犬", "a2"), first("犬はいつ散歩しますか", "a2"), first("合同在哪里", "a3"),
				first("客户合同", "a3"), first("กาแฟ", "a4"), first("カード", "a5"), first("ガード", "a6"),
			},
		},
		{
			Case: "languages", Points: append(others(), onDays(
				"Die Nachbarinnen haben gestern die Bäume geschnitten.", "Les voisines ont vendu leurs chevaux.",
				"Las niñas perdieron sus mochilas.", "De buurman verkocht zijn fietsen.", "Соседи купили новые лодки.",
				"서울에서 민수가 회의를 열었습니다.")...),
			Queries: []caseQuery{
				first("Nachbarin Baum", "a1"), first("voisine cheval", "a2"), first("niña mochila", "a3"),
				first("buurman fiets", "a4"), first("лодка сосед", "a5"), first("서울 회의", "a6"),
			},
		},
		{
			Case: "identifiers", Points: append(others(), onDays(
				"TimeoutException in OrderMailer.sendDigest after build 92.", "The C compiler warns about padding.",
				"The F# port needs .NET 9.", "PIER_QUEUE_DEPTH is 64 on staging.", "Pump KX-31 drives the north well.",
				"Pump KX-13 drives the south well.", "Our vessel is registered as DE 4471 QP.", "parseHTTPHeader2 drops empty lines.",
				"Call the vet at +31 20 555 0188.", "Version 3.14.1 crashed; 3.1.14 did not.", "The C++ compiler is too old.")...),
			Queries: []caseQuery{
				first("order mailer send digest", "a1"), first("timeout exception", "a1"), first("F#", "a3"),
				first("queue depth", "a4"), first("KX31", "a5"), first("KX-13", "a6"), first("kx 31", "a5"),
				first("parse http header", "a8"), first("+31205550188", "a9"), first("3.1.14", "a10"),
				first("Which C++ compiler do we have?", "a11"), wanting(".NET", wanted{First: "a3"}),
			},
		},
		{
			Case: "numbers", Points: append(others(), onDays("The barn cost 125,000 crowns.", "Die Scheune kostete 98.500 Euro.",
				"La grange a coûté 77 250 euros.", "The roof weighs 12500 kilos.")...),
			Queries: []caseQuery{
				first("125000", "a1"), first("125 000 crowns", "a1"), first("98500", "a2"), first("77250", "a3"),
				first("12,500 kilos", "a4"),
			},
		},
		{
			Case: "negation", Points: append(others(), onDays("I never eat olives, but I adore pickled herring.",
				"Nobody except Runa knows the alarm code.", "The lift is not used at night.")...),
			Queries: []caseQuery{
				first("Does Mio adore pickled herring?", "a1"), first("Who knows the alarm code?", "a2"),
				first("Is the lift used at night?", "a3"),
			},
			DerivedLacks: []string{"not adore", "never adore"},
		},
		{
			Case: "nothing", Points: others(),
			Queries: []caseQuery{
				wanting("brimfax tolunder qwizzle", wanted{Empty: true}), wanting("asdf", wanted{Empty: true}),
				wanting("Which planet has the most moons?", wanted{Empty: true}), first("Who sold the honey?", "o7"),
			},
		},
		{
			Case: "titles", Points: append(others(), onDays("On my shelf: The Harvest. Author: Halloran.",
				"Harvest is late; the harvest needs hands; a good harvest pays.")...),
			Queries: []caseQuery{
				first("\"The Harvest\" by Halloran", "a1"), wanting("The Harvest", wanted{Has: []string{"a1", "a2"}}),
				wanting("what is it that they are", wanted{NoError: true}),
			},
		},
		{
			Case: "typing errors", Points: append(others(), onDays("We deployed the scheduler to Nomad.",
				"The guarantee of the oven is in the blue binder.", "Konstantina waters the plants.")...),
			Queries: []caseQuery{
				first("schedular", "a1"), first("gaurantee", "a2"), first("Constantinna", "a3"), first("bindr of the oven", "a2"),
			},
		},
	}
}
