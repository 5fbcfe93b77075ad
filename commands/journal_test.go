package commands_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/runtest"
)

// pageCounter records the longest read of a stream.
type pageCounter struct {
	eventstore.Store
	longest int
	reads   int
}

func (c *pageCounter) Read(
	ctx context.Context, stream string, from eventstore.Revision, d eventstore.Direction, limit int,
) ([]eventstore.Recorded, error) {
	events, err := c.Store.Read(ctx, stream, from, d, limit)
	c.longest, c.reads = max(c.longest, len(events)), c.reads+1
	return events, err
}

// A stream of any length is read a page at a time.
func TestScan_PageAtATime(t *testing.T) {
	w := newFixture(t)
	const events = 300
	var many []event.Event
	for range events {
		many = append(many, audience.Recomputed{ProjectID: w.call.Principal.Project.ID})
	}
	name := "audiences-" + uuid.NewString()
	meta := event.NewMeta("test", time.Now())
	runtest.Must(t, errorOf(w.log.Append(t.Context(), name, eventstore.NoStream, meta, many...)))
	store := &pageCounter{Store: w.store}
	w.log.Store = store
	next := eventstore.Revision(7)
	err := w.log.Scan(t.Context(), name, 7, func(f eventstore.DecodedEvent) (bool, error) {
		if f.Revision != next {
			t.Errorf("revision %d, want %d", f.Revision, next)
		}
		next++
		return true, nil
	})
	if err != nil || next != events || store.longest > 64 {
		t.Errorf("seen up to %d in reads of at most %d, %v", next, store.longest, err)
	}
	store.reads = 0
	stop := errors.New("stop")
	for want, see := range map[error]func(eventstore.DecodedEvent) (bool, error){
		nil:  func(eventstore.DecodedEvent) (bool, error) { return false, nil },
		stop: func(eventstore.DecodedEvent) (bool, error) { return true, stop },
	} {
		if err := w.log.Scan(t.Context(), name, 0, see); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if store.reads != 2 {
		t.Errorf("%d reads after the first events are seen", store.reads)
	}
}

// poisoned is a store that panics at the last event of a data point.
type poisoned struct{ eventstore.Store }

func (p poisoned) ReadLast(ctx context.Context, name string) (eventstore.Recorded, bool, error) {
	if strings.HasPrefix(name, stream.DataPoint+"-") {
		panic("poisoned")
	}
	return p.Store.ReadLast(ctx, name)
}

// A panic on one of many streams is an error of the call. It does not end the process.
func TestService_PanicOnAStream(t *testing.T) {
	w := newFixture(t)
	w.ingest(text("a", "one"), "")
	_, err := fixtureOver(t, poisoned{w.store}).DeleteDataPoints(t.Context(), w.call, []string{"a", "b"})
	if _, ok := errors.AsType[*panics.Error](err); !ok {
		t.Fatalf("error %v, want the panic", err)
	}
	if _, err := w.DeleteDataPoints(t.Context(), w.call, []string{"a"}); err != nil {
		t.Error(err)
	}
}

// smallStore is an event store whose operator lowered the size of an append.
type smallStore struct{ eventstore.Store }

func (smallStore) Append(
	context.Context, string, eventstore.Revision, []eventstore.Proposed,
) (eventstore.Appended, error) {
	return eventstore.Appended{}, eventstore.ErrTooLarge
}

// A store that takes smaller appends than this program makes is named with the limit to raise.
func TestJournal_NamesTheLimitOfTheStore(t *testing.T) {
	store := smallStore{eventstoretest.NewMemory()}
	journal := engine.NewJournal(store, eventstoretest.Codec(t), slog.New(slog.DiscardHandler))
	_, err := journal.Append(t.Context(), stream.Pipeline, eventstore.NoStream, event.NewMeta("test", time.Now()),
		pipeline.Searchable{Position: 1, SearchableAt: time.Now()})
	if f, is := errors.AsType[*fault.Error](err); !is || f.Kind != fault.Unavailable ||
		!strings.Contains(f.Msg, "--max-append-size") {
		t.Errorf("the refusal is %v", err)
	}
}
