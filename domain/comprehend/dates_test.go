package comprehend_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/memory"
)

const stored = "2006-01-02T15:04"

// anchors are the date expressions of a sentence, each as `expression = from/to`.
func anchors(text string, at time.Time) []string {
	var got []string
	for _, m := range comprehend.Extract(comprehend.Input{
		DataPoint: dataPoint, Revision: 1, Content: text,
		OccurredAt: at,
	}) {
		if m.Kind == memory.TemporalAnchor {
			expression := strings.Split(m.Content, `"`)[1]
			from, to := m.ResolvedFrom.Format(stored), m.ResolvedTo.Format(stored)
			got = append(got, expression+" = "+strings.TrimSuffix(from, "T00:00")+"/"+strings.TrimSuffix(to, "T00:00"))
		}
	}
	return got
}

// Said on Monday 12 May 2025.
func TestAnchors_Resolve(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []string
	}{
		// Days near the one it was said on.
		{"We meet next Tuesday.", []string{"next Tuesday = 2025-05-13/2025-05-14"}},
		{"We meet next Monday.", []string{"next Monday = 2025-05-19/2025-05-20"}},
		{"I saw Bo yesterday.", []string{"yesterday = 2025-05-11/2025-05-12"}},
		{"I saw Bo last night.", []string{"last night = 2025-05-11/2025-05-12"}},
		{"I'll come tomorrow morning.", []string{"tomorrow morning = 2025-05-13/2025-05-14"}},
		{"I'll call tomorrow at 5 pm.", []string{"tomorrow at 5 pm = 2025-05-13T17:00/2025-05-13T17:01"}},
		{"I'll call tomorrow at 17:30.", []string{"tomorrow at 17:30 = 2025-05-13T17:30/2025-05-13T17:31"}},
		{"I'll call tomorrow at 5:15pm.", []string{"tomorrow at 5:15pm = 2025-05-13T17:15/2025-05-13T17:16"}},
		{"I'll call tomorrow at noon.", []string{"tomorrow at noon = 2025-05-13T12:00/2025-05-13T12:01"}},
		{"I'll call tomorrow at 5.", []string{"tomorrow = 2025-05-13/2025-05-14"}},
		{"I came the day before yesterday.", []string{"day before yesterday = 2025-05-10/2025-05-11"}},
		{"I come the day after tomorrow.", []string{"day after tomorrow = 2025-05-14/2025-05-15"}},
		{"I went for a walk this morning.", []string{"this morning = 2025-05-12/2025-05-13"}},
		// Weekdays.
		{"I went hiking last Friday.", []string{"last Friday = 2025-05-09/2025-05-10"}},
		{"I went hiking last Monday.", []string{"last Monday = 2025-05-05/2025-05-06"}},
		{"I went hiking on Friday.", []string{"Friday = 2025-05-09/2025-05-10"}},
		{"I'll go hiking on Friday.", []string{"Friday = 2025-05-16/2025-05-17"}},
		{"We will meet this Friday evening.", []string{"this Friday evening = 2025-05-16/2025-05-17"}},
		{"Bo came this past Saturday.", []string{"this past Saturday = 2025-05-10/2025-05-11"}},
		{"I saw her last Tues.", []string{"last Tues = 2025-05-06/2025-05-07"}},
		{"Please review the attached document by Friday.", []string{"Friday = 2025-05-16/2025-05-17"}},
		{"Send it by Wednesday.", []string{"Wednesday = 2025-05-14/2025-05-15"}},
		// Weeks, weekends, months, years.
		{"I was ill last week.", []string{"last week = 2025-05-05/2025-05-12"}},
		{"I travel next week.", []string{"next week = 2025-05-19/2025-05-26"}},
		{"I go hiking this weekend.", []string{"this weekend = 2025-05-17/2025-05-19"}},
		{"I went hiking this weekend.", []string{"this weekend = 2025-05-10/2025-05-12"}},
		{"I went hiking last weekend.", []string{"last weekend = 2025-05-10/2025-05-12"}},
		{"I moved last month.", []string{"last month = 2025-04-01/2025-05-01"}},
		{"I move next month.", []string{"next month = 2025-06-01/2025-07-01"}},
		{"I moved last year.", []string{"last year = 2024-01-01/2025-01-01"}},
		{"It was the week before last.", []string{"week before last = 2025-04-28/2025-05-05"}},
		{"We ship next quarter.", []string{"next quarter = 2025-07-01/2025-10-01"}},
		// So many units away.
		{"I saw Bo two days ago.", []string{"two days ago = 2025-05-10/2025-05-11"}},
		{"I saw Bo 3 weeks ago.", []string{"3 weeks ago = 2025-04-21/2025-04-22"}},
		{"I saw Bo a month ago.", []string{"a month ago = 2025-04-01/2025-05-01"}},
		{"I met Bo ten years ago.", []string{"ten years ago = 2015-01-01/2016-01-01"}},
		{"I fly in two weeks.", []string{"in two weeks = 2025-05-26/2025-05-27"}},
		{"I fly a week from now.", []string{"a week from now = 2025-05-19/2025-05-20"}},
		{"The exam is in 10 days.", []string{"in 10 days = 2025-05-22/2025-05-23"}},
		// Months by name.
		{"I moved here last March.", []string{"last March = 2025-03-01/2025-04-01"}},
		{"I move there next March.", []string{"next March = 2026-03-01/2026-04-01"}},
		{"I moved here in November.", []string{"November = 2024-11-01/2024-12-01"}},
		{"I will move there in November.", []string{"November = 2025-11-01/2025-12-01"}},
		// Dates as written.
		{"The launch is on 3 June 2025.", []string{"3 June 2025 = 2025-06-03/2025-06-04"}},
		{"The launch is on June 3, 2025.", []string{"June 3, 2025 = 2025-06-03/2025-06-04"}},
		{"The launch is on the 3rd of June 2025.", []string{"3rd of June 2025 = 2025-06-03/2025-06-04"}},
		{"The launch is on 2025-06-03.", []string{"2025-06-03 = 2025-06-03/2025-06-04"}},
		{"It fell over at 2025-06-03T10:15:30Z.", []string{"2025-06-03T10:15:30Z = 2025-06-03T10:15/2025-06-03T10:16"}},
		{"The launch is on 03.06.2025.", []string{"03.06.2025 = 2025-06-03/2025-06-04"}},
		{"The launch is on 2025/06/03.", []string{"2025/06/03 = 2025-06-03/2025-06-04"}},
		{"The launch is on 25/06/2025.", []string{"25/06/2025 = 2025-06-25/2025-06-26"}},
		{"The launch is on 06/25/2025.", []string{"06/25/2025 = 2025-06-25/2025-06-26"}},
		{"The launch is on Tuesday, 3 June 2025.", []string{"Tuesday, 3 June 2025 = 2025-06-03/2025-06-04"}},
		{"The launch is on June 3.", []string{"June 3 = 2025-06-03/2025-06-04"}},
		{"I was born on June 3.", []string{"June 3 = 2024-06-03/2024-06-04"}},
		{"We postponed the release until June 10.", []string{"June 10 = 2025-06-10/2025-06-11"}},
		{"Bo moved the demo from Monday to Thursday.", []string{"Thursday = 2025-05-15/2025-05-16"}},
		{"The fair is on 3-5 June 2025.", []string{"3-5 June 2025 = 2025-06-03/2025-06-06"}},
		{"The fair is in June 2025.", []string{"June 2025 = 2025-06-01/2025-07-01"}},
		{"We ship in Q3 2025.", []string{"Q3 2025 = 2025-07-01/2025-10-01"}},
		{"I bought it on the 3rd.", []string{"3rd = 2025-05-03/2025-05-04"}},
		{"From 3 June 2025 to 7 July 2025 I am away.", []string{"3 June 2025 = 2025-06-03/2025-06-04", "7 July 2025 = 2025-07-07/2025-07-08"}},
		{"Said on 29 Feb 2024.", []string{"29 Feb 2024 = 2024-02-29/2024-03-01"}},
		// No dates, or none that can be known.
		{"Never deploy on Fridays.", nil},
		{"I work on Friday nights.", nil},
		{"Every Friday we meet.", nil},
		{"A few days ago I saw Bo.", nil},
		{"I lost five kilos in two weeks.", nil},
		{"We had met the last week of the trip.", nil},
		{"I may march soon.", nil},
		{"Version 1.2.2025 fails, 10.0.0.1 too.", nil},
		{"The launch is on 03/06/2025.", nil},
		{"The launch is on 31 June 2025.", nil},
		{"The launch is on 2025-02-30.", nil},
		{"It is on the 17th floor.", nil},
		{"How was your day today?", nil},
		{"The second week was hard.", nil},
		{"We got 3 june bugs.", nil},
		{"See 2025.", nil},
	} {
		if got := anchors(tc.text, monday); !slices.Equal(got, tc.want) {
			t.Errorf("%q: got %q, want %q", tc.text, got, tc.want)
		}
	}
}

