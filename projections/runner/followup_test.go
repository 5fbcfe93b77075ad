package runner

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections"
)

// slicer is a tally that queues, for each number n of at least 100, n/100 slices, each of which adds one to
// the total of its stream.
type slicer struct {
	tally
	// slice, if set, is called before each slice.
	slice func(ctx context.Context, work projections.FollowUp) error
}

func (s slicer) Schema() string { return s.tally.Schema() + projections.FollowUpTable }

func (s slicer) Apply(ctx context.Context, tx pgx.Tx, page []eventstore.DecodedEvent) error {
	if err := s.tally.Apply(ctx, tx, page); err != nil {
		return err
	}
	b := &pgx.Batch{}
	for _, f := range page {
		if n := f.Event.(*added).N; n >= 100 {
			projections.QueueFollowUps(b, s.Name(), []projections.FollowUp{{
				Kind: "count", Key: keyOf(f.Stream), Project: keyOf(f.Stream), Position: f.Position,
				Data: fmt.Sprintf("%d %s", n/100, f.Stream),
			}})
		}
	}
	return tx.SendBatch(ctx, b).Close()
}

func (s slicer) Slice(ctx context.Context, tx pgx.Tx, work projections.FollowUp) (string, bool, error) {
	if s.slice != nil {
		if err := s.slice(ctx, work); err != nil {
			return "", false, err
		}
	}
	count, name, _ := strings.Cut(work.Data, " ")
	todo, err := strconv.Atoi(count)
	if err != nil {
		return "", false, err
	}
	at := 0
	if work.Cursor != "" {
		if at, err = strconv.Atoi(work.Cursor); err != nil {
			return "", false, err
		}
	}
	_, err = tx.Exec(ctx, `update totals set total = total + 1 where stream = $1`, name)
	return strconv.Itoa(at + 1), at+1 == todo, err
}

func keyOf(name string) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)) }

func waitFollowUp(t *testing.T, w *Waiter, name string) {
	t.Helper()
	runtest.Must(t, w.WaitFollowUp(limited(t), "apples", "count", keyOf(name)))
}

// Pages pass between the slices of a follow-up, and projects take turns.
func TestFollowUp_PagesAndProjectsPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, resume := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	var mu sync.Mutex
	var order []string
	p := slicer{tally: tally{family: "apple"}, slice: func(ctx context.Context, work projections.FollowUp) error {
		if held.CompareAndSwap(false, true) {
			close(first)
			select {
			case <-resume:
			case <-ctx.Done():
			}
		}
		mu.Lock()
		defer mu.Unlock()
		order = append(order, work.Data)
		return nil
	}}
	rt := w.start(t, nil, p)
	w.add(t, "apple-1", 300)
	receive(t, first, "the first slice") // the page of the next project waits for it alone
	at := w.add(t, "apple-2", 200)
	close(resume)
	mustWait(t, rt.Waiter(), at, "apples")
	waitFollowUp(t, rt.Waiter(), "apple-1")
	waitFollowUp(t, rt.Waiter(), "apple-2")
	mustWait(t, rt.Waiter(), w.add(t, "apple-3", 1), "apples")
	w.wantTotals(t, "apples", total{"apple-1", 303, 1}, total{"apple-2", 202, 1}, total{"apple-3", 1, 1})
	mu.Lock()
	defer mu.Unlock()
	if len(order) != 5 || order[3] == order[4] {
		t.Errorf("slices in the order %q, want the two projects in turn", order)
	}
}

// A follow-up that ends in the middle goes on under the next lease, and no slice is done twice.
func TestFollowUp_GoesOnAfterItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reached := make(chan struct{})
	var slices atomic.Int64
	p := slicer{tally: tally{family: "apple"}, slice: func(ctx context.Context, _ projections.FollowUp) error {
		if slices.Add(1) == 4 {
			close(reached)
			<-ctx.Done() // the transaction of this slice is lost
		}
		return nil
	}}
	rt := w.runtime(t, func(c *Config) { c.PageLimit = time.Millisecond }, p) // so that a slice ends with its lease
	stop := run(t, rt)
	w.add(t, "apple-1", 900)
	receive(t, reached, "the fourth slice")
	stop()
	if left, err := hasFollowUps(t.Context(), w.db, "apples"); err != nil || !left {
		t.Fatalf("left %t, %v", left, err)
	}
	w.wantTotals(t, "apples", total{"apple-1", 903, 1})
	next := w.start(t, nil, slicer{tally: tally{family: "apple"}})
	waitFollowUp(t, next.Waiter(), "apple-1")
	w.wantTotals(t, "apples", total{"apple-1", 909, 1})
}

