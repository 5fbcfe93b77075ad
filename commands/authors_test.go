package commands_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
)

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

// currentRecords is a commands.Records that is never late.
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

// stoppedRecords is a commands.Records whose projection has stopped.
type stoppedRecords struct{}

func (stoppedRecords) Known(context.Context, auth.Project, []uuid.UUID) (map[uuid.UUID]struct{}, error) {
	return nil, errors.New("the directory is unavailable")
}

// A process that shares the log reads no stream for an author whose record the directory has. It reads the
// record if the directory is late, stopped or not there, and then makes no second one.
func TestIngest_AuthorsInTheDirectory(t *testing.T) {
	read := map[string]int{"append datapoint": 1, "read datapoint": 1, "read identity": 1}
	for name, tt := range map[string]struct {
		records func(*fixture) commands.Records
		want    map[string]int
	}{
		"known": {
			func(w *fixture) commands.Records { return currentRecords{w} }, map[string]int{"append datapoint": 1},
		},
		"late":    {func(*fixture) commands.Records { return &records{} }, read},
		"stopped": {func(*fixture) commands.Records { return stoppedRecords{} }, read},
		"none":    {func(*fixture) commands.Records { return nil }, read},
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
	items := []commands.DataPoint{
		text("a", "one", by("ana")), text("b", "two", by("ben")), text("c", "three", by("ana")), text("d", "four", by("eve")),
		text("e", "five"),
	}
	if _, err := other.IngestBatch(t.Context(), w.call, items, ""); err != nil {
		t.Fatal(err)
	}
	if known.asked != 3 || made.count["read identity"] != 1 || made.count["append identity"] != 1 {
		t.Errorf("the directory was asked for %d records, calls %v", known.asked, made.count)
	}
	wantTypes(t, w.identityTypes("eve"), "identity.appeared.v1")
	wantTypes(t, w.identityTypes("ana"), "identity.traits-replaced.v1")
}
