package pipeline

import "time"

const (
	// clockJump is by how much the wall clock runs ahead of the timers where the machine was suspended, or its clock was set.
	clockJump = 30 * time.Second
	// sweepRest is how long after that nothing is swept: longer than any command that was under way, with its append.
	sweepRest = 2 * time.Minute
)

// sleepWatch notices that the machine was suspended: the wall clock went on, and the clock of the timers did not.
type sleepWatch struct {
	// clocks are both of them, the second since any beginning; nil is those of the machine.
	clocks func() (wall time.Time, timers time.Duration)

	begun  time.Time
	wall   time.Time
	timers time.Duration
	// until is the end of the rest, by the clock of the timers.
	until time.Duration
}

// rest looks at the clocks, and returns how long nothing is to be swept yet. The first look compares with nothing.
func (w *sleepWatch) rest() time.Duration {
	wall, timers := w.read()
	if !w.wall.IsZero() && wall.Sub(w.wall)-(timers-w.timers) > clockJump {
		w.until = timers + sweepRest
	}
	w.wall, w.timers = wall, timers
	return max(w.until-timers, 0)
}

func (w *sleepWatch) read() (wall time.Time, timers time.Duration) {
	if w.clocks != nil {
		return w.clocks()
	}
	now := time.Now()
	if w.begun.IsZero() {
		w.begun = now
	}
	return now.Round(0), now.Sub(w.begun)
}
