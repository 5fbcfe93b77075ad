package commands

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// crowd is how many data points callers wait for at once when the write side is said to be busy. At fewer there is room for
	// other work beside them.
	crowd = 12
	// calm is for how long it is still busy behind the last crowd: appends that share an fsync are all answered at once, and
	// their callers come back with the next ones a moment later.
	calm = 50 * time.Millisecond
)

// Foreground tells whether callers crowd for the write side, so that work that nobody waits for can step back. The zero value is
// ready for use.
type Foreground struct {
	waiting atomic.Int64
	mu      sync.Mutex
	crowded time.Time // when the last crowd was seen
}

// enter counts so many data points whose callers wait, until leave is called.
func (f *Foreground) enter(dataPoints int) (leave func()) {
	n := int64(dataPoints)
	f.notice(f.waiting.Add(n))
	return func() { f.notice(f.waiting.Add(-n) + n) }
}

func (f *Foreground) notice(waiting int64) {
	if waiting < crowd {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crowded = time.Now()
}

// Busy reports whether there is a crowd, or was one a moment ago.
func (f *Foreground) Busy() bool {
	if f.waiting.Load() >= crowd {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.crowded) < calm
}
