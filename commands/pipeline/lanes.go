package pipeline

import (
	"context"
	"time"
)

// lanes lets so many work at once: wide many, and narrow many while it is busy elsewhere.
type lanes struct {
	wide, narrow int
	busy         func() bool
	taken        int
	left         chan struct{} // holds a token for each that left and was not counted yet
}

// busyLook is how often it is looked whether it is busy still.
const busyLook = 10 * time.Millisecond

func newLanes(wide, narrow int, busy func() bool) *lanes {
	return &lanes{wide: wide, narrow: narrow, busy: busy, left: make(chan struct{}, wide)}
}

// enter waits for a lane; false means that the context ended first. It is for one goroutine.
func (l *lanes) enter(ctx context.Context) bool {
	for ctx.Err() == nil {
		open, look := l.wide, time.Duration(-1)
		if l.busy() {
			open, look = l.narrow, busyLook
		}
		l.count()
		if l.taken < open {
			l.taken++
			return true
		}
		l.wait(ctx, look)
	}
	return false
}

// leave gives the lane back. Any goroutine may call it.
func (l *lanes) leave() { l.left <- struct{}{} }

// count takes note of all that left.
func (l *lanes) count() {
	for {
		select {
		case <-l.left:
			l.taken--
		default:
			return
		}
	}
}

// wait waits until one leaves, and where look is not negative no longer than that.
func (l *lanes) wait(ctx context.Context, look time.Duration) {
	var again <-chan time.Time
	if look >= 0 {
		timer := time.NewTimer(look)
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-l.left:
		l.taken--
	case <-again:
	case <-ctx.Done():
	}
}