func TestAnchors_Lines(t *testing.T) {
	check(t, memory.TemporalAnchor, "Ana",
		yes("We meet next Tuesday.", `"next Tuesday", said on 12 May 2025, is 13 May 2025`),
		yes("I was ill last week.", `"last week", said on 12 May 2025, is 5 May 2025 to 11 May 2025`),
		yes("I moved last month.", `"last month", said on 12 May 2025, is April 2025`),
		yes("I moved last year.", `"last year", said on 12 May 2025, is 2024`),
		yes("I'll call tomorrow at 5 pm.", `"tomorrow at 5 pm", said on 12 May 2025, is 13 May 2025, 17:00`),
		yes("The launch is on 2025-06-03.", `"2025-06-03" is Tuesday, 3 June 2025`),
		yes("The launch is on June 3.", `"June 3", said on 12 May 2025, is 3 June 2025`))
}

// day draws a day that all of the grammar's arithmetic stays in range of.
func day(t *rapid.T) time.Time {
	return time.Date(1900, 1, 1, 9, 0, 0, 0, time.UTC).AddDate(0, 0, rapid.IntRange(0, 100_000).Draw(t, "day"))
}

// A weekday named after "next" is the first of its kind after the day it is said on, after "last"
// the last before it.
func TestDates_NearestWeekday(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		said, weekday := day(t), time.Weekday(rapid.IntRange(0, 6).Draw(t, "weekday"))
		word := rapid.SampledFrom([]string{"next", "last"}).Draw(t, "word")
		date, step := midnight(said), 1
		if word == "last" {
			step = -1
		}
		for date = date.AddDate(0, 0, step); date.Weekday() != weekday; {
			date = date.AddDate(0, 0, step)
		}
		wantAnchor(t, said, fmt.Sprintf("%s %s", word, weekday), date, date.AddDate(0, 0, 1))
	})
}

