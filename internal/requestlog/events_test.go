package requestlog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
)

// eventAt is a record of an event of a webhook at a time.
func eventAt(project uuid.UUID, webhook string, status int, at time.Time) Record {
	r := recordAt(project, at)
	r.Endpoint, r.Path, r.Status = EventEndpoint, "/api/v1/webhooks/"+webhook+"/token", status
	r.Key = Key{Name: "Tickets", Prefix: webhook}
	r.Webhook = &Webhook{ID: webhook, Name: "Tickets"}
	return r
}

// Activity agrees with a count of the events, whatever the window, and counts neither other calls nor other projects.
func TestActivity(t *testing.T) {
	h := newHarness(t)
	project, neighbour := uuid.New(), uuid.New()
	var all []Record
	add := func(of uuid.UUID, webhook string, status int, before time.Duration) {
		all = append(all, eventAt(of, webhook, status, noon.Add(-before)))
	}
	for n := range 60 {
		add(project, "whk_one", []int{Ingested, Dropped, 409}[n%3], time.Duration(n)*53*time.Minute)
		add(neighbour, "whk_other", Ingested, time.Duration(n)*time.Minute)
	}
	renamed := eventAt(project, "whk_one", 402, noon.Add(-time.Second))
	renamed.Key.Name, renamed.ErrorCode = "Renamed", "out-of-credits"
	all = append(all, renamed, recordAt(project, noon))
	add(project, "whk_old", Dropped, 80*24*time.Hour)
	h.add(t, all...)
	for _, window := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour, 25*time.Hour + 7*time.Minute} {
		from := noon.Add(-window)
		want := map[string]Activity{}
		for _, r := range all {
			if r.Project != project || r.Webhook == nil {
				continue
			}
			a := want[r.Webhook.ID]
			if a.LastAt == nil || r.ReceivedAt.After(*a.LastAt) {
				a.LastAt = &r.ReceivedAt
			}
			switch {
			case r.ReceivedAt.Before(from):
			case r.Status == Ingested:
				a.Ingested++
			case r.Status == Dropped:
				a.Dropped++
			default:
				a.Refused++
			}
			want[r.Webhook.ID] = a
		}
		got, err := h.Activity(t.Context(), project, []string{"whk_one", "whk_old", "whk_other", "whk_none"}, from, noon.Add(time.Second))
		runtest.Must(t, err)
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
			t.Errorf("activity in %s (-want +got):\n%s", window, diff)
		}
	}
	if got, err := h.Activity(t.Context(), project, nil, noon.Add(-time.Hour), noon); err != nil || len(got) > 0 {
		t.Errorf("of no webhook: %v, %v", got, err)
	}
}

// The newest events of one webhook come with what is left of their bodies, and the list selects them too.
func TestEvents_OfOneWebhook(t *testing.T) {
	h := newHarness(t)
	project, point := uuid.New(), uuid.New()
	whole, cut := eventAt(project, "whk_one", Ingested, noon), eventAt(project, "whk_one", Dropped, noon.Add(time.Minute))
	whole.IDs, whole.Webhook.Test = []uuid.UUID{point}, true
	cut.Payload.RequestTruncated, cut.RequestBytes = true, 300<<10
	gone, unread := eventAt(project, "whk_one", 409, noon.Add(2*time.Minute)), eventAt(project, "whk_one", 409, noon.Add(3*time.Minute))
	gone.Payload, unread.Payload, unread.RequestBytes = nil, &Payload{}, 0
	h.add(t, whole, cut, gone, unread, eventAt(project, "whk_two", Ingested, noon.Add(time.Hour)),
		eventAt(uuid.New(), "whk_one", Ingested, noon.Add(time.Hour)))

	events, err := h.Events(t.Context(), project, "whk_one", 3)
	runtest.Must(t, err)
	type state struct {
		ID                 uuid.UUID
		Bytes              int64
		Stored, Cut, Empty bool
	}
	var got []state
	for _, e := range events {
		got = append(got, state{e.RequestID, e.Bytes, e.Stored, e.Cut, e.Empty})
	}
	want := []state{
		{unread.RequestID, 0, true, false, true},
		{gone.RequestID, 15, false, false, true},
		{cut.RequestID, 300 << 10, true, true, false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	page, err := h.List(t.Context(), project, Query{
		From: noon.Add(-time.Hour), To: noon.Add(time.Hour), First: 10, Webhooks: []string{"whk_one"},
		Statuses: []int{Ingested},
	})
	runtest.Must(t, err)
	if len(page.Entries) != 1 || page.TotalCount != 1 {
		t.Fatalf("page %+v", page)
	}
	e := page.Entries[0]
	if e.RequestID != whole.RequestID || e.DataPoint == nil || *e.DataPoint != point || !e.Webhook.Test {
		t.Errorf("listed %+v", e)
	}
}
