package recall_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

// noon is noon of a day of May 2025.
func noon(day int) time.Time { return time.Date(2025, 5, day, 12, 0, 0, 0, time.UTC) }

// newDays makes a harness with a text of each of some days, and many others that say "happened".
func newDays(t *testing.T) *recalltest.Harness {
	h := recalltest.New(t, nil)
	for day := 1; day <= 12; day++ {
		h.Send(recalltest.DataPoint{
			ID: fmt.Sprintf("d%d", day), Author: "ana", Content: fmt.Sprintf("Crate %d arrived.", day*7),
			OccurredAt: noon(day),
		})
	}
	for n := range 1000 {
		h.Send(recalltest.DataPoint{
			ID: fmt.Sprintf("h%d", n), Author: "ana", Content: fmt.Sprintf("It happened again in week %d.", n),
			OccurredAt: time.Date(2024, 1, 1, n, 0, 0, 0, time.UTC),
		})
	}
	return h
}

// askedOn asks on the evening of a day of May 2025.
func askedOn(h *recalltest.Harness, day int, text string) recall.Query {
	q := h.Ask(text)
	q.At = new(noon(day).Add(6 * time.Hour))
	return q
}

// found are the source ids of the results, in order.
func found(page recall.Response) []string {
	ids := []string{}
	for _, r := range page.Results {
		ids = append(ids, r.Sources[0].SourceID)
	}
	return ids
}

func TestRecall_Periods(t *testing.T) {
	h := newDays(t)
	h.CatchUp()
	for _, c := range []struct {
		text string
		want []string
	}{
		{"What happened yesterday?", []string{"d11"}},
		{"yesterday", []string{"d11"}},
		{"Was ist gestern passiert?", []string{"d11"}},
		{"¿Qué pasó ayer?", []string{"d11"}},
		{"昨日何があった?", []string{"d11"}},
		{"어제 무슨 일이 있었어?", []string{"d11"}},
		{"What's new since Friday?", []string{"d12", "d11", "d10", "d9"}},
		{"anything from last week?", []string{"d11", "d10", "d9", "d8", "d7", "d6", "d5"}},
		{"What happened on 3 May or on 5 May?", []string{"d5", "d3"}},
		{"What happened on 3 May and since 2 May?", []string{"d12", "d11", "d10", "d9", "d8", "d7", "d6", "d5", "d4", "d3", "d2"}},
		{"What will happen tomorrow?", nil},
	} {
		if got := found(h.Recall(askedOn(h, 12, c.text))); !slices.Equal(got, c.want) && len(got)+len(c.want) > 0 {
			t.Errorf("%q: %v, want %v", c.text, got, c.want)
		}
	}
	// A window asks for what occurred in it, and a period within it for both.
	window := func(text string) recall.Query {
		q := askedOn(h, 12, text)
		q.From, q.To = new(noon(4)), new(noon(6))
		return q
	}
	for text, want := range map[string][]string{
		"*": {"d6", "d5", "d4"}, "what happened?": {"d6", "d5", "d4"}, "on 5 May": {"d5"}, "yesterday": {}, "crate 35": {"d5"},
	} {
		if got := found(h.Recall(window(text))); !slices.Equal(got, want) && text != "crate 35" || text == "crate 35" && got[0] != "d5" {
			t.Errorf("%q in a window: %v, want %v", text, got, want)
		}
	}
	limited := askedOn(h, 12, "since Friday")
	limited.Limit, limited.Chronological = 2, true
	if got := found(h.Recall(limited)); !slices.Equal(got, []string{"d11", "d12"}) {
		t.Errorf("the newest two, the older first: %v", got)
	}
	limited.Limit, limited.Budget = 100, 9
	if page := h.Recall(limited); len(page.Results) != 1 || page.UsedEvidenceTokens > 9 {
		t.Errorf("a budget for one: %v, %d tokens", found(page), page.UsedEvidenceTokens)
	}
}

// What a viewer may not read is neither found by its time nor takes the place of what is.
func TestRecall_PeriodsOfViewer(t *testing.T) {
	h, team := recalltest.New(t, nil), uuid.New()
	send := func(id string, audience uuid.UUID, minute int) {
		h.Send(recalltest.DataPoint{
			ID: id, Author: "bo", Content: "The " + id + " happened yesterday.", Audience: audience,
			OccurredAt: noon(11).Add(time.Duration(minute) * time.Minute),
		})
	}
	send("open", uuid.Nil, 0)
	send("gone", uuid.Nil, 1)
	for n := range 200 {
		send(fmt.Sprintf("secret%d", n), team, 2+n)
	}
	h.CatchUp()
	h.Delete("gone")
	h.CatchUp()
	q := askedOn(h, 12, "What happened yesterday?")
	if got := found(h.Recall(q)); !slices.Equal(got, []string{"open"}) {
		t.Errorf("without the team: %v", got)
	}
	q.Audiences, q.Limit = []uuid.UUID{uuid.Nil, team}, 2
	if got := found(h.Recall(q)); !slices.Equal(got, []string{"secret199", "secret198"}) {
		t.Errorf("with the team: %v", got)
	}
	q.Audiences = nil
	if got := found(h.Recall(q)); len(got) > 0 {
		t.Errorf("without an audience: %v", got)
	}
	q = askedOn(h, 11, "today")
	q.At = new(noon(11).Add(30 * time.Second))
	if got := found(h.Recall(q)); !slices.Equal(got, []string{"open"}) {
		t.Errorf("from before the others: %v", got)
	}
	q = askedOn(h, 12, "yesterday")
	q.Project.ID = uuid.New()
	if got := found(h.Recall(q)); len(got) > 0 {
		t.Errorf("of another project: %v", got)
	}
}

