package commands_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// widest counts reads of streams, and keeps the largest.
type widest struct {
	eventstore.Store
	reads, most atomic.Int64
}

func (s *widest) Read(ctx context.Context, name string, from eventstore.Revision, dir eventstore.Direction, count int) ([]eventstore.Recorded, error) {
	events, err := s.Store.Read(ctx, name, from, dir, count)
	s.reads.Add(1)
	for n := s.most.Load(); int64(len(events)) > n && !s.most.CompareAndSwap(n, int64(len(events))); n = s.most.Load() {
	}
	return events, err
}

// However often a data point was sent, its deletion reads a page of it at a time, retains a bounded part in each event, and
// goes on after a crash where it was.
func TestKeepFacts_DataPointThatWasSentManyTimes(t *testing.T) {
	const sends = 2500
	w := newWorld(t)
	in := text("a", "one")
	w.ingest(in, "")
	for range sends - 1 {
		w.ingest(in, "") // unchanged
	}
	r, err := w.DeleteDataPoints(t.Context(), w.call, []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	dataPoint := stream.DataPointID(w.call.Principal.Project.Namespace, "a")
	keep := func(on *world) error {
		return on.log.KeepFacts(t.Context(), nothingSearchable{}, r.OperationID, []uuid.UUID{dataPoint})
	}
	d := &dying{Store: w.store}
	d.left.Store(1)
	if err := keep(worldOver(t, d)); err == nil {
		t.Fatal("a crash after the first part goes unnoticed")
	}
	counted := &widest{Store: w.store}
	survivor := worldOver(t, counted)
	for range 2 { // the second finds that all is retained
		if err := keep(survivor); err != nil {
			t.Fatal(err)
		}
	}
	if n := counted.most.Load(); n > 64 {
		t.Errorf("%d events were read at once", n)
	}
	if n := counted.reads.Load(); n > sends/64+40 {
		t.Errorf("%d reads for %d sends", n, sends)
	}
	facts, err := w.log.ReadFrom(t.Context(), stream.Name(stream.Deletion, r.OperationID), 0)
	if err != nil {
		t.Fatal(err)
	}
	seen, next, complete := map[uuid.UUID]bool{}, int64(0), 0
	for _, f := range facts {
		e, is := f.Event.(*deletion.FactsKept)
		if !is {
			continue
		}
		if n := len(e.Facts); n > 1000 || f.Size() > 768<<10 {
			t.Errorf("an event retains %d facts in %d bytes", n, f.Size())
		}
		if e.From != next || e.To != next+int64(len(e.Facts)) || e.Newest != 1 || e.Standing() != 1 {
			t.Errorf("a part covers %d to %d with %d facts after %d, newest %d", e.From, e.To, len(e.Facts), next, e.Newest)
		}
		if next = e.To; e.Complete {
			complete++
		}
		for _, fact := range e.Facts {
			if want := ingestion.Unchanged; fact.Outcome != want && len(seen) > 0 || seen[fact.IngestionID] {
				t.Fatalf("fact %d is %+v", len(seen), fact)
			}
			seen[fact.IngestionID] = true
		}
	}
	if len(seen) != sends || complete != 1 {
		t.Errorf("%d facts of %d sends, complete %d times", len(seen), sends, complete)
	}
	// No send of its own can have been a batch, so none is looked up.
	counted.reads.Store(0)
	if _, ok, err := survivor.log.Erase(t.Context(), nothingSearchable{}, r.OperationID); err != nil || !ok {
		t.Fatalf("erase: %t, %v", ok, err)
	}
	if n := counted.reads.Load(); n > 40 {
		t.Errorf("%d reads to erase one data point", n)
	}
	if err := keep(survivor); err != nil {
		t.Errorf("retaining what is erased: %v", err)
	}
}
