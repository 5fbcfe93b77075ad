package commands_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
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
	runtest.Must(t, err)
	dataPoint := stream.DataPointID(w.call.Principal.Project.Namespace, "a")
	keep := func(on *fixture) error {
		return on.eraser().RetainFacts(t.Context(), r.OperationID, []uuid.UUID{dataPoint})
	}
	if err := keep(w.dying(t, 1)); err == nil {
		t.Fatal("a crash after the first part goes unnoticed")
	}
	counted := &widest{Store: w.store}
	survivor := fixtureOver(t, counted)
	for range 2 { // the second run finds everything retained
		runtest.Must(t, keep(survivor))
	}
	if n := counted.most.Load(); n > 64 {
		t.Errorf("%d events were read at once", n)
	}
	if n := counted.reads.Load(); n > sends/64+40 {
		t.Errorf("%d reads for %d sends", n, sends)
	}
	facts := w.read(stream.Name(stream.Deletion, r.OperationID))
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
		runtest.Must(t, err)
		at = done.Revision
	}
	r, err := w.DeleteDataPoints(t.Context(), w.call, []string{"a"})
	runtest.Must(t, err)
	keep := func(on *fixture) error {
		return on.eraser().RetainFacts(t.Context(), r.OperationID, []uuid.UUID{dataPoint})
	}
	if err := keep(w.dying(t, 2)); err == nil {
		t.Fatal("a crash after two parts goes unnoticed")
	}
	runtest.Must(t, keep(fixtureOver(t, w.store)))
	facts := w.read(stream.Name(stream.Deletion, r.OperationID))
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

// The retained facts of an erased data point name the author of each item by the id of the
// directory record, never by name.
func TestRetainFacts_AuthorsByRecordID(t *testing.T) {
	stored := uuid.New()
	w := newFixture(t)
	w.log.Namespaces = stream.NewNamespaces(make([]byte, 32))
	namespace, err := w.log.Namespaces.Of(stored)
	runtest.Must(t, err)
	w.call.Principal.Project.Namespace = namespace
	project := w.call.Principal.Project
	created := registry.ProjectCreated{
		ProjectID: project.ID,
		Number:    project.Number,
		Slug:      "default",
		Name:      "Default",
		Namespace: stored,
	}
	meta := event.NewMeta("test", time.Now())
	runtest.Must(t, errorOf(w.log.Append(t.Context(), stream.Registry, eventstore.NoStream, meta, created)))
	by := func(content, author string) ingest.DataPoint {
		in := text("a", content)
		in.Identity = &author
		return in
	}
	w.ingest(by("one", "ana"), "")
	w.ingest(text("a", "two"), "")
	w.ingest(by("two", "ben"), "") // unchanged
	r, err := w.DeleteDataPoints(t.Context(), w.call, []string{"a"})
	runtest.Must(t, err)
	deleted := []uuid.UUID{stream.DataPointID(project.Namespace, "a")}
	runtest.Must(t, w.eraser().RetainFacts(t.Context(), r.OperationID, deleted))
	facts := w.read(stream.Name(stream.Deletion, r.OperationID))
	var authors []uuid.UUID
	for _, f := range facts {
		if e, ok := f.Event.(*deletion.FactsKept); ok {
			for _, fact := range e.Facts {
				authors = append(authors, fact.AuthorID)
			}
		}
	}
	want := []uuid.UUID{stream.IdentityID(project.Namespace, "ana"), uuid.Nil, stream.IdentityID(project.Namespace, "ben")}
	if diff := cmp.Diff(want, authors); diff != "" {
		t.Errorf("authors (-want +got):\n%s", diff)
	}
}

// calls counts the appends to streams and the reads of streams, by stream category.
type calls struct {
	eventstore.Store
	mu    sync.Mutex
	count map[string]int
}

func (c *calls) add(kind, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[kind+" "+stream.Category(name)]++
}

func (c *calls) Append(
	ctx context.Context, name string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	c.add("append", name)
	return c.Store.Append(ctx, name, expected, events)
}

