package pipeline

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

// readCounter counts the reads of streams.
type readCounter struct {
	eventstore.Store
	reads atomic.Int64
}

func (r *readCounter) Read(
	ctx context.Context, name string, from eventstore.Revision, direction eventstore.Direction, limit int,
) ([]eventstore.Recorded, error) {
	r.reads.Add(1)
	return r.Store.Read(ctx, name, from, direction, limit)
}

func (r *readCounter) ReadLast(ctx context.Context, name string) (eventstore.Recorded, bool, error) {
	r.reads.Add(1)
	return r.Store.ReadLast(ctx, name)
}

// The second revision of a data point is derived at the end of the stream that the queue knows, without a
// read. If the queue is wrong, the stream is read: it gets the memories of the revision once, and an attempt
// that the queue does not know of is counted.
func TestDerive_HeadOfTheWorkList(t *testing.T) {
	const first, second = 1, 2
	ids := func(b *fixture) (project, send uuid.UUID) { return b.item.ProjectID, b.item.IngestionID }
	derived := func(revision int) func(b *fixture) event.Event {
		return func(b *fixture) event.Event {
			project, send := ids(b)
			return memory.Derived{ProjectID: project, IngestionID: send, Revision: revision, DerivedAt: at, OccurredAt: at}
		}
	}
	failed := func(final bool) func(b *fixture) event.Event {
		return func(b *fixture) event.Event {
			project, send := ids(b)
			return memory.Failed{
				ProjectID: project, IngestionID: send, Revision: second, Attempt: 1, Code: "internal", FailedAt: at, Final: final,
			}
		}
	}
	vectors := func(b *fixture) event.Event {
		project, _ := ids(b)
		return memory.Embedded{ProjectID: project, Revision: first, Model: "m", Part: 1, Parts: 1, EmbeddedAt: at}
	}
	known := func(at eventstore.Revision) *eventstore.Revision { return &at }
	for name, tt := range map[string]struct {
		stored  []func(*fixture) event.Event
		head    *eventstore.Revision
		isRead  bool
		want    []string
		deleted bool
	}{
		"current": {
			stored: []func(*fixture) event.Event{derived(first)}, head: known(0), want: []string{"derived", "derived"},
		},
		"current, after vectors": {
			stored: []func(*fixture) event.Event{derived(first), vectors}, head: known(1),
			want: []string{"derived", "embedded", "derived"},
		},
		"late for vectors": {
			stored: []func(*fixture) event.Event{derived(first), vectors}, head: known(0), isRead: true,
			want: []string{"derived", "embedded", "derived"},
		},
		"late for the memories": {
			stored: []func(*fixture) event.Event{derived(first), derived(second)}, head: known(0), isRead: true,
			want: []string{"derived", "derived"},
		},
		"late for a failure": {
			stored: []func(*fixture) event.Event{derived(first), failed(false)}, head: known(0), isRead: true,
			want: []string{"derived", "failed", "derived"},
		},
		"late for the last failure": {
			stored: []func(*fixture) event.Event{derived(first), failed(true)}, head: known(0), isRead: true,
			want: []string{"derived", "failed"},
		},
		"of another log": {
			stored: []func(*fixture) event.Event{derived(first)}, head: known(7), isRead: true, want: []string{"derived", "derived"},
		},
		"of another log, empty stream": {head: known(0), isRead: true, want: []string{"derived"}},
		"unknown": {
			stored: []func(*fixture) event.Event{derived(first)}, isRead: true, want: []string{"derived", "derived"},
		},
		"erased": {stored: []func(*fixture) event.Event{derived(first)}, head: known(0), isRead: true, deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, "Ana likes tea")
			b.Extractor = Builtin{}
			b.item.Revision, b.item.MemoryHead = second, tt.head
			b.item.Text = &work.Text{Content: "Ana likes coffee", OccurredAt: at}
			name := stream.Name(stream.Memory, b.item.DataPoint)
			for i, e := range tt.stored {
				_, err := b.Journal.Append(t.Context(), name, eventstore.Revision(i-1), event.NewMeta("test", time.Now()), e(b))
				runtest.Must(t, err)
			}
			if tt.deleted {
				b.deleted()
				_, err := b.Journal.Store.Tombstone(t.Context(), name, eventstore.Revision(len(tt.stored)-1))
				runtest.Must(t, err)
			}
			counter := &readCounter{Store: b.Journal.Store}
			b.Journal.Store = counter
			b.attempt()
			if isRead := counter.reads.Load() > 0; isRead != tt.isRead {
				t.Errorf("%d reads, want some: %v", counter.reads.Load(), tt.isRead)
			}
			if !tt.deleted {
				b.wantTypes(tt.want...)
			}
		})
	}
}

