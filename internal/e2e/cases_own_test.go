package e2e

import (
	"fmt"
	"slices"
	"strings"

	client "github.com/annals-project/annals/client"
)

// ownCases are cases of the kinds of the open ones, with texts, languages and words of their own. They need no model.
func ownCases() []recallCase {
	return slices.Concat(timeCases(), letterCases(), statementCases(), periodCases(), signCases())
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

// periodCases ask for days in many languages, with other words and without.
func periodCases() []recallCase {
	// 9 April 2025 is a Wednesday. A text of each day is about one rehearsal.
	var days []client.DataPoint
	for day := 1; day <= 9; day++ {
		days = append(days, mioSaid(fmt.Sprintf("day%d", day), fmt.Sprintf("2025-04-%02dT15:00:00Z", day),
			fmt.Sprintf("Choir rehearsal: song %s went well.", string(rune('P'+day-1)))))
	}
	asked := func(query, id string) caseQuery { return askedAt("2025-04-09T20:00:00Z", first(query, id)) }
	with := func(query string, w wanted) caseQuery { return askedAt("2025-04-09T20:00:00Z", wanting(query, w)) }
	return []recallCase{
		{
			Case: "days in languages", Points: append(others(), days...),
			Queries: []caseQuery{
				asked("Choir rehearsal gestern", "day8"), asked("vorgestern choir rehearsal", "day7"),
				asked("choir rehearsal am 3. April", "day3"), asked("choir rehearsal letzten Freitag", "day4"),
				asked("choir rehearsal avant-hier", "day7"), asked("choir rehearsal il y a trois jours", "day6"),
				asked("choir rehearsal anteayer", "day7"), asked("choir rehearsal el viernes pasado", "day4"),
				asked("choir rehearsal ieri", "day8"), asked("choir rehearsal due giorni fa", "day7"),
				asked("choir rehearsal ontem", "day8"), asked("choir rehearsal gisteren", "day8"),
				asked("choir rehearsal igår", "day8"), asked("choir rehearsal вчера", "day8"),
				asked("choir rehearsal 前天", "day7"), asked("choir rehearsal 昨天", "day8"),
				asked("choir rehearsal 一昨日", "day7"), asked("choir rehearsal 4月2日", "day2"),
				asked("그저께 choir rehearsal", "day7"), asked("choir rehearsal 4월 5일", "day5"),
			},
		},
		{
			Case: "what happened", Points: append(others(), days...),
			Queries: []caseQuery{
				asked("What happened yesterday?", "day8"), asked("yesterday", "day8"), asked("What did we do today?", "day9"),
				asked("Did anything happen on 3 April?", "day3"), asked("Was ist gestern passiert?", "day8"),
				asked("Que s'est-il passé hier ?", "day8"), asked("¿Qué pasó ayer?", "day8"),
				asked("Che cosa è successo ieri?", "day8"), asked("O que aconteceu ontem?", "day8"),
				asked("Wat is er gisteren gebeurd?", "day8"), asked("Vad hände igår?", "day8"), asked("Что случилось вчера?", "day8"),
				asked("昨日何があった?", "day8"), asked("昨天发生了什么？", "day8"), asked("어제 무슨 일이 있었어?", "day8"),
				with("What's new since Monday?", wanted{Top: []string{"day9", "day8", "day7"}, Absent: []string{"day6"}}),
				with("anything from last week?", wanted{Has: []string{"day1", "day6"}, Absent: []string{"day7"}}),
				with("What happened last year?", wanted{Empty: true}),
				within("2025-04-02", "2025-04-03", wanting("*", wanted{First: "day3", Top: []string{"day3", "day2"}})),
				within("2025-04-02", "2025-04-03", wanting("what happened", wanted{First: "day3"})),
			},
		},
		{
			Case: "no days", Points: append(others(), onDays("May sings in the choir.", "Frau März waters the roses.",
				"The second tenor is ill.", "Mars is a red planet.", "The badgers left the sett.", "Guten Morgen, Runa!")...),
			Queries: []caseQuery{
				askedAt("2025-02-20T09:00:00Z", first("Who is May?", "a1")), askedAt("2025-02-20T09:00:00Z", first("Frau März", "a2")),
				askedAt("2025-02-20T09:00:00Z", first("the second", "a3")), askedAt("2025-02-20T09:00:00Z", first("mars", "a4")),
				askedAt("2025-02-20T09:00:00Z", first("sett", "a5")), askedAt("2025-02-20T09:00:00Z", first("Morgen", "a6")),
				askedAt("2025-02-20T09:00:00Z", wanting("brimfax tolunder last week", wanted{Absent: []string{"a1", "a3"}})),
			},
		},
	}
}

// signCases ask for other forms of characters, symbols, abbreviations, and words that are joined or not.
func signCases() []recallCase {
	return []recallCase{
		{
			Case: "forms of characters", Points: append(others(), onDays(
				"請把發票放在櫃檯旁邊。", "会议室的钥匙在抽屉里。", "バナナを五本買いました。", "めがねは棚の上です。", "ㄅㄆㄇㄈ是注音符號。",
				"这个项目的预算已经批准。", "她的頭髮很長。", "后天出发去台湾。", "ソファを修理した。", "きのこのスープ")...),
			Queries: []caseQuery{
				first("发票", "a1"), first("柜台", "a1"), first("會議室", "a2"), first("鑰匙", "a2"), first("抽屜", "a2"),
				first("ばなな", "a3"), first("メガネ", "a4"), first("ㄅㄆ", "a5"), first("ㄆㄇㄈ", "a5"), first("注音符号", "a5"),
				first("專案 預算", "a6"), first("項目", "a6"), first("預算", "a6"), first("批準", "a6"), first("头发", "a7"),
				first("臺灣", "a8"), first("出發", "a8"), first("そふぁ", "a9"), first("ｿﾌｧ", "a9"), first("キノコ", "a10"),
				first("すーぷ", "a10"),
			},
		},
		{
			Case: "symbols", Points: append(others(), onDays("The 🛶 race is on Saturday.", "Release went out 🚀🚀", "🇸🇪 won the match",
				"✅ the cellar is dry", "Runa sent ☕ and ♥️", "Two 👩‍🌾 work in the orchard", "Status 🟢 for the north well",
				"The choir got 👏🏿 for it", "valve ⚠ leaks", "☎ is out of order", "Box ★ is the red one")...),
			Queries: []caseQuery{
				first("🛶", "a1"), first("🚀", "a2"), first("🇸🇪", "a3"), first("✅", "a4"), first("☕", "a5"), first("♥", "a5"),
				first("👩", "a6"), first("🟢", "a7"), first("👏", "a8"), first("👏🏻", "a8"), first("⚠️", "a9"), first("☎", "a10"),
				first("★", "a11"),
			},
		},
		{
			Case: "abbreviations", Points: append(others(), onDays("The B.B.C. filmed our hens.", "She moved to the USA in spring.",
				"The R.S.V.P. is due.")...),
			Queries: []caseQuery{
				first("BBC", "a1"), first("B.B.C.", "a1"), first("U.S.A.", "a2"), first("rsvp", "a3"),
			},
		},
	}
}

// statementCases are cases of what is current, of what is denied, and of conversations.
func statementCases() []recallCase {
	return []recallCase{updateCase(), correctionCase(), denialCase(), historyCase(), crowdCase(), twoAuthorsCase()}
}

// saidBy is a data point of an author.
func saidBy(id, at, author, content string) client.DataPoint {
	return client.DataPoint{ID: id, Timestamp: at, Identity: author, Content: content}
}

// pairs makes a case of texts "earlier | later | question": the later one must be first.
func pairs(name, list string) recallCase {
	c := recallCase{Case: name, Points: others()}
	for line := range strings.Lines(list) {
		fields := strings.Split(strings.TrimSpace(line), " | ")
		if len(fields) != 3 {
			continue
		}
		n := len(c.Queries)
		c.Points = append(c.Points, mioSaid(fmt.Sprint("old", n), fmt.Sprintf("2025-03-01T09:%02d:00Z", n), fields[0]),
			mioSaid(fmt.Sprint("new", n), fmt.Sprintf("2025-03-09T09:%02d:00Z", n), fields[1]))
		c.Queries = append(c.Queries, wanting(fields[2], wanted{First: fmt.Sprint("new", n), Has: []string{fmt.Sprint("old", n)}}))
	}
	return c
}

// Plain updates of one author: the new value is first, whatever the thing is.
func updateCase() recallCase {
	return pairs("update", `The alarm code is 7781. | The alarm code is 7718. | What is the alarm code?
		The locker number is 12. | The locker number is 47. | What is the locker number?
		Our printer is called Hippo. | Our printer is called Rhino. | What is our printer called?
		The rent is 840 euros. | The rent is 910 euros. | How much is the rent?
		The router sits in the attic. | The router sits in the cellar. | Where does the router sit?
		Nadia's title is analyst. | Nadia's title is director. | What is Nadia's title?
		The retro is at 14:00. | The retro is at 15:30. | When is the retro?
		The release branch is v4. | The release branch is v5. | Which release branch is it?
		My shoe size is 41. | My shoe size is 42. | What is my shoe size?
		I sleep in room 9. | I sleep in room 11. | Which room do I sleep in?
		Our lawyer is Mr Brandt. | Our lawyer is Ms Okafor. | Who is our lawyer?
		The van needs diesel. | The van needs petrol. | What does the van need?
		The wiki runs on Gollum. | The wiki runs on Outline. | What does the wiki run on?
		The deadline for the grant is 4 April. | The deadline for the grant is 18 April. | What is the deadline for the grant?
		The keypad combination is 55-20. | The keypad combination is 61-20. | keypad combination
		Tilda drives a Fiat. | Tilda drives a Skoda. | What does Tilda drive?
		The archive key hangs by the sink. | The archive key hangs by the stairs. | Where does the archive key hang?
		My insurance costs 31 euros. | My insurance costs 44 euros. | What does my insurance cost?
		The backup starts at midnight. | The backup starts at noon. | When does the backup start?
		Der Türcode lautet 3321. | Der Türcode lautet 3399. | Wie lautet der Türcode?
		Le mot de passe du coffre est hibou. | Le mot de passe du coffre est renard. | Quel est le mot de passe du coffre ?
		La clave del almacén es perro. | La clave del almacén es gato. | ¿Cuál es la clave del almacén?
		Il codice del garage è 119. | Il codice del garage è 911. | Qual è il codice del garage?
		A senha do cofre é lobo. | A senha do cofre é urso. | Qual é a senha do cofre?
		Het wachtwoord van de schuur is meeuw. | Het wachtwoord van de schuur is kraai. | Wat is het wachtwoord van de schuur?
		Lösenordet till boden är mås. | Lösenordet till boden är trana. | Vad är lösenordet till boden?
		Пароль от гаража сова. | Пароль от гаража филин. | Какой пароль от гаража?`)
}

// Corrections are worded in another way than what they correct.
func correctionCase() recallCase {
	return pairs("correction", `The concert starts at 7 pm. | Correction: the concert starts at 8 pm, not 7 pm. | When does the concert start?
		Olek eats gluten. | Olek no longer eats gluten, the doctor forbade it. | Does Olek eat gluten?
		The offsite is in Malaga. | By the way, the offsite has moved to Sintra because of the fair. | Where is the offsite?
		Vera chairs the board. | The board is chaired not by Vera any more but by Emil. | Who chairs the board?
		We deploy with Capistrano. | We use Kamal instead of Capistrano to deploy now. | What do we deploy with?
		Die Probe ist am Dienstag. | Die Probe ist nicht am Dienstag, sondern am Donnerstag. | Wann ist die Probe?
		Rosa travaille à Brest. | Rosa ne travaille plus à Brest depuis lundi. | Où travaille Rosa ?
		El taller abre a las nueve. | El taller ya no abre a las nueve. | ¿Cuándo abre el taller?
		La lezione è il lunedì. | La lezione non è il lunedì, bensì il giovedì. | Quando è la lezione?
		Het feest is in de kantine. | Het feest is verplaatst naar de tuin. | Waar is het feest?`)
}

// Questions that deny ask for those who are denied something; others find both.
func denialCase() recallCase {
	c := recallCase{Case: "denial", Points: others()}
	for n, line := range []string{
		"Uma is insured against theft. | Otto is not insured against theft. | Who is not insured against theft?",
		"Uma attended the fire drill. | Otto didn't attend the fire drill. | Who didn't attend the fire drill?",
		"The cabin has running water. | The shed has no running water. | What has no running water?",
		"Uma rides horses. | Otto never rides horses. | Who never rides horses?",
		"Uma likes olives. | Otto doesn’t like olives. | Who doesn't like olives?",
		"The red van can be locked. | The green van cannot be locked. | Which van cannot be locked?",
		"Uma trinkt Kaffee. | Otto trinkt keinen Kaffee. | Wer trinkt keinen Kaffee?",
		"Uma parle breton. | Otto ne parle pas breton. | Qui ne parle pas breton ?",
		"Uma come pescado. | Otto no come pescado. | ¿Quién no come pescado?",
		"Ума знает пароль. | Отто не знает пароль. | Кто не знает пароль?",
	} {
		fields := strings.Split(line, " | ")
		yes, no := fmt.Sprint("yes", n), fmt.Sprint("no", n)
		// The one who denies it wrote earlier, so that time alone would put it below.
		c.Points = append(c.Points, saidBy(no, fmt.Sprintf("2025-03-%02dT08:00:00Z", n+1), "pia", fields[1]),
			saidBy(yes, fmt.Sprintf("2025-04-%02dT08:00:00Z", n+1), "pia", fields[0]))
		c.Queries = append(c.Queries, wanting(fields[2], wanted{First: no, Has: []string{yes}}))
	}
	return c
}

// What was before, and the value that is named, stay where they were.
func historyCase() recallCase {
	return recallCase{
		Case: "history", Points: append(
			others(), mioSaid("h1", "2025-03-01T08:00:00Z", "The mascot is an owl."),
			mioSaid("h2", "2025-03-05T08:00:00Z", "The mascot is a badger."),
			mioSaid("d1", "2025-03-02T08:00:00Z", "I ran 5 km."), mioSaid("d2", "2025-03-03T08:00:00Z", "I ran 8 km."),
			mioSaid("d3", "2025-03-04T08:00:00Z", "I ran 6 km.")),
		Queries: []caseQuery{
			first("What is the mascot?", "h2"), first("Is the mascot an owl?", "h1"),
			wanting("Which mascot was there before?", wanted{Has: []string{"h1", "h2"}}),
			wanting("How far did I run?", wanted{Top: []string{"d1", "d2", "d3"}}),
		},
	}
}

// Of many who write within an hour, a question about one of them finds no text of the others.
func crowdCase() recallCase {
	c := recallCase{Case: "crowd"}
	absent := []string{}
	for n := range 60 {
		id := fmt.Sprint("c", n)
		c.Points = append(c.Points, saidBy(id, fmt.Sprintf("2025-03-01T09:%02d:00Z", n), fmt.Sprint("member", n%30),
			fmt.Sprintf("Locker %d holds paint.", n+100)))
		absent = append(absent, id)
	}
	c.Points = append(c.Points, saidBy("turtle", "2025-03-01T09:30:30Z", "member7", "Wendy feeds the turtle."))
	c.Queries = []caseQuery{wanting("Who feeds the turtle?", wanted{First: "turtle", Absent: absent})}
	c.Embeddings = "none"
	return c
}

// Two authors about themselves: neither replaces the other.
func twoAuthorsCase() recallCase {
	return recallCase{
		Case: "two authors", Points: append(
			others(), saidBy("m", "2025-03-01T08:00:00Z", "mio", "My bus is line 12."),
			saidBy("p", "2025-03-02T08:00:00Z", "pia", "My bus is line 15.")),
		Queries: []caseQuery{first("What is my bus?", "m"), first("What is Pia's bus?", "p")},
	}
}
