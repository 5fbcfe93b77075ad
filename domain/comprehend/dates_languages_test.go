package comprehend_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/comprehend"
)

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
