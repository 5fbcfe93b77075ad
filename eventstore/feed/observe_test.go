package feed_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
)

// observer records what it is called with.
type observer struct {
	mu        sync.Mutex
	begins    []eventstore.Position
	positions []eventstore.Position
}

func (o *observer) Begins(after eventstore.Position) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begins = append(o.begins, after)
}

func (o *observer) Arrived(f eventstore.DecodedEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.positions = append(o.positions, f.Position)
}

func TestObserver_NoTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil)
		r.append(3)
		began := r.head()
		o := &observer{}
		r.feed.Observe(o)
		synctest.Wait()
		r.append(5)
		synctest.Wait()
		ctx, stop := context.WithCancel(r.ctx)
		messages := r.subscribe(ctx, "access")
		r.ack(messages)
		stop()
		r.closed(messages)
		synctest.Wait()
		r.append(feed.PageEvents) // no topic is left
		synctest.Wait()
		r.close()
		o.mu.Lock()
		defer o.mu.Unlock()
		if len(o.begins) != 1 || o.begins[0] != began {
			t.Errorf("it began after %v, want %d", o.begins, began)
		}
		if n := len(o.positions); n != 5+feed.PageEvents || !slices.IsSorted(o.positions) || o.positions[n-1] != r.head() {
			t.Errorf("it saw %d events, want %d in order", n, 5+feed.PageEvents)
		}
	})
}