// A date n days ahead or back is n days away, in digits and in words.
func TestDates_Distances(t *testing.T) {
	words := []string{
		"", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
		"twelve",
	}
	rapid.Check(t, func(t *rapid.T) {
		said, n := day(t), rapid.IntRange(1, 999).Draw(t, "n")
		count := fmt.Sprint(n)
		if n < len(words) && rapid.Bool().Draw(t, "in words") {
			count = words[n]
		}
		unit, size := "days", 1
		if rapid.Bool().Draw(t, "weeks") {
			unit, size = "weeks", 7
		}
		ago, ahead := midnight(said).AddDate(0, 0, -n*size), midnight(said).AddDate(0, 0, n*size)
		wantAnchor(t, said, count+" "+unit+" ago", ago, ago.AddDate(0, 0, 1))
		wantAnchor(t, said, "in "+count+" "+unit, ahead, ahead.AddDate(0, 0, 1))
	})
}

// A date that is complete is the same whenever it is said and however it is written.
func TestDates_Written(t *testing.T) {
	layouts := []string{
		"2 January 2006", "January 2, 2006", "2 Jan 2006", "Jan 2, 2006", "2006-01-02", "2006/01/02",
		"02.01.2006", "Monday, 2 January 2006", "January 2 2006",
	}
	rapid.Check(t, func(t *rapid.T) {
		date := midnight(day(t))
		text := date.Format(rapid.SampledFrom(layouts).Draw(t, "layout"))
		wantAnchor(t, day(t), text, date, date.AddDate(0, 0, 1))
	})
}

// The units that hold the present one, the one before and the one after touch each other and hold
// the days they should.
func TestDates_UnitsTouch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		said := day(t)
		for _, unit := range []string{"week", "month", "quarter", "year"} {
			last, this, next := span(t, said, "last "+unit), span(t, said, "this "+unit), span(t, said, "next "+unit)
			if last[1] != this[0] || this[1] != next[0] {
				t.Errorf("%s: %v %v %v do not touch", unit, last, this, next)
			}
			if said.Before(this[0]) || !said.Before(this[1]) {
				t.Errorf("this %s %v does not hold %v", unit, this, said)
			}
		}
		if weekend := span(t, said, "this weekend"); weekend[0].Weekday() != time.Saturday ||
			weekend[1].Sub(weekend[0]) != 48*time.Hour {
			t.Errorf("weekend %v", weekend)
		}
	})
}

