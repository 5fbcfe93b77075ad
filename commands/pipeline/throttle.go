package pipeline

import (
	"context"
	"time"
)

// busyPoll is how often a throttle below its full width reads its limit.
const busyPoll = 10 * time.Millisecond

// throttle bounds how many items are worked on at once. The bound may change at any time.
type throttle struct {
	width    int
	limit    func() int
	held     int
	released chan struct{} // one token for each release that is not counted yet
}

// newThrottle returns a throttle whose limit never exceeds width.
func newThrottle(width int, limit func() int) *throttle {
	return &throttle{width: width, limit: limit, released: make(chan struct{}, width)}
}

// busyWidth returns the part of a width that derivation uses while callers are busy: a quarter, and
// more the longer the oldest item waits, up to all of it. Otherwise a client that never pauses would
// permanently outpace derivation.
func busyWidth(width int, age time.Duration) int {
	least := max(width/4, 1)
	return least + int(int64(width-least)*int64(min(max(age, 0), fullWidthAge))/int64(fullWidthAge))
}

// acquire waits for a slot. It returns false if the context ends first. Only one goroutine may call
// it.
func (t *throttle) acquire(ctx context.Context) bool {
	for ctx.Err() == nil {
		limit, poll := t.limit(), time.Duration(-1)
		if limit < t.width {
			poll = busyPoll
		}
		t.count()
		if t.held < limit {
			t.held++
			return true
		}
		t.wait(ctx, poll)
	}
	return false
}

// release returns a slot. Any goroutine may call it.
func (t *throttle) release() { t.released <- struct{}{} }

// count counts the releases so far.
func (t *throttle) count() {
	for {
		select {
		case <-t.released:
			t.held--
		default:
			return
		}
	}
}

// wait waits for a release, at most for poll unless that is negative.
func (t *throttle) wait(ctx context.Context, poll time.Duration) {
	var timeout <-chan time.Time
	if poll >= 0 {
		timer := time.NewTimer(poll)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-t.released:
		t.held--
	case <-timeout:
	case <-ctx.Done():
	}
}
