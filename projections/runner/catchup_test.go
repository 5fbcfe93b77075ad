package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
)

// countingStore counts and may fail reads of the log.
type countingStore struct {
	eventstore.Store
	reads atomic.Int64
	// each, if set, is called before each read.
	each func(ctx context.Context) error
}

func (s *countingStore) ReadAll(
	ctx context.Context, after eventstore.Position, limit int,
) ([]eventstore.Recorded, error) {
	s.reads.Add(1)
	if s.each != nil {
		if err := s.each(ctx); err != nil {
			return nil, err
		}
	}
	return s.Store.ReadAll(ctx, after, limit)
}

// fill appends numbers, as many as so many reads of the log return, by turns to both streams.
func (w *fixture) fill(t testing.TB, reads int) eventstore.Position {
	t.Helper()
	var last eventstore.Position
	for i := range reads * readEvents {
		last = w.add(t, []string{"apple-1", "pear-1"}[i%2], 1)
	}
	return last
}

func TestRebuildAll_ReadsTheLogOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const reads = 3
	w.fill(t, reads)
	store := &countingStore{Store: w.store}
	w.store = store
	rt := w.runtime(t, nil, quick{tally{family: "apple"}}, quick{tally{family: "pear"}}, quick{tally{family: "plum"}})
	runtest.Must(t, rt.RebuildAll(t.Context(), rt.Names(), RebuildOptions{}, nil))
	for _, name := range []string{"apple", "pear"} {
		got := w.totals(t, name+"s")
		if len(got) != 1 || got[0].Stream != name+"-1" || got[0].Total != reads*readEvents/2 {
			t.Errorf("%ss are %v", name, got)
		}
	}
	if got := w.totals(t, "plums"); len(got) != 0 {
		t.Errorf("plums are %v", got)
	}
	// Each projection may find the end of the log for itself: the end is not held.
	if n := store.reads.Load(); n < reads+1 || n > reads+3 {
		t.Errorf("%d reads of the log, want %d and up to 3 of its end", n, reads)
	}
}

// A projection that cannot be rebuilt does not end the rebuild of the others.
func TestRebuildAll_OneFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(t, "apple-1", 1, refusedByApply)
	w.add(t, "pear-1", 1, 2)
	rt := w.runtime(t, nil, tally{family: "apple"}, tally{family: "pear"})
	err := rt.RebuildAll(t.Context(), append(rt.Names(), "plums"), RebuildOptions{}, nil)
	if stop, ok := errors.AsType[*Stop](err); !ok || stop.Stream != "apple-1" || !errors.Is(err, ErrUnknownProjection) {
		t.Errorf("rebuild ended with %v", err)
	}
	w.wantTotals(t, "pears", total{"pear-1", 3, 2})
}

// readTo reads for a projection until the position is reached.
func readTo(
	ctx context.Context, s *sharedReads, name string, after, to eventstore.Position,
) (eventstore.Position, error) {
	for after < to {
		facts, err := s.next(ctx, name, after)
		if err != nil || len(facts) == 0 {
			return after, fmt.Errorf("%d events after %d: %w", len(facts), after, err)
		}
		after = facts[len(facts)-1].Position
	}
	return after, nil
}

// A projection waits for one that still needs the oldest read, and no longer than its patience.
func TestSharedReads_SlowerProjection(t *testing.T) {
	t.Parallel()
	w := worldOver(t, nil, eventstoretest.NewMemory())
	end := w.fill(t, sharedReadsHeld+2)
	for name, wake := range map[string]func(s *sharedReads){
		"moves":  func(s *sharedReads) { _, _ = readTo(t.Context(), s, "slow", 0, end/(sharedReadsHeld+2)*2) },
		"leaves": func(s *sharedReads) { s.leave("slow") },
		"stays":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &countingStore{Store: w.store}
			s := newSharedReads(store, w.codec, []string{"quick", "slow"})
			if s.timeout = time.Hour; wake == nil {
				s.timeout = time.Millisecond
			}
			done := make(chan error, 1)
			go func() {
				_, err := readTo(limited(t), s, "quick", 0, end)
				done <- err
			}()
			if wake != nil {
				eventually(t, "as much is read as is held", func() bool { return store.reads.Load() == sharedReadsHeld })
				select {
				case err := <-done:
					t.Errorf("did not wait: %v", err)
				default:
				}
				wake(s)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if len(s.held) > sharedReadsHeld {
				t.Errorf("%d reads are held", len(s.held))
			}
			// The slower one still reads all.
			if at, err := readTo(t.Context(), s, "slow", 0, end); err != nil || at != end {
				t.Errorf("slow reads to %d of %d: %v", at, end, err)
			}
		})
	}
}

// A read that ended with the projection that began it is repeated by those that wait for it.
func TestSharedReads_FailedRead(t *testing.T) {
	t.Parallel()
	w := worldOver(t, nil, eventstoretest.NewMemory())
	end := w.fill(t, 1)
	began := make(chan struct{})
	var once sync.Once
	store := &countingStore{Store: w.store, each: func(ctx context.Context) error {
		first := false
		once.Do(func() { first = true })
		if first {
			close(began)
			<-ctx.Done()
		}
		return ctx.Err()
	}}
	s := newSharedReads(store, w.codec, []string{"first", "second"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := readTo(ctx, s, "first", 0, end)
		first <- err
	}()
	receive(t, began, "the first call")
	go func() {
		at, err := readTo(limited(t), s, "second", 0, end)
		if at != end {
			err = errors.Join(err, errors.New("second did not reach the end"))
		}
		second <- err
	}()
	cancel()
	wantError(t, "first ended with", <-first, context.Canceled)
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// Measures the runtime itself: events of no projector, and events of one projector of two.
func BenchmarkCatchUp(b *testing.B) {
	for _, family := range []string{"plum", "apple"} {
		b.Run(family, func(b *testing.B) {
			w := newWorld(b)
			var last eventstore.Position
			data, err := json.Marshal(added{N: 1})
			runtest.Must(b, err)
			meta, err := json.Marshal(event.Meta{Schema: event.FirstStep})
			runtest.Must(b, err)
			for n := 0; n < b.N; n += 100 {
				events := make([]eventstore.Proposed, 100)
				for i := range events {
					events[i] = eventstore.Proposed{ID: uuid.New(), Type: added{}.EventType(), Data: data, Meta: meta}
				}
				done, err := w.store.Append(b.Context(), fmt.Sprintf("%s-%d", family, n), eventstore.NoStream, events)
				runtest.Must(b, err)
				last = done.Position
			}
			rt := w.runtime(b, nil, quick{tally{family: "apple"}}, quick{tally{family: "pear"}})
			b.ResetTimer()
			stop := run(b, rt)
			mustWait(b, rt.Waiter(), last, "apples", "pears")
			b.StopTimer()
			stop()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
