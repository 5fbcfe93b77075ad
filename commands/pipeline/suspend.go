package pipeline

import "time"

const (
	// clockJump is the lead of the wall clock over the timers that means that the machine was
	// suspended or its clock was set.
	clockJump = 30 * time.Second
	// sweepRest is how long nothing is swept after that: longer than any command with its append.
	sweepRest = 2 * time.Minute
)

// suspendWatch detects that the machine was suspended: the wall clock advanced and the clock of the
// timers did not.
type suspendWatch struct {
	// clocks reads both clocks, the second from an arbitrary start; nil reads those of the machine.
	clocks func() (wall time.Time, timers time.Duration)

	start  time.Time
	wall   time.Time
	timers time.Duration
	// until is the end of the rest, by the clock of the timers.
	until time.Duration
}

// rest reads the clocks and returns for how long nothing may be swept. The first call has no earlier
// reading to compare with.
func (w *suspendWatch) rest() time.Duration {
	wall, timers := w.read()
	if !w.wall.IsZero() && wall.Sub(w.wall)-(timers-w.timers) > clockJump {
		w.until = timers + sweepRest
	}
	w.wall, w.timers = wall, timers
	return max(w.until-timers, 0)
}

func (w *suspendWatch) read() (wall time.Time, timers time.Duration) {
	if w.clocks != nil {
		return w.clocks()
	}
	now := time.Now()
	if w.start.IsZero() {
		w.start = now
	}
	return now.Round(0), now.Sub(w.start)
}
