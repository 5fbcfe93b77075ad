package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections"
)

// targets are the external targets of one place: the positions of the events that each holds. They
// outlive a runtime, as files do.
type targets struct {
	mu         sync.Mutex
	begun      int
	held       map[string]map[eventstore.Position]bool
	live, next string
}

// begin begins an empty target. The caller holds mu.
func (s *targets) begin() string {
	s.begun++
	name := fmt.Sprint("target-", s.begun)
	s.held[name] = map[eventstore.Position]bool{}
	return name
}

// shadows returns the targets that exist besides the one in use.
func (s *targets) shadows() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Keys(s.held)), func(name string) bool { return name == s.live })
}

// filled is a tally that fills a target too: that in use, or shadow.
type filled struct {
	tally
	in     *targets
	shadow string
}

func (p *filled) Target() string {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	return p.target()
}

func (p *filled) target() string {
	if p.shadow != "" {
		return p.shadow
	}
	return p.in.live
}

func (p *filled) Reset(context.Context) error {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	delete(p.in.held, p.in.live)
	p.in.live = p.in.begin()
	return nil
}

func (p *filled) Shadow(_ context.Context, resume string) (projections.Projector, bool, error) {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	resumed := resume != "" && resume == p.in.next
	if !resumed {
		delete(p.in.held, p.in.next)
		p.in.next = p.in.begin()
	}
	return &filled{tally: p.tally, in: p.in, shadow: p.in.next}, resumed, nil
}

func (p *filled) Promote(_ context.Context, target string) (bool, error) {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	if target != p.in.next {
		return false, nil
	}
	delete(p.in.held, p.in.live)
	p.in.live, p.in.next = target, ""
	return true, nil
}

func (p *filled) Discard(context.Context) error {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	delete(p.in.held, p.in.next)
	p.in.next = ""
	return nil
}

func (p *filled) Verify(ctx context.Context, tx pgx.Tx) error {
	var rows int
	if err := tx.QueryRow(ctx, `select coalesce(sum(events), 0) from totals`).Scan(&rows); err != nil {
		return err
	}
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	if n := len(p.in.held[p.target()]); n != rows {
		return fmt.Errorf("%w: %d events, and %d were written", projections.ErrTarget, n, rows)
	}
	return nil
}

func (*filled) Purge(context.Context) error { return nil }
func (*filled) Close() error                { return nil }

func (p *filled) Apply(ctx context.Context, tx pgx.Tx, page []eventstore.DecodedEvent) error {
	p.in.mu.Lock()
	held, exists := p.in.held[p.target()]
	for _, f := range page {
		if exists {
			held[f.Position] = true
		}
	}
	p.in.mu.Unlock()
	if !exists {
		return errors.New("the target is gone")
	}
	return p.tally.Apply(ctx, tx, page)
}

// A rebuild with an external target continues where it was interrupted, in the target that it began.
// It begins at position 0 if that is lost, or if a round of erasure dropped it. A target that does not
// hold what was written to it is not switched to, and not continued.
func TestRebuild_ExternalTarget(t *testing.T) {
	t.Parallel()
	w, in := newWorld(t), &targets{held: map[string]map[eventstore.Position]bool{}}
	start := func() (*Runtime, func()) { return startFilled(t, w, in) }
	rt, stop := start()
	const events = 6000 // more than one page of a rebuild
	for range events - 1 {
		w.add(t, "apple-1", 1)
	}
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	interrupt := func() (last RebuildProgress, shadow string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		err := rebuildOnceFree(ctx, t, rt, func(p RebuildProgress) { last = p; cancel() })
		left := in.shadows()
		if !errors.Is(err, context.Canceled) || last.Position == last.Head || len(left) != 1 {
			t.Fatalf("interrupted at %+v with %v, shadows %q", last, err, left)
		}
		return last, left[0]
	}
	rebuild := func(resumed eventstore.Position) {
		t.Helper()
		var end RebuildProgress
		runtest.Must(t, rebuildOnceFree(t.Context(), t, rt, func(p RebuildProgress) { end = p }))
		if end.Resumed != resumed || !end.Done || len(in.shadows()) != 0 {
			t.Errorf("ended with %+v, want resumed at %d; shadows %q", end, resumed, in.shadows())
		}
		w.wantTotals(t, "apples", total{"apple-1", events, events})
	}
	at, shadow := interrupt()
	stop()
	rt, _ = start() // the next process keeps what was left
	rebuild(at.Position)
	if in.live != shadow {
		t.Errorf("%s is in use, want %s", in.live, shadow)
	}

	_, _ = interrupt()
	in.mu.Lock()
	delete(in.held, in.next)
	in.next = ""
	in.mu.Unlock()
	rebuild(0)

	_, _ = interrupt()
	if err := rt.DropLeftovers(t.Context()); err != nil || len(in.shadows()) != 0 || w.schemas(t, "apples") != 1 {
		t.Errorf("after a round of erasure: %v, shadows %q, %d schemas", err, in.shadows(), w.schemas(t, "apples"))
	}

	_, shadow = interrupt()
	in.mu.Lock()
	for position := range in.held[shadow] {
		delete(in.held[shadow], position)
		break
	}
	live := in.live
	in.mu.Unlock()
	err := rebuildOnceFree(t.Context(), t, rt, nil)
	if !errors.Is(err, projections.ErrTarget) || len(in.shadows()) != 0 || w.schemas(t, "apples") != 1 || in.live != live {
		t.Errorf("with a lost event: %v, shadows %q, %d schemas", err, in.shadows(), w.schemas(t, "apples"))
	}
	rebuild(0)
}

// rebuildOnceFree rebuilds apples, once no look for leftovers keeps rebuilds out.
func rebuildOnceFree(ctx context.Context, t *testing.T, rt *Runtime, report func(RebuildProgress)) (err error) {
	t.Helper()
	eventually(t, "a rebuild may begin", func() bool {
		err = rt.Rebuild(ctx, "apples", report)
		return !errors.Is(err, ErrRebuilding)
	})
	return err
}

// startFilled starts a runtime whose projector fills the targets of a place.
func startFilled(t *testing.T, w *fixture, in *targets) (rt *Runtime, stop func()) {
	t.Helper()
	rt = w.runtime(t, nil, &filled{tally: tally{family: "apple"}, in: in})
	return rt, run(t, rt)
}

// A page notices that its lease may be over, even if nothing else of its process has run since.
func TestPage_ExternalTargetChecksLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var rt *Runtime
	seen := make(chan error, 2)
	apply := func(ctx context.Context, _ []eventstore.DecodedEvent) error {
		seen <- projections.CheckLease(ctx)
		l := rt.runners[0].current.Load()
		l.mu.Lock()
		l.renewedAt = l.renewedAt.Add(-time.Hour)
		l.mu.Unlock()
		seen <- projections.CheckLease(ctx)
		return nil
	}
	rt = w.runtime(t, func(c *Config) { c.Lease = time.Minute }, external{tally: tally{family: "apple", apply: apply}, target: "index"})
	at := w.add(t, "apple-1", 1)
	stop := run(t, rt)
	if err := <-seen; err != nil {
		t.Errorf("with the lease: %v", err)
	}
	wantError(t, "an hour after its last renewal", <-seen, errStale)
	mustWait(t, rt.Waiter(), at, "apples")
	stop()
}