func (c *calls) Read(
	ctx context.Context, name string, from eventstore.Revision, direction eventstore.Direction, limit int,
) ([]eventstore.Recorded, error) {
	c.add("read", name)
	return c.Store.Read(ctx, name, from, direction, limit)
}

func (c *calls) ReadLast(ctx context.Context, name string) (eventstore.Recorded, bool, error) {
	c.add("read", name)
	return c.Store.ReadLast(ctx, name)
}

// counted returns another process on the log, and the calls that it makes.
func (w *fixture) counted(change func(*commands.Config)) (*fixture, *calls) {
	w.t.Helper()
	c := &calls{Store: w.store, count: map[string]int{}}
	other := fixtureOver(w.t, c)
	other.configure(change)
	return other, c
}

// currentRecords is an identities.Records that is never late.
type currentRecords struct{ *fixture }

func (r currentRecords) Known(
	ctx context.Context, _ auth.Project, ids []uuid.UUID,
) (map[uuid.UUID]struct{}, error) {
	known := make(map[uuid.UUID]struct{})
	for _, id := range ids {
		events, err := r.log.ReadFrom(ctx, stream.Name(stream.Identity, id), 0)
		if err != nil {
			return nil, err
		}
		var record *identity.Record
		for _, e := range events {
			record = identity.Evolve(record, e.Event)
		}
		if record != nil {
			known[id] = struct{}{}
		}
	}
	return known, nil
}

// stoppedRecords is an identities.Records whose projection has stopped.
type stoppedRecords struct{}

func (stoppedRecords) Known(context.Context, auth.Project, []uuid.UUID) (map[uuid.UUID]struct{}, error) {
	return nil, errors.New("the directory is unavailable")
}

// A process that shares the log reads no stream for an author whose record the directory has. It reads the
// record if the directory is late, stopped or not there, and then makes no second one.
func TestIngest_AuthorsInTheDirectory(t *testing.T) {
	read := map[string]int{"append datapoint": 1, "read datapoint": 1, "read identity": 1}
	for name, tt := range map[string]struct {
		records func(*fixture) identities.Records
		want    map[string]int
	}{
		"known": {
			func(w *fixture) identities.Records { return currentRecords{w} }, map[string]int{"append datapoint": 1},
		},
		"late":    {func(*fixture) identities.Records { return &records{} }, read},
		"stopped": {func(*fixture) identities.Records { return stoppedRecords{} }, read},
		"none":    {func(*fixture) identities.Records { return nil }, read},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.putIdentity(w.call, "ana", nil)
			other, made := w.counted(func(c *commands.Config) { c.Records = tt.records(w) })
			other.ingest(text("a", "one", by("ana")), "")
			if diff := cmp.Diff(tt.want, made.count); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			wantTypes(t, w.identityTypes("ana"), "identity.traits-replaced.v1")
		})
	}
}

// The items of a batch are checked for authors in one query.
func TestIngestBatch_AuthorsInTheDirectory(t *testing.T) {
	w := newFixture(t)
	w.putIdentity(w.call, "ana", nil)
	w.putIdentity(w.call, "ben", nil)
	known := &records{names: []string{"ana", "ben"}}
	other, made := w.counted(func(c *commands.Config) { c.Records = known })
	items := []ingest.DataPoint{
		text("a", "one", by("ana")), text("b", "two", by("ben")), text("c", "three", by("ana")), text("d", "four", by("eve")),
		text("e", "five"),
	}
	runtest.Must(t, errorOf(other.IngestBatch(t.Context(), w.call, items, "")))
	if known.asked != 3 || made.count["read identity"] != 1 || made.count["append identity"] != 1 {
		t.Errorf("the directory was asked for %d records, calls %v", known.asked, made.count)
	}
	wantTypes(t, w.identityTypes("eve"), "identity.appeared.v1")
	wantTypes(t, w.identityTypes("ana"), "identity.traits-replaced.v1")
}
