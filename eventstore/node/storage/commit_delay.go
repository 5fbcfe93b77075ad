package storage

import (
	"time"
)

// The bounds of commitDelay.
const (
	maxCommitDelay = time.Millisecond
	// smoothing is the weight of the newest group in the expected size of the next.
	smoothing = 0.25
	// minGroup is the expected number of concurrent requests from which on a commit waits for more.
	minGroup = 2
)

// commitDelay decides how long a commit waits for more requests. An fsync costs the processors
// about as much as an append, so with several concurrent callers it pays to wait for those on their
// way. A single caller never waits.
type commitDelay struct {
	// concurrency is the smoothed number of concurrent requests: those of a group, and those queued
	// when it was committed.
	concurrency float64
	// fsync is how long the last commit took.
	fsync time.Duration
	timer *time.Timer
}

// wait returns how much longer a group of a size waits for the next request.
func (g *commitDelay) wait(size int, since time.Duration) time.Duration {
	if g.concurrency < minGroup || float64(size) >= g.concurrency {
		return 0
	}
	return min(g.fsync, maxCommitDelay) - since
}

// record updates the expectation after a commit of size requests, while queued more have arrived.
func (g *commitDelay) record(size, queued int, took time.Duration) {
	g.concurrency += smoothing * (float64(size+queued) - g.concurrency)
	g.fsync = took
}

// next returns the next request of the group that began at a time, nil if the group is complete.
func (w *writer) next(began time.Time) *Request {
	select {
	case r := <-w.requests:
		return r
	default:
	}
	d := w.delay.wait(len(w.answers), time.Since(began))
	if d <= 0 {
		return nil
	}
	if w.delay.timer == nil {
		w.delay.timer = time.NewTimer(d)
	} else {
		w.delay.timer.Reset(d)
	}
	defer w.delay.timer.Stop()
	select {
	case r := <-w.requests:
		return r
	case <-w.delay.timer.C:
		return nil
	case <-w.stop:
		return nil
	}
}
