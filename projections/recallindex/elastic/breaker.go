package elastic

import (
	"sync"
	"time"
)

// breakerLimit is how many requests in a row must fail before more are refused, breakerPause for how
// long. Then one request tries the server.
const (
	breakerLimit = 5
	breakerPause = time.Second
)

// breaker refuses requests for a moment after several in a row failed, so that callers of a dead
// server fail fast instead of waiting for their time-outs.
type breaker struct {
	mu       sync.Mutex
	failures int
	// until is when the next request may try the server; trying is true while one does.
	until  time.Time
	trying bool
}

// allow reports whether a request may be sent. The caller must call one of the other methods then.
func (b *breaker) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < breakerLimit {
		return true
	}
	if b.trying || now.Before(b.until) {
		return false
	}
	b.trying = true
	return true
}

// isOpen reports whether requests are refused.
func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures >= breakerLimit
}

func (b *breaker) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.trying = 0, false
}

func (b *breaker) failed(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.trying, b.until = b.failures+1, false, now.Add(breakerPause)
}

// abandoned ends a request whose caller gave up: it proves nothing about the server.
func (b *breaker) abandoned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying = false
}
