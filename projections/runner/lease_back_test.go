package runner

import (
	"context"
	"testing"
	"time"

	"github.com/annals-project/annals/eventstore"
)

// stoppingStore ends the process while it reads the head of the log.
type stoppingStore struct {
	eventstore.Store
	stop context.CancelFunc
}

func (s *stoppingStore) Head(ctx context.Context) (eventstore.Position, error) {
	s.stop()
	<-ctx.Done()
	return 0, context.Cause(ctx)
}

// A process that ends between taking a lease and using it gives it back: nobody waits for the end of the lease.
func TestRunner_LeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	last := w.add(t, "apple-1", 1, 2)
	stop := run(t, w.runtime(t, nil, tally{family: "apple"}))
	long := func(cfg *Config) { cfg.Lease = time.Hour }
	rt := w.runtime(t, long, tally{family: "apple"})
	mustWait(t, rt.Waiter(), last, "apples")
	stop()

	ctx, cancel := context.WithCancel(t.Context())
	ending := w.runtime(t, func(cfg *Config) {
		cfg.Lease, cfg.Store = time.Hour, &stoppingStore{w.store, cancel}
	}, tally{family: "apple"})
	r := ending.runners[0]
	if l, err := r.takeLease(ctx); err == nil {
		t.Fatalf("a lease without a head of the log: %+v", l)
	}
	row, err := r.table.read(t.Context())
	if err != nil || row.holder != "" {
		t.Errorf("the lease is held by %q: %v", row.holder, err)
	}
	next, err := rt.runners[0].takeLease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next.end()
	// What a process gives back by its name is its own lease only.
	holder := rt.runners[0].holder
	for _, c := range []struct{ by, want string }{{r.holder, holder}, {holder, ""}} {
		if err := r.table.releaseOf(t.Context(), c.by); err != nil {
			t.Fatal(err)
		}
		if row, err := r.table.read(t.Context()); err != nil || row.holder != c.want {
			t.Errorf("after %s has given its lease back, it is held by %q: %v", c.by, row.holder, err)
		}
	}
}
