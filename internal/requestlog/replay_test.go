package requestlog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
)

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
