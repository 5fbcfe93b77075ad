package commands_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// widest records the largest read of a stream.
type widest struct {
	eventstore.Store
	reads, most atomic.Int64
}

func (s *widest) Read(
	ctx context.Context, name string, from eventstore.Revision, dir eventstore.Direction, count int,
) ([]eventstore.Recorded, error) {
	events, err := s.Store.Read(ctx, name, from, dir, count)
	s.reads.Add(1)
	for n := s.most.Load(); int64(len(events)) > n && !s.most.CompareAndSwap(n, int64(len(events))); n = s.most.Load() {
	}
	return events, err
}

// A data point was sent many times. Its deletion reads one page at a time, retains a bounded part
// in each event, and continues after a crash where it stopped.
func TestRetainFacts_DataPointSentManyTimes(t *testing.T) {
	const sends = 2500
	w := newRegistered(t)
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
	keep := func(on *fixture) error {
		return on.eraser().RetainFacts(t.Context(), r.OperationID, []uuid.UUID{dataPoint})
	}
	d := &dying{Store: w.store}
	d.left.Store(1)
	if err := keep(fixtureOver(t, d)); err == nil {
		t.Fatal("a crash after the first part goes unnoticed")
	}
	counted := &widest{Store: w.store}
	survivor := fixtureOver(t, counted)
	for range 2 { // the second run finds everything retained
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
		if e.From != next || e.To != next+int64(len(e.Records)) || e.Newest != 1 {
			t.Errorf("a part covers %d to %d with %d facts after %d, newest %d", e.From, e.To, len(e.Facts), next, e.Newest)
		}
		deletions := 0 // they have a record and no fact
		if next = e.To; e.Complete {
			complete++
			deletions++
		}
		if len(e.Records) != len(e.Facts)+deletions {
			t.Errorf("a part has %d facts and %d records, complete %t", len(e.Facts), len(e.Records), e.Complete)
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
	// A send of one item was not a batch, so the deletion reads no stream of a send.
	counted.reads.Store(0)
	if _, ok, err := survivor.eraser().Tombstone(t.Context(), r.OperationID); err != nil || !ok {
		t.Fatalf("erase: %t, %v", ok, err)
	}
	if n := counted.reads.Load(); n > 40 {
		t.Errorf("%d reads to erase one data point", n)
	}
	if err := keep(survivor); err != nil {
		t.Errorf("retaining what is erased: %v", err)
	}
}

// The memories of a data point with very many are counted a part at a time: each event reads and counts a
// bounded part, and a call after a crash goes on after the stored parts.
func TestRetainFacts_ManyMemories(t *testing.T) {
	const attempts, derived, each = 4500, 30, 1000
	w := newRegistered(t)
	w.ingest(text("a", "one"), "")
	dataPoint := stream.DataPointID(w.call.Principal.Project.Namespace, "a")
	var events []event.Event
	for range attempts {
		events = append(events, &memory.DerivationStarted{ProjectID: w.call.Principal.Project.ID, Revision: 1})
	}
	for n := range derived {
		events = append(events, &memory.Derived{
			ProjectID: w.call.Principal.Project.ID, Revision: n + 1, Memories: make([]memory.Memory, each),
		})
	}
	at := eventstore.NoStream
	name := stream.Name(stream.Memory, dataPoint)
	for part := range slices.Chunk(events, 5) {
		done, err := w.log.Append(t.Context(), name, at, event.NewMeta("test", time.Now()), part...)
		if err != nil {
			t.Fatal(err)
		}
		at = done.Revision
	}
	r, err := w.DeleteDataPoints(t.Context(), w.call, []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	keep := func(on *fixture) error {
		return on.eraser().RetainFacts(t.Context(), r.OperationID, []uuid.UUID{dataPoint})
	}
	d := &dying{Store: w.store}
	d.left.Store(2)
	if err := keep(fixtureOver(t, d)); err == nil {
		t.Fatal("a crash after two parts goes unnoticed")
	}
	if err := keep(fixtureOver(t, w.store)); err != nil {
		t.Fatal(err)
	}
	facts, err := w.log.ReadFrom(t.Context(), stream.Name(stream.Deletion, r.OperationID), 0)
	if err != nil {
		t.Fatal(err)
	}
	parts, next, counted := 0, int64(0), map[int]int{}
	for n, f := range facts {
		e := f.Event.(*deletion.FactsKept)
		read := e.MemoriesTo - next
		if read <= 0 || read > 1000 || int64(len(e.MemoryRecords)) != read || e.Complete != (n == len(facts)-1) {
			t.Errorf("part %d counts up to %d after %d, complete %t", n, e.MemoriesTo, next, e.Complete)
		}
		parts, next = parts+1, e.MemoriesTo
		sum := 0
		for _, m := range e.Memories {
			counted[m.Revision] += m.Count
			sum += m.Count
		}
		if sum > 10_000 {
			t.Errorf("part %d counts %d memories", n, sum)
		}
	}
	if parts < 5 || len(counted) != derived || next != attempts+derived {
		t.Errorf("%d parts count %d revisions up to %d", parts, len(counted), next)
	}
	for revision, count := range counted {
		if count != each {
			t.Errorf("revision %d has %d memories", revision, count)
		}
	}
}
