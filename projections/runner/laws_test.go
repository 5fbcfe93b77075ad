package runner

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

// Pages of any size give the same rows, and events after one that cannot be applied never show.
func TestRunner_PagesOfAnySize(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rapid.Check(t, func(rt *rapid.T) {
		facts, spoiled := drawLog(rt, w)
		cuts := rapid.SliceOfN(rapid.IntRange(1, 9), 1, 20).Draw(rt, "cuts")
		wantStop := spoiled < len(facts)
		one, oneStopped := w.rowsAfter(t, rt, facts, []int{1})
		many, manyStopped := w.rowsAfter(t, rt, facts, cuts)
		if diff := cmp.Diff(one, many); diff != "" {
			rt.Fatalf("one by one (-) and in pages (+):\n%s", diff)
		}
		if oneStopped != wantStop || manyStopped != wantStop {
			rt.Fatalf("stopped %t one by one and %t in pages, want %t", oneStopped, manyStopped, wantStop)
		}
	})
}

// drawLog draws facts of two families, at most one of which cannot be applied; spoiled is where, or
// their number.
func drawLog(rt *rapid.T, w *fixture) (facts []eventstore.DecodedEvent, spoiled int) {
	n := rapid.IntRange(1, 30).Draw(rt, "events")
	spoiled = rapid.IntRange(0, 2*n).Draw(rt, "spoiled")
	for i := range n {
		name := rapid.SampledFrom([]string{"apple-1", "apple-2", "pear-1"}).Draw(rt, "stream")
		f := eventstore.DecodedEvent{
			Recorded: eventstore.Recorded{Stream: name, Position: eventstore.Position(10 * (i + 1)), Type: "tally.added.v1"},
		}
		f.Event = &added{N: rapid.IntRange(0, 9).Draw(rt, "n")}
		if i == spoiled {
			f.Stream = "apple-1"
			f.Event = &added{N: rapid.SampledFrom([]int{refusedByApply, refusedByPanic, refusedByDatabase}).Draw(rt, "refused")}
		}
		facts = append(facts, f)
	}
	return facts, min(spoiled, n)
}

// rowsAfter applies facts to an empty projection in pages of the given sizes, the last size again
// and again.
func (w *fixture) rowsAfter(
	t *testing.T, rt *rapid.T, facts []eventstore.DecodedEvent, sizes []int,
) (rows []total, stopped bool) {
	w.exec(t, "drop schema if exists apples cascade")
	runtime := w.runtime(t, nil, tally{family: "apple"})
	r := runtime.runners[0]
	turn, err := r.takeLease(t.Context())
	if err != nil {
		rt.Fatal(err)
	}
	defer turn.end()
	after := eventstore.Position(0)
	for i := 0; len(facts) > 0; i++ {
		size := min(sizes[min(i, len(sizes)-1)], len(facts))
		page := feed.Page{After: after, Next: facts[size-1].Position, Events: facts[:size]}
		if err := r.applyPage(t.Context(), turn, page); err != nil {
			if _, ok := errors.AsType[*Stop](err); !ok {
				rt.Fatal(err)
			}
			return w.totals(t, "apples"), true
		}
		after, facts = page.Next, facts[size:]
	}
	return w.totals(t, "apples"), false
}
