package runner

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/eventstore"
)

// panicStore panics in its next calls of Head and ReadAll, as often as its counters are set to.
type panicStore struct {
	eventstore.Store
	head, readAll atomic.Int64 // panics left
}

func (s *panicStore) Head(ctx context.Context) (eventstore.Position, error) {
	if s.head.Add(-1) >= 0 {
		panic("head")
	}
	return s.Store.Head(ctx)
}

func (s *panicStore) ReadAll(ctx context.Context, after eventstore.Position, limit int) ([]eventstore.Recorded, error) {
	if s.readAll.Add(-1) >= 0 {
		panic("read all")
	}
	return s.Store.ReadAll(ctx, after, limit)
}

func TestRuntime_PanicOfTheStoreIsSurvived(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	store := &panicStore{Store: w.store}
	w.store = store
	sum := int64(0)
	for range 3 {
		last := w.add(t, "apple-1", ones(700)...) // read by the runner itself
		sum += 700
		store.head.Store(2)
		store.readAll.Store(3)
		rt := w.runtime(t, nil, tally{family: "apple"})
		stop := run(t, rt)
		mustWait(t, rt.Waiter(), last, "apples")
		mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
		sum++
		w.wantTotals(t, "apples", total{"apple-1", sum, sum})
		stop()
	}
}

// cursed panics when it is decoded.
type cursed struct{}

func (cursed) EventType() string           { return "tally.cursed.v1" }
func (*cursed) UnmarshalJSON([]byte) error { panic("cursed") }

func TestRunner_PanicOfADecoderStopsAtTheEvent(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"from the feed": 1, "far behind": 3000} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var err error
			if w.codec, err = eventstore.NewCodec([]domain.Constructor{
				func() event.Event { return new(added) },
				func() event.Event { return new(cursed) },
				func() event.Event { return new(registry.EventSetAside) },
			}); err != nil {
				t.Fatal(err)
			}
			last := w.add(t, "apple-1", ones(before)...)
			bad := w.append(t, "apple-1", "tally.cursed.v1", json.RawMessage(`{}`))
			rt := w.runtime(t, nil, tally{family: "apple"})
			run(t, rt)
			mustWait(t, rt.Waiter(), last, "apples")
			eventually(t, "it stops", func() bool { return status(t, rt, "apples").Stop != nil })
			stop, is := errors.AsType[*Stop](rt.Waiter().Stopped(t.Context(), "apples"))
			if !is || stop.Position != bad || !strings.Contains(stop.Error(), "panic: a value of type string") {
				t.Errorf("it stopped with %v, want the panic at %d", stop, bad)
			}
		})
	}
}
