package pipeline

import (
	"testing"
	"time"

	"github.com/annals-project/annals/domain/blob"
)

// A finisher rests only after its machine was suspended, so that earlier commands are over before
// the next sweep.
func TestSuspendWatch(t *testing.T) {
	wall, timers := at, time.Duration(0)
	w := suspendWatch{clocks: func() (time.Time, time.Duration) { return wall, timers }}
	pass := func(onWall, onTimers time.Duration) time.Duration {
		wall, timers = wall.Add(onWall), timers+onTimers
		return w.rest()
	}
	for _, step := range []struct {
		name         string
		wall, timers time.Duration
		want         time.Duration
	}{
		{"the first look", 0, 0, 0},
		{"a day awake", 24 * time.Hour, 24 * time.Hour, 0},
		{"a clock that is set a little", time.Minute + clockJump, time.Minute, 0},
		{"a clock that is set back", time.Minute, time.Hour, 0},
		{"a night asleep", 8 * time.Hour, time.Second, sweepRest},
		{"awake again", time.Minute, time.Minute, sweepRest - time.Minute},
		{"asleep once more", time.Hour, 0, sweepRest},
		{"rested", sweepRest, sweepRest, 0},
		{"and on", time.Hour, time.Hour, 0},
	} {
		if got := pass(step.wall, step.timers); got != step.want {
			t.Errorf("%s: rests %v, want %v", step.name, got, step.want)
		}
	}
}

// After a suspension nothing is swept before earlier commands are over, even if an operator asks
// for it.
func TestSweep_MachineSlept(t *testing.T) {
	w := newIdleHarness(t)
	var timers time.Duration
	w.finisher.suspension.clocks = func() (time.Time, time.Duration) { return w.clock.now(), timers }
	if n := w.swept(); n != 0 { // the first reading
		t.Fatalf("%d blobs were taken of none", n)
	}
	w.dead(w.stop(1).Ingest(t.Context(), w.call, item("b", big), ""))
	w.clock.move(2 * blob.Keep)
	if n := w.swept(); n != 0 || w.blobs() != 1 {
		t.Errorf("%d blobs were taken right after the machine slept", n)
	}
	timers += sweepRest
	w.clock.move(sweepRest)
	if n := w.swept(); n != 1 || w.blobs() != 0 {
		t.Errorf("%d blobs were taken once it had rested", n)
	}
}
