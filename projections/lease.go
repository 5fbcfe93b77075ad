package projections

import (
	"context"
	"time"
)

// LeaseTime is how long a process keeps the right to fill a projection after it last renewed it. After
// a process was killed or frozen, its projections wait that long for another one.
const LeaseTime = 4 * time.Second

type leaseKey struct{}

// WithLease returns the context of a page of an External. held returns an error if another process may
// fill the target by now.
func WithLease(ctx context.Context, held func() error) context.Context {
	return context.WithValue(ctx, leaseKey{}, held)
}

// CheckLease returns an error if the page of a context lost its lease. A target that several processes
// fill calls it before each request that changes it: a process that was frozen sends no further request
// of its page, which would be older than what others wrote since.
func CheckLease(ctx context.Context) error {
	if held, ok := ctx.Value(leaseKey{}).(func() error); ok {
		return held()
	}
	return nil
}