func midnight(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
}

func span(t *rapid.T, said time.Time, expression string) [2]time.Time {
	for _, m := range comprehend.Extract(comprehend.Input{
		DataPoint: dataPoint, Revision: 1,
		Content: "The plan is for " + expression + ".", OccurredAt: said,
	}) {
		if m.Kind == memory.TemporalAnchor {
			return [2]time.Time{m.ResolvedFrom, m.ResolvedTo}
		}
	}
	t.Fatalf("%q gives no date", expression)
	return [2]time.Time{}
}

func wantAnchor(t *rapid.T, said time.Time, expression string, from, to time.Time) {
	if got := span(t, said, expression); got != [2]time.Time{from, to} {
		t.Fatalf("%q said on %v: got %v, want %v to %v", expression, said, got, from, to)
	}
}

// Asked on Monday 12 May 2025.
func TestPeriods_Languages(t *testing.T) {
	const (
		yesterday, before = "2025-05-11/2025-05-12", "2025-05-10/2025-05-11"
		today, tomorrow   = "2025-05-12/2025-05-13", "2025-05-13/2025-05-14"
		lastFriday        = "2025-05-09/2025-05-10"
		lastWeek          = "2025-05-05/2025-05-12"
		lastMonth         = "2025-04-01/2025-05-01"
		lastYear          = "2024-01-01/2025-01-01"
		march             = "2025-03-01/2025-04-01"
	)
	asked := time.Date(2025, 5, 12, 15, 0, 0, 0, time.UTC)
	for question, want := range map[string]string{
		"Was wurde gestern vereinbart?":          yesterday,
		"WAS IST GESTERN PASSIERT":               yesterday,
		"was war vorgestern los":                 before,
		"Was ist heute Abend?":                   today,
		"gestern Morgen":                         yesterday,
		"Was war am 11. Mai?":                    yesterday,
		"Was war am 11 Mai 2025?":                yesterday,
		"Treffen am Sonntag, den 11. Mai":        yesterday,
		"Was geschah letzten Freitag?":           lastFriday,
		"Was geschah am Freitag?":                lastFriday,
		"letzte Woche":                           lastWeek,
		"Was war im letzten Monat?":              lastMonth,
		"im vergangenen Jahr":                    lastYear,
		"Was war im März?":                       march,
		"was war im maerz":                       "",
		"Was geschah im April 2024?":             "2024-04-01/2024-05-01",
		"Was war vor zwei Tagen?":                before,
		"vor einer Woche":                        lastWeek,
		"Was ist seit Freitag neu?":              "2025-05-09/2025-05-13",
		"im Jahr 2024":                           lastYear,
		"Was war vom 3. bis 5. Mai?":             "2025-05-03/2025-05-06",
		"Was war vom 3. Mai bis 5. Mai?":         "2025-05-03/2025-05-06",
		"die letzten 3 Tage":                     "2025-05-09/2025-05-13",
		"Que s'est-il passé hier ?":              yesterday,
		"Qu'est-ce qui s'est passé avant-hier ?": before,
		"réunion d'hier dans le bureau de Paul":  yesterday,
		"aujourd'hui":                            today,
		"demain matin":                           tomorrow,
		"la semaine dernière":                    lastWeek,
		"le mois dernier":                        lastMonth,
		"l'année dernière":                       lastYear,
		"l’année dernière":                       lastYear,
		"vendredi dernier":                       lastFriday,
		"Que s'est-il passé vendredi ?":          lastFriday,
		"le 11 mai":                              yesterday,
		"le 1er mai 2025":                        "2025-05-01/2025-05-02",
		"en mars":                                march,
		"il y a deux jours":                      before,
		"depuis vendredi":                        "2025-05-09/2025-05-13",
		"en 2024":                                lastYear,
		"¿Qué pasó ayer?":                        yesterday,
		"¿Qué pasó ayer por la mañana?":          yesterday,
		"anteayer":                               before,
		"hoy":                                    today,
		"pasado mañana":                          "2025-05-14/2025-05-15",
		"la semana pasada":                       lastWeek,
		"el mes pasado":                          lastMonth,
		"el año pasado":                          lastYear,
		"¿Qué pasó el viernes pasado?":           lastFriday,
		"el pasado viernes":                      lastFriday,
		"el viernes":                             lastFriday,
		"el 11 de mayo":                          yesterday,
		"el 11 de mayo de 2025":                  yesterday,
		"en marzo":                               march,
		"hace dos días":                          before,
		"desde el viernes":                       "2025-05-09/2025-05-13",
		"Che cosa è successo ieri?":              yesterday,
		"l'altro ieri":                           before,
		"la settimana scorsa":                    lastWeek,
		"il mese scorso":                         lastMonth,
		"l'anno scorso":                          lastYear,
		"venerdì scorso":                         lastFriday,
		"venerdi scorso":                         lastFriday,
		"l'11 maggio":                            "",
		"il 11 maggio":                           yesterday,
		"a marzo":                                march,
		"due giorni fa":                          before,
		"O que aconteceu ontem?":                 yesterday,
		"anteontem à noite":                      before,
		"amanhã":                                 tomorrow,
		"a semana passada":                       lastWeek,
		"no mês passado":                         lastMonth,
		"sexta-feira passada":                    lastFriday,
		"na sexta-feira":                         lastFriday,
		"11 de maio de 2025":                     yesterday,
		"há dois dias":                           before,
		"dois dias atrás":                        before,
		"Wat is er gisteren gebeurd?":            yesterday,
		"eergisteren":                            before,
		"vandaag":                                today,
		"vorige week":                            lastWeek,
		"afgelopen vrijdag":                      lastFriday,
		"op vrijdag":                             lastFriday,
		"11 mei":                                 yesterday,
		"in maart":                               march,
		"twee dagen geleden":                     before,
		"sinds vrijdag":                          "2025-05-09/2025-05-13",
		"Vad hände igår?":                        yesterday,
		"Vad hände i går?":                       yesterday,
		"i förrgår":                              before,
		"förrgår":                                before,
		"förra veckan":                           lastWeek,
		"i fredags":                              lastFriday,
		"den 11 maj":                             yesterday,
		"i mars":                                 march,
		"för två dagar sedan":                    before,
		"Что случилось вчера?":                   yesterday,
		"позавчера":                              before,
		"на прошлой неделе":                      lastWeek,
		"в прошлом месяце":                       lastMonth,
		"в прошлом году":                         lastYear,
		"в прошлую пятницу":                      lastFriday,
		"в пятницу":                              lastFriday,
		"11 мая":                                 yesterday,
		"в марте":                                march,
		"два дня назад":                          before,
		"неделю назад":                           lastWeek,
		"в 2024 году":                            lastYear,
		"昨日何があった?":                               yesterday,
		"おとといの会議":                                before,
		"先週":                                     lastWeek,
		"先週の金曜日":                                 "2025-05-09/2025-05-10",
		"先月":                                     lastMonth,
		"去年":                                     lastYear,
		"5月11日に何をした":                             yesterday,
		"５月１１日":                                  yesterday,
		"五月十一日":                                  yesterday,
		"二〇二五":                                   "",
		"五月二十三日の会議":                              "2024-05-23/2024-05-24",
		"三月":                                     "",
		"十三月三十二日":                                "",
		"la semaine dernie\u0300re":              lastWeek,
		"i ga\u030Ar":                            yesterday,
		"2025年5月11日":                             yesterday,
		"3月に":                                    march,
		"2日前":                                    before,
		"金曜日":                                    lastFriday,
		"金曜日から":                                  "2025-05-09/2025-05-13",
		"昨天发生了什么":                                yesterday,
		"前天":                                     before,
		"上周":                                     lastWeek,
		"上個星期":                                   lastWeek,
		"上周五":                                    "2025-05-09/2025-05-10",
		"上个月":                                    lastMonth,
		"5月11号":                                  yesterday,
		"两天前":                                    before,
		"어제 무슨 일이 있었어?":                          yesterday,
		"그저께":                                    before,
		"지난주에":                                   lastWeek,
		"지난 금요일":                                 lastFriday,
		"지난달":                                    lastMonth,
		"작년에":                                    lastYear,
		"5월 11일에":                                yesterday,
		"이틀 전":                                   "",
		"2일 전":                                   before,
		"Team lunch 昨日":                          yesterday,
		"5月3日から5月5日":                             "2025-05-03/2025-05-06",
		"Was macht Paul morgen?":                 "",
		"Guten Morgen":                           "",
		"Wo ist hier der Drucker?":               "",
		"Was ist hier los?":                      "",
		"hier ist es":                            "",
		"Waar is hier de printer?":               "",
		"por la mañana":                          "",
		"la mañana siguiente":                    "",
		"Wer ist Herr März?":                     "",
		"Frau Mai und August":                    "",
		"le champ de mars":                       "",
		"the planet mars":                        "",
		"Mars rover":                             "",
		"sett":                                   "",
		"Har du sett Anna?":                      "",
		"the badgers of the old sett":            "",
		"7 sett":                                 "",
		"il a neuf ans":                          "",
		"vor Gericht":                            "",
		"Freitag und Robinson":                   "",
		"la segunda vez":                         "",
		"Domingo canta":                          "",
		"mardi gras":                             "",
		"tous les lundi":                         "",
		"明日香の本":                                  "",
		"今日子さん":                                  "",
		"以前天气":                                   "",
		"그제야":                                    "",
		"어제처럼":                                   "",
		"may":                                    "",
		"who may march second":                   "",
		"the second march":                       "",
		"среда обитания":                         "",
		"Мая Плисецкая":                          "",
		"Hier":                                   yesterday,
		"Maison Hier":                            "",
		"juin":                                   "",
		"Juni und Juli sind Namen":               "",
		"Agosto Boal":                            "",
		"on 3 May and vor drei Wochen":           "2025-04-21/2025-04-28",
		"was passierte zwischen 3. Mai und 5. Mai":        "2025-05-03/2025-05-06",
		"¿qué hicimos entre el 3 de mayo y el 5 de mayo?": "2025-05-03/2025-05-06",
	} {
		got := periods(question, asked)
		if want == "" && len(got) > 0 || want != "" && !slices.Contains(got, want) {
			t.Errorf("%q: %v, want %q", question, got, want)
		}
	}
}

