package httpx

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/annals-project/annals/domain/fault"
)

const (
	// DefaultBodyBytes bounds the request bodies in flight. What is decoded from a body is never longer than it, so a
	// process holds at most about twice as much for them.
	DefaultBodyBytes = 256 << 20
	// SmallBody is the size up to which bodies wait only for one another, not for the big ones.
	SmallBody = 256 << 10
	// bodyWait is how long a request waits for its share before it is told to come again.
	bodyWait = 5 * time.Second
	// bodyGrace and bodyRate say how long a body may take to arrive: the grace, and a second for each bodyRate bytes.
	bodyGrace = 10 * time.Second
	bodyRate  = 512 << 10
)

// Bodies is the allowance of bytes that request bodies in flight share: an eighth for the small ones, the rest for the big ones,
// which of DefaultBodyBytes is two of the longest.
type Bodies struct {
	small, big  *share
	wait, grace time.Duration
	taken       atomic.Int64
}

type share struct {
	size int64
	free *semaphore.Weighted
}

func newShare(size int64) *share { return &share{size: size, free: semaphore.NewWeighted(size)} }

// InFlight is how many bytes are taken.
func (b *Bodies) InFlight() int64 { return b.taken.Load() }

// NewBodies makes an allowance of total bytes.
func NewBodies(total int64) *Bodies {
	return &Bodies{small: newShare(max(total/8, SmallBody)), big: newShare(max(total-total/8, 1)), wait: bodyWait, grace: bodyGrace}
}

// take waits for n bytes and returns what gives them back, which may be called once. A body bigger than the whole share takes all of it.
func (b *Bodies) take(ctx context.Context, n int64) (release func(), err error) {
	from := b.big
	if n <= SmallBody {
		from = b.small
	}
	n = min(n, from.size)
	if !from.free.TryAcquire(n) {
		waiting, cancel := context.WithTimeout(ctx, b.wait)
		defer cancel()
		if err := from.free.Acquire(waiting, n); err != nil {
			return nil, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "too many request bodies are in flight; send the request again")
		}
	}
	b.taken.Add(n)
	return func() { b.taken.Add(-n); from.free.Release(n) }, nil
}

// arrival is how long n bytes may take to arrive.
func (b *Bodies) arrival(n int64) time.Duration {
	return b.grace + time.Duration(n)*time.Second/bodyRate
}

// longest is how long the body of a request may take to arrive, before it is known which route it is for.
func (b *Bodies) longest(req *http.Request) time.Duration {
	switch n := req.ContentLength; {
	case n == 0:
		return 0
	case n < 0:
		return b.wait + b.arrival(SmallBody) + b.wait + b.arrival(IngestLimit)
	default:
		return b.wait + b.arrival(min(n, IngestLimit))
	}
}