// What names a day in the period follows, if it is in the window and its newest revision names it.
func TestRecall_PeriodsByName(t *testing.T) {
	h := recalltest.New(t, nil)
	send := func(id string, day int, content, anchor string) {
		number := h.Send(recalltest.DataPoint{ID: id, Author: "ana", Content: content, OccurredAt: noon(day)})
		if anchor != "" {
			h.Derive(id, number, noon(day), false, recalltest.Line{Kind: "temporal-anchor", Content: anchor, Excerpt: content})
		}
	}
	send("of the day", 11, "The pump arrived.", "")
	send("names it", 12, "The gate was mended yesterday.", `"yesterday", said on 12 May 2025, is 11 May 2025`)
	send("named it first", 2, "The fair is on 11 May.", `"11 May", said on 2 May 2025, is 11 May 2025`)
	send("says it", 1, "Said on 11 May 2025 too.", `"tomorrow", said on 11 May 2025, is 12 May 2025`)
	send("names the month", 3, "May is warm.", `"this month", said on 3 May 2025, is May 2025`)
	send("named it once", 4, "The fête is on 11 May.", `"11 May", said on 4 May 2025, is 11 May 2025`)
	send("named it once", 4, "The fête is off.", "")
	h.CatchUp()
	q := askedOn(h, 20, "What happened on 11 May?")
	if got, want := found(h.Recall(q)), []string{"of the day", "names it", "named it first"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	q.From = new(noon(5))
	if got, want := found(h.Recall(q)), []string{"of the day", "names it"}; !slices.Equal(got, want) {
		t.Errorf("in a window: %v, want %v", got, want)
	}
	q = askedOn(h, 20, "*")
	q.From, q.To = new(noon(11)), new(noon(11))
	if got, want := found(h.Recall(q)), []string{"of the day"}; !slices.Equal(got, want) {
		t.Errorf("a window alone: %v, want %v", got, want)
	}
}

// A text that exceeds the budget has its first passage in its place.
func TestRecall_PeriodsOfLongText(t *testing.T) {
	h := recalltest.New(t, nil)
	diary := ""
	for n := range 400 {
		diary += fmt.Sprintf("Line %d of the diary tells of rain and of rope.\n", n)
	}
	h.Send(recalltest.DataPoint{ID: "diary", Author: "ana", Content: diary, OccurredAt: noon(11)})
	h.Send(recalltest.DataPoint{ID: "note", Author: "ana", Content: "The pump arrived.", OccurredAt: noon(11).Add(-time.Hour)})
	h.CatchUp()
	q := askedOn(h, 12, "What happened yesterday?")
	q.Budget = 700
	if page := h.Recall(q); !slices.Equal(found(page), []string{"diary", "note"}) || page.Results[0].Artifact.Kind != "observation" {
		t.Errorf("%v", found(page))
	}
}

// A question none of whose words is there finds nothing, though texts of other days have its word of time; with one of
// its words, or a date, it is an ordinary question.
func TestRecall_UnknownWordWithPeriod(t *testing.T) {
	h := recalltest.New(t, nil)
	for id, content := range map[string]string{
		"late": "The crate came yesterday.", "week": "It rained all last week.", "date": "Flight 12 leaves on 12 May.",
	} {
		h.Send(recalltest.DataPoint{ID: id, Author: "ana", Content: content, OccurredAt: noon(3)})
	}
	h.CatchUp()
	for question, want := range map[string][]string{
		"What did zorblax do yesterday?": {}, "zorblax yesterday": {}, "Did quindle call last week?": {},
		"Which crate came yesterday?": {"late"}, "Did it rain last week?": {"week"},
		"zorblax on 12 May": {"date"},
	} {
		got := found(h.Recall(askedOn(h, 12, question)))
		if os.Getenv(recalltest.EmbeddingsVariable) == "" && !slices.Equal(got, want) {
			t.Errorf("%s finds %v, want %v", question, got, want)
		}
	}
}
