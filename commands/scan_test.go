package commands_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/eventstore"
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
	if _, err := w.log.Append(t.Context(), name, eventstore.NoStream, meta, many...); err != nil {
		t.Fatal(err)
	}
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
