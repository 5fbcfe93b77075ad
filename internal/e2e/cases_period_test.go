package e2e

import (
	"fmt"

	client "github.com/annals-project/annals/client"
)

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