// A page whose commit has no answer may have left follow-ups, so they are looked for.
func TestFollowUp_CommitWithoutAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.runtime(t, nil, slicer{tally: tally{family: "apple"}})
	r := rt.runners[0]
	l := takeLease(t, r)
	w.exec(t, `create function apples.refuse() returns trigger language plpgsql as $$begin raise 'at the commit'; end$$`)
	w.exec(t, `create constraint trigger refuse after insert on apples.totals deferrable initially deferred
		for each row execute function apples.refuse()`)
	w.add(t, "apple-1", 200)
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.catchUp(ctx, l, logEnd{}, nil) }()
	select {
	case <-l.queued:
	case err := <-done:
		t.Errorf("nobody looks for the follow-ups of the page: %v", err)
	}
	cancel()
	if err := <-done; err == nil {
		t.Fatal("the page was committed")
	}
}

// A slice of a process that lost the lease is not committed.
func TestFollowUp_EpochGuards(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.runtime(t, nil, slicer{tally: tally{family: "apple"}})
	r := rt.runners[0]
	l := takeLease(t, r)
	w.add(t, "apple-1", 200)
	runtest.Must(t, r.catchUp(t.Context(), l, logEnd{}, nil))
	w.exec(t, "update apples.checkpoint set epoch = epoch + 1")
	wantError(t, "a slice of an old epoch returned", errorOf(r.doSlice(t.Context(), l)), errStale)
	w.wantTotals(t, "apples", total{"apple-1", 200, 1})
}

// A follow-up that fails is retried, shows in the health, and holds up neither pages nor other projects.
func TestFollowUp_Failure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var fails atomic.Bool
	fails.Store(true)
	p := slicer{tally: tally{family: "apple"}, slice: func(_ context.Context, work projections.FollowUp) error {
		if fails.Load() && work.Key == keyOf("apple-1") {
			panic("of a slice")
		}
		return nil
	}}
	rt := w.start(t, nil, p)
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 100), "apples")
	eventually(t, "the failure shows", func() bool { return status(t, rt, "apples").LastErr != nil })
	mustWait(t, rt.Waiter(), w.add(t, "apple-2", 200), "apples")
	waitFollowUp(t, rt.Waiter(), "apple-2")
	fails.Store(false)
	waitFollowUp(t, rt.Waiter(), "apple-1")
	w.wantTotals(t, "apples", total{"apple-1", 101, 1}, total{"apple-2", 202, 1})
	eventually(t, "the failure is over", func() bool { return status(t, rt, "apples").LastErr == nil })
}

// A rebuild does the follow-ups in its shadow before the switch-over.
func TestFollowUp_RebuildDoesThemBeforeTheSwitch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.start(t, nil, slicer{tally: tally{family: "apple"}})
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 300, 500), "apples")
	waitFollowUp(t, rt.Waiter(), "apple-1")
	w.exec(t, "update apples.totals set total = 0")
	var last RebuildProgress
	runtest.Must(t, rt.Rebuild(t.Context(), "apples", func(p RebuildProgress) { last = p }))
	if left, err := hasFollowUps(t.Context(), w.db, "apples"); err != nil || left {
		t.Errorf("left %t, %v", left, err)
	}
	if !last.Compared {
		t.Error("the rows were not compared")
	}
	totals := w.totals(t, "apples")
	// The first follow-up may have begun before the second event began it again.
	if len(totals) != 1 || totals[0].Total < 805 || totals[0].Total > 808 {
		t.Errorf("totals %+v", totals)
	}
}