// Of several workers with the same outdated list, one derives the revision.
func TestDerive_HeadOfTheWorkListRaces(t *testing.T) {
	b := newFixture(t, "Ana likes tea")
	b.Extractor = Builtin{}
	b.attempt()
	head := eventstore.Revision(0)
	b.item.Revision, b.item.MemoryHead = 2, &head
	b.item.Text = &work.Text{Content: "Ana likes coffee", OccurredAt: at}
	results := make(chan error, 8)
	for range 8 {
		go func() {
			_, err := b.derive(context.WithoutCancel(t.Context()), b.item)
			results <- err
		}()
	}
	for range 8 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	b.wantTypes("derived", "derived")
}

// pureWorker derives what the test leases.
func (w *harness) pureWorker() *Worker {
	return &Worker{
		LoadGauge: idle{}, Age: noAge, Journal: w.log, Queue: w.queries, Progress: w.waiter,
		Extractor: Builtin{}, Logger: w.log.Logger, Holder: "stalled", Now: w.clock.now,
	}
}

// A text comes with its item, that of the item's revision though a later one is the newest. If its row is
// missing, it is read from the stream.
func TestWorker_TextOfTheRevision(t *testing.T) {
	t.Parallel()
	for name, missing := range map[string]bool{"row": false, "no row": true} {
		t.Run(name, func(t *testing.T) {
			w := newIdleHarness(t)
			for _, content := range []string{"Ana likes tea.", "Ana likes coffee."} {
				w.ingest(item("a", content))
			}
			w.passHead()
			if missing {
				w.ok(w.db.Exec(t.Context(), `delete from datapoints.revisions where number = 1`))
			}
			leased := w.lease()
			if leased.Revision != 1 || (leased.Text == nil) != missing || leased.MemoryHead != nil {
				t.Fatalf("leased %+v", leased)
			}
			asked := &scripted{}
			worker := w.pureWorker()
			worker.Extractor = asked
			w.ok(worker.derive(t.Context(), leased))
			if len(asked.asked) != 1 || asked.asked[0].Content != "Ana likes tea." {
				t.Errorf("derived from %+v", asked.asked)
			}
		})
	}
}

// A worker has leased the second revision of a data point, with its text and the head of its memories, when
// the data point is erased: it stores nothing.
func TestWorker_StalledWithALaterRevisionUntilTheDeletionIsCleaned(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	worker, secret := w.pureWorker(), runtest.Word()
	var leased work.Item
	for n, content := range []string{"Ana likes tea.", strings.Repeat("Ana's favourite editor is "+secret+". ", 1000)} {
		w.ingest(item("a", content))
		if leased = w.lease(); n > 0 {
			break
		}
		w.ok(worker.derive(t.Context(), leased))
		runtest.Must(t, w.queries.Release(t.Context(), "stalled", []uuid.UUID{leased.DataPoint}))
	}
	if leased.Revision != 2 || leased.Text == nil || leased.MemoryHead == nil || *leased.MemoryHead != 0 {
		t.Fatalf("leased %+v", leased)
	}
	w.deleteAndClean("a")
	w.ok(worker.derive(t.Context(), leased))
	name := stream.Name(stream.Memory, leased.DataPoint)
	if _, _, err := w.store.ReadLast(t.Context(), name); !errors.Is(err, eventstore.ErrDeleted) {
		t.Errorf("the memory stream of an erased data point: %v, want a tombstone", err)
	}
	w.gone(secret)
}
