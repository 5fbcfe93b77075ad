package httpx

import (
	"context"
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
)

// Bodies is the allowance of bytes that request bodies in flight share: a quarter for the small ones, the rest for the big ones.
type Bodies struct {
	small, big *share
	wait       time.Duration
}

type share struct {
	size int64
	free *semaphore.Weighted
}

// NewBodies makes an allowance of total bytes.
func NewBodies(total int64) *Bodies {
	make := func(size int64) *share { return &share{size: size, free: semaphore.NewWeighted(size)} }
	return &Bodies{small: make(max(total/4, SmallBody)), big: make(max(total-total/4, 1)), wait: bodyWait}
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
	return func() { from.free.Release(n) }, nil
}
