package node

import "time"

// The bounds of the wait for company: see gathering.
const (
	longestWait = time.Millisecond
	// smoothing is the share of the newest group in what is expected of the next.
	smoothing = 0.25
	// company is from how many requests at a time on a commit waits for more.
	company = 2
)

// gathering decides how long a commit waits for more requests. An fsync costs the processors about as much as an append, so where several
// callers append at a time it pays to wait for those who are on their way; a caller who is alone never waits.
type gathering struct {
	// around is how many requests there were lately at a time: in a group, and behind it when it was done.
	around float64
	// fsync is how long the last commit took.
	fsync time.Duration
	timer *time.Timer
}

// wait is how long a group of that size waits for the next request.
func (g *gathering) wait(size int, since time.Duration) time.Duration {
	if g.around < company || float64(size) >= g.around {
		return 0
	}
	return min(g.fsync, longestWait) - since
}

// done takes note of a group that was written, and of how many requests have come meanwhile.
func (g *gathering) done(size, behind int, took time.Duration) {
	g.around += smoothing * (float64(size+behind) - g.around)
	g.fsync = took
}

// next is the next request of the group that began at a time; nil says that the group is whole.
func (w *writer) next(begun time.Time) *request {
	select {
	case r := <-w.requests:
		return r
	default:
	}
	d := w.gathering.wait(len(w.answers), time.Since(begun))
	if d <= 0 {
		return nil
	}
	if w.gathering.timer == nil {
		w.gathering.timer = time.NewTimer(d)
	} else {
		w.gathering.timer.Reset(d)
	}
	defer w.gathering.timer.Stop()
	select {
	case r := <-w.requests:
		return r
	case <-w.gathering.timer.C:
		return nil
	case <-w.stop:
		return nil
	}
}
