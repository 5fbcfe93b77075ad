package requestlog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/ops"
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

// Dropped events whose whole body is stored can be replayed, until a replay of them is marked.
func TestDroppedEvents(t *testing.T) {
	h := newHarness(t)
	project := uuid.New()
	first, second := eventAt(project, "whk_one", Dropped, noon), eventAt(project, "whk_two", Dropped, noon.Add(time.Minute))
	ingested, refused := eventAt(project, "whk_one", Ingested, noon), eventAt(project, "whk_one", 409, noon)
	cut, gone := eventAt(project, "whk_one", Dropped, noon), eventAt(project, "whk_one", Dropped, noon)
	cut.Payload.RequestTruncated, gone.Payload = true, nil
	old := eventAt(project, "whk_one", Dropped, noon.Add(-time.Hour))
	h.add(t, second, first, ingested, refused, cut, gone, old, eventAt(project, "whk_gone", Dropped, noon),
		eventAt(uuid.New(), "whk_one", Dropped, noon))
	dropped := func(limit int) (ids []uuid.UUID, events []Event) {
		t.Helper()
		events, err := h.DroppedEvents(t.Context(), project, []string{"whk_one", "whk_two"}, noon, limit)
		runtest.Must(t, err)
		for _, e := range events {
			ids = append(ids, e.RequestID)
		}
		return ids, events
	}
	got, events := dropped(10)
	if diff := cmp.Diff([]uuid.UUID{first.RequestID, second.RequestID}, got); diff != "" {
		t.Fatalf("dropped events (-want +got):\n%s", diff)
	}
	if got, _ := dropped(1); len(got) != 1 || got[0] != first.RequestID {
		t.Errorf("the oldest is %v", got)
	}
	as := uuid.New()
	runtest.Must(t, h.MarkReplayed(t.Context(), events[0].Entry, as))
	if got, _ := dropped(10); len(got) != 1 || got[0] != second.RequestID {
		t.Errorf("after a replay: %v", got)
	}
	marked, err := h.Get(t.Context(), project, first.RequestID)
	runtest.Must(t, err)
	if w := marked.Webhook; w == nil || w.ReplayedAs == nil || *w.ReplayedAs != as || w.ID != "whk_one" || w.Name != "Tickets" {
		t.Errorf("the event is %+v", marked.Webhook)
	}
}

func TestCountBodies(t *testing.T) {
	h := newHarness(t)
	project := uuid.New()
	without := recordAt(project, noon)
	without.Payload = nil
	h.add(t, recordAt(project, noon), recordAt(project, noon.Add(-48*time.Hour)), without, recordAt(uuid.New(), noon))
	for most, want := range map[int]int{10: 2, 2: 2, 1: 1} {
		if n, err := h.CountBodies(t.Context(), project, most); n != want || err != nil {
			t.Errorf("up to %d: %d, %v, want %d", most, n, err, want)
		}
	}
}

func TestCosts_ByDayAndKey(t *testing.T) {
	h := newHarness(t)
	one, two, foreign := uuid.New(), uuid.New(), uuid.New()
	charged := func(project uuid.UUID, at time.Time, key string, tenths int64) Record {
		r := recordAt(project, at)
		r.Key.Name, r.CreditTenths = key, &tenths
		return r
	}
	free := recordAt(one, noon)
	evening := time.Date(2026, 11, 20, 23, 59, 59, 0, time.UTC)
	h.add(t, free, charged(one, noon, "batch", 5), charged(one, evening, "batch", 20), charged(two, noon, "app", 7),
		charged(one, evening.Add(time.Second), "app", 3), charged(foreign, noon, "app", 99))
	h.add(t, charged(one, noon.Add(time.Minute), "batch", 1))

	texts := func(from, to time.Time) string {
		t.Helper()
		list, more, err := h.Costs(t.Context(), []uuid.UUID{one, two}, from, to)
		runtest.Must(t, err)
		text := ""
		for _, c := range list {
			text += fmt.Sprintf("%d %t %s %d calls %d; ", c.Day.Day(), c.Project == one, c.Key.Name, c.CallCount, c.CreditTenths)
		}
		if more {
			t.Error("there are no more")
		}
		return text
	}
	const friday = "20 true batch 3 calls 26; 20 false app 1 calls 7; 20 true first 1 calls 0; "
	for _, c := range []struct {
		from, to time.Time
		want     string
	}{
		{noon, noon, friday},
		{noon, evening.Add(time.Second), friday + "21 true app 1 calls 3; "},
		{noon.AddDate(0, 0, -9), noon.AddDate(0, 0, -1), ""},
	} {
		if got := texts(c.from, c.to); got != c.want {
			t.Errorf("%s to %s: %s", c.from, c.to, got)
		}
	}
	_, _, err := h.Costs(t.Context(), []uuid.UUID{one}, noon.AddDate(0, 0, -32), noon)
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != fault.CodeRangeTooWide {
		t.Errorf("33 days: %v", err)
	}

	// What was written before the counts had charges.
	_, err = h.db.Exec(t.Context(), `alter table ops.request_counts drop credit_tenths;
		delete from ops.migrations where file = 'requestlog/2.sql'`)
	runtest.Must(t, err)
	runtest.Must(t, ops.Migrate(t.Context(), h.db, uuid.Nil))
	if got := texts(noon, noon); got != friday {
		t.Errorf("after the migration: %s", got)
	}
}

func TestLog_LastUses(t *testing.T) {
	h := newHarness(t)
	project, neighbour := uuid.New(), uuid.New()
	first, second := Key{Name: "first", Prefix: "svc_sk_ab12"}, Key{Name: "first", Prefix: "svc_sk_cd34"}
	call := func(project uuid.UUID, key Key, days int, change func(*Record)) Record {
		r := recordAt(project, noon.AddDate(0, 0, -days))
		r.Key = key
		if change != nil {
			change(&r)
		}
		return r
	}
	h.add(t,
		call(project, first, 12, nil), call(project, first, 3, func(r *Record) { r.Status, r.ErrorCode = 403, "refused" }),
		call(project, first, 7, func(r *Record) { r.Endpoint = "POST /api/v1/recall" }),
		call(project, second, 9, nil), call(neighbour, first, 0, nil),
		call(project, Key{Name: "console"}, 1, nil),
	)
	got, err := h.LastUses(t.Context(), project)
	want := map[Key]time.Time{first: noon.AddDate(0, 0, -3), second: noon.AddDate(0, 0, -9)}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if none, err := h.LastUses(t.Context(), uuid.New()); err != nil || len(none) > 0 {
		t.Errorf("an unused project: %v, %v", none, err)
	}
}
