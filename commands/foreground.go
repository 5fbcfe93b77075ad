package commands

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// busyAt is how many data points callers wait for when the write side counts as busy.
	busyAt = 12
	// cooldown is how long the write side stays busy after the last time. Appends that share an fsync
	// are answered at once, and their callers send the next ones a moment later.
	cooldown = 50 * time.Millisecond
)

// LoadGauge measures whether many callers wait for the write side, so that background work can slow
// down. The zero value is ready for use.
type LoadGauge struct {
	waiting  atomic.Int64
	mu       sync.Mutex
	lastBusy time.Time
}

// enter adds data points whose callers wait, until leave is called.
func (f *LoadGauge) enter(dataPoints int) (leave func()) {
	n := int64(dataPoints)
	f.record(f.waiting.Add(n))
	return func() { f.record(f.waiting.Add(-n) + n) }
}

func (f *LoadGauge) record(waiting int64) {
	if waiting < busyAt {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastBusy = time.Now()
}

// Busy reports whether the write side is busy, or was within the cooldown.
func (f *LoadGauge) Busy() bool {
	if f.waiting.Load() >= busyAt {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.lastBusy) < cooldown
}
