package server

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/runner"
)

func TestStartProgress_SlowestProjection(t *testing.T) {
	clock := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := &startProgress{now: func() time.Time { return clock }}
	states := []runner.Status{
		{Name: "access", Position: 1000},
		{Name: "datapoints", Position: 100},
		{Name: "memories", Position: 500},
		{Name: "trace", Position: 0}, // no start waits for it
		{Name: "usage", Position: 0, Stop: &runner.Stop{}},
	}
	if _, ok := s.of(states); ok {
		t.Error("shown before the head is known")
	}
	s.begin(1000)
	if c, ok := s.of(states); !ok || c.String() != "the projection datapoints has read 10 % of the log (position 100 of 1000)" {
		t.Errorf("at first: %q, %v", c, ok)
	}
	clock = clock.Add(10 * time.Second)
	states[1].Position = 400
	want := "the projection datapoints has read 40 % of the log (position 400 of 1000), 30 positions/s, 20s left"
	if c, ok := s.of(states); !ok || c.String() != want {
		t.Errorf("ten seconds later: %q, %v", c, ok)
	}
	states[1].IsUnread = true
	if c, ok := s.of(states); ok || s.isDone() {
		t.Errorf("while a checkpoint cannot be read: %q, done: %t", c, s.isDone())
	}
	states[1].IsUnread, states[1].Position = false, 1000
	if c, ok := s.of(states); !ok || c.projection != "memories" {
		t.Errorf("then: %q, %v", c, ok)
	}
	states[2].Position = 1200
	if _, ok := s.of(states); ok || !s.isDone() {
		t.Error("shown at the goal")
	}
	states[2].Position = 900
	if _, ok := s.of(states); ok {
		t.Error("shown again after the start")
	}
}

// showsTheStart checks that a service that starts shows how far it has read the log, and not what waits meanwhile.
func (h *harness) showsTheStart() {
	h.t.Helper()
	h.health.progress.done = false
	h.health.progress.begin(1 << 40) // as if the log were longer
	h.web.admission.open.Store(false)
	runtest.Await(h.t, "the progress is shown", func() bool {
		got := h.readyz()
		return got.status == http.StatusServiceUnavailable && strings.Contains(got.body, `"catchingUp":"the projection `) &&
			strings.Contains(got.body, "of the log (position ")
	})
}