// The bytes of a question that name a period are those of the words of time alone.
func TestNamedPeriods(t *testing.T) {
	asked := time.Date(2025, 5, 12, 15, 0, 0, 0, time.UTC)
	for question, want := range map[string]string{
		"What happened yesterday?":                 "yesterday",
		"Team lunch am 11. Mai":                    "11. Mai",
		"昨日何があった?":                                 "昨日",
		"어제는 무슨 일이 있었어?":                           "어제는",
		"the two days after 3 May":                 "two days after 3 May",
		"from 3 to 5 May":                          "3 to 5 May",
		"from Monday to Wednesday":                 "Monday to Wednesday",
		"Que s'est-il passé la semaine dernière ?": "semaine dernière",
		"vom 3. Mai bis 5. Mai":                    "3. Mai bis 5. Mai",
	} {
		got := comprehend.NamedPeriods(question, asked)
		if len(got) != 1 || question[got[0].From:got[0].To] != want {
			t.Errorf("%q: %v, want %q", question, got, want)
		}
	}
}

// The bytes that name a period are in the question, in order and apart from each other, whatever the question is.
func TestNamedPeriods_Laws(t *testing.T) {
	words := strings.Fields(`gestern am 11. Mai 3 bis 5 vor zwei Tagen letzte Woche hier avant-hier l'année dernière il y a en 2024
		ayer pasado mañana hace dos días el viernes di ieri fa altro ontem há igår i går för sedan вчера назад неделю
		昨日 先週の 金曜日 5月11日 から 上周五 三天前 어제는 지난주 5월 may last friday since between and the - , . ? ' 1er 99 2025-05-12`)
	asked := time.Date(2025, 5, 12, 15, 0, 0, 0, time.UTC)
	rapid.Check(t, func(r *rapid.T) {
		parts := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(words), rapid.StringN(0, 6, 24)), 0, 12).Draw(r, "words")
		question := strings.Join(parts, rapid.SampledFrom([]string{" ", ""}).Draw(r, "between"))
		end := 0
		for _, n := range comprehend.NamedPeriods(question, asked) {
			if n.From < end || n.To <= n.From || n.To > len(question) || !n.Start.Before(n.End) {
				r.Fatalf("%q: %+v after %d", question, n, end)
			}
			end = n.To
		}
	})
}
