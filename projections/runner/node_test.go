package runner

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/pg/pgtest"
)

// newNodeWorld is a world whose log is the embedded node, reached through the driver.
func newNodeWorld(t *testing.T) *fixture {
	t.Helper()
	return &fixture{
		db:    pgtest.Database(t),
		store: nodetest.Store(t, node.Config{Dir: t.TempDir()}),
		codec: codec(t),
		logID: uuid.New(),
		next:  map[string]eventstore.Revision{},
	}
}

func TestRunner_OnTheNode(t *testing.T) {
	t.Parallel()
	w := newNodeWorld(t)
	for n := range 700 { // more than a page
		w.add(t, fmt.Sprintf("apple-%d", n%3), 1)
	}
	rt := w.runtime(t, nil, tally{family: "apple"}, tally{family: "pear"})
	stop := run(t, rt)
	var writers sync.WaitGroup
	for n := range 4 {
		// Each writer has a separate map of revisions and separate streams.
		own := &fixture{store: w.store, next: map[string]eventstore.Revision{}}
		writers.Go(func() {
			for range 50 {
				own.add(t, fmt.Sprintf("pear-%d", n), 2)
			}
		})
	}
	writers.Wait()
	head, err := w.store.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustWait(t, rt.Waiter(), head, "apples", "pears") // before the events of one stream are gone
	if _, err := w.store.Tombstone(t.Context(), "apple-0", w.next["apple-0"]-1); err != nil {
		t.Fatal(err)
	}
	if head, err = w.store.Head(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustWait(t, rt.Waiter(), head, "apples", "pears")
	apples := []total{{"apple-0", 234, 234}, {"apple-1", 233, 233}, {"apple-2", 233, 233}}
	w.wantTotals(t, "apples", apples...)
	w.wantTotals(t, "pears", total{"pear-0", 100, 50}, total{"pear-1", 100, 50}, total{"pear-2", 100, 50},
		total{"pear-3", 100, 50})
	stop()

	// The next process finds the same log, and rebuilds the same rows from the remaining events.
	again := w.runtime(t, nil, tally{family: "apple", version: 2}, tally{family: "pear"})
	run(t, again)
	mustWait(t, again.Waiter(), head, "apples", "pears")
	eventually(t, "the same log is accepted", func() bool { return status(t, again, "pears").Active })
	left := w.totals(t, "apples")
	for _, row := range left {
		if row.Stream != "apple-0" && row != apples[1] && row != apples[2] {
			t.Errorf("row %+v after the rebuild", row)
		}
	}
}
