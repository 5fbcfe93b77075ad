package pipeline

import (
	"context"
	"time"
)

// lanes bounds how many work at once; open, the bound, may change at any time.
type lanes struct {
	wide  int
	open  func() int
	taken int
	left  chan struct{} // one token for each that left and is not counted yet
}

// busyLook is the pause between two looks at open while lanes are closed.
const busyLook = 10 * time.Millisecond

// newLanes returns lanes of which at most wide are ever open.
func newLanes(wide int, open func() int) *lanes {
	return &lanes{wide: wide, open: open, left: make(chan struct{}, wide)}
}

// share returns how many of the lanes derivation has while callers are busy: a quarter, and more
// the longer the oldest item waits, up to all of them. Otherwise a client that never pauses would
// permanently outpace derivation.
func share(wide int, age time.Duration) int {
	least := max(wide/4, 1)
	return least + int(int64(wide-least)*int64(min(max(age, 0), wholeAge))/int64(wholeAge))
}

// enter waits for a lane; false means that the context ended first. It is for one goroutine.
func (l *lanes) enter(ctx context.Context) bool {
	for ctx.Err() == nil {
		open, look := l.open(), time.Duration(-1)
		if open < l.wide {
			look = busyLook
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
