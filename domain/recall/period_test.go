package recall_test

import (
	"testing"
	"time"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/recall"
)

// A question about a time is one of words of time, of asking and stop words alone. Asked on Monday 12 May 2025.
func TestTimeAsked(t *testing.T) {
	a := recall.Shared()
	asked := time.Date(2025, 5, 12, 15, 0, 0, 0, time.UTC)
	for _, text := range []string{
		"What happened yesterday?", "WHAT HAPPENED YESTERDAY?", "yesterday", "Yesterday!", "What did we do today?",
		"anything from last week?", "What's new since Monday?", "what’s new since monday", "everything from last month",
		"Did anything happen on 3 May?", "what else was there between 3 and 5 May", "Tell me what happened last Friday.",
		"* yesterday", "in May", "since Monday", "What went on in 2024?", "show all of last week please",
		"Was ist gestern passiert?", "Was gab es letzte Woche Neues?", "Was war am 11. Mai?", "gestern", "Was ist seit Montag neu?",
		"Was haben wir letzten Freitag gemacht?",
		"Que s'est-il passé hier ?", "Qu'est-ce qui s'est passé la semaine dernière ?", "hier", "Quoi de neuf depuis lundi ?",
		"Qu'avons-nous fait vendredi ?",
		"¿Qué pasó ayer?", "¿Qué hay de nuevo desde el lunes?", "¿Qué hicimos la semana pasada?", "todo de ayer",
		"Che cosa è successo ieri?", "Cosa abbiamo fatto venerdì scorso?", "novità di ieri",
		"O que aconteceu ontem?", "O que há de novo desde segunda-feira?", "tudo da semana passada",
		"Wat is er gisteren gebeurd?", "Wat hebben we vorige week gedaan?", "alles van gisteren",
		"Vad hände igår?", "Vad gjorde vi förra veckan?", "allt från i fredags",
		"Что случилось вчера?", "Что нового с понедельника?", "Что мы делали на прошлой неделе?", "вчера",
		"昨日何があった?", "昨日は何がありましたか？", "先週", "昨日", "先週の出来事", "金曜日から何があった",
		"昨天发生了什么？", "上周我们做了什么", "昨天發生了什麼", "上周五", "5月11日",
		"어제 무슨 일이 있었어?", "어제", "지난주에 뭐 했어?", "지난 금요일에 무슨 일이 있었나요?",
	} {
		if a.TimeAsked(text, asked, nil, nil) == nil {
			t.Errorf("%q asks for more than a time", text)
		}
	}
	for _, text := range []string{
		"What broke yesterday?", "Team lunch hier", "zorblax yesterday", "What happened?", "*", "anything new?",
		"Did May happen to call?", "may", "March", "second", "What is the second thing?", "Who may march?",
		"Frau März", "mars", "Mars gestern", "Was macht Paul morgen?", "guten Morgen", "mañana", "por la mañana", "sett",
		"Vad har du sett?", "Har du sett Anna igår?", "the badger sett yesterday", "What did Will do yesterday?",
		"What did Anna do yesterday?", "Was ist hier los?", "Wo ist hier der Drucker?", "昨日のラーメン", "昨天的项目",
		"어제 회의", "会議", "明日香", "🪁 yesterday", "release 4 yesterday", "lunch on 3 May", "notes of yesterday",
		"what happened with the pump last week", "что сказала Анна вчера?",
	} {
		if got := a.TimeAsked(text, asked, nil, nil); got != nil {
			t.Errorf("%q asks for a time alone: %v", text, got)
		}
	}
}

// With a window a question needs no time of its own, and a period counts within the window alone.
func TestTimeAsked_Window(t *testing.T) {
	a := recall.Shared()
	day := func(n int) *time.Time { return new(time.Date(2025, 5, n, 0, 0, 0, 0, time.UTC)) }
	asked := *day(12)
	for _, text := range []string{"*", "what happened", "anything new?", "everything", "Was ist passiert?", "何があった", "all of it"} {
		got := a.TimeAsked(text, asked, day(3), day(5))
		switch {
		case got == nil:
			t.Errorf("%q asks for more than a time", text)
		case len(got.Named) > 0 || got.Occurred(day(3).Add(-1)) || !got.Occurred(*day(3)) || !got.Occurred(*day(5)) ||
			got.Occurred(day(5).Add(time.Millisecond)):
			t.Errorf("%q: %v", text, got)
		}
	}
	for _, text := range []string{"pump", "?!", "🪁", "項目", "**"} {
		if got := a.TimeAsked(text, asked, day(3), nil); got != nil {
			t.Errorf("%q asks for a time alone: %v", text, got)
		}
	}
	if got := a.TimeAsked("what happened from 2 to 4 May", asked, day(3), nil); got == nil || !got.Occurred(*day(3)) ||
		!got.Occurred(*day(4)) || got.Occurred(day(3).Add(-1)) || got.Occurred(*day(5)) {
		t.Errorf("a period and a beginning: %v", got)
	}
	if got := a.TimeAsked("yesterday", asked, nil, day(3)); got == nil || len(got.Spans) > 0 {
		t.Errorf("a period that the window has not: %v", got)
	}
}

// A text that names a day in a period names the period, in the days of the one who asks.
func TestTimeAsked_Names(t *testing.T) {
	asked := time.Date(2025, 5, 12, 8, 0, 0, 0, time.FixedZone("", 9*3600))
	got := recall.Shared().TimeAsked("What happened last week?", asked, nil, nil)
	day := func(n, days int) comprehend.Period {
		start := time.Date(2025, 5, n, 0, 0, 0, 0, time.UTC)
		return comprehend.Period{Start: start, End: start.AddDate(0, 0, days)}
	}
	for period, want := range map[comprehend.Period]bool{
		day(5, 1): true, day(11, 1): true, day(5, 7): true, day(4, 1): false, day(12, 1): false, day(1, 31): false,
	} {
		if got.Names(period) != want {
			t.Errorf("%v: %v, want %v", period, !want, want)
		}
	}
}
