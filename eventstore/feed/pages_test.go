package feed_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/feed"
)

func TestTopics_LaggingShareReads(t *testing.T) {
	counting := &countingStore{}
	r := newFixture(t, func(m *eventstoretest.Memory) eventstore.Store { counting.Memory = m; return counting })
	const pages = 6
	for range pages {
		r.append(feed.PageEvents)
	}
	var topics []<-chan *message.Message
	for i := range 4 {
		topics = append(topics, r.subscribe(r.ctx, fmt.Sprint(i)))
	}
	built := make([]reader, len(topics))
	for range pages {
		for i, messages := range topics {
			if err := built[i].apply(r.ack(messages)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, b := range built {
		if !slices.Equal(b.ids, r.written()) {
			t.Errorf("topic %d built %d events of %d", i, len(b.ids), len(r.written()))
		}
	}
	if n := counting.reads.Load(); n > pages {
		t.Errorf("%d pages were read %d times", pages, n)
	}
}

func TestReads_OldPagesDropped(t *testing.T) {
	counting := &countingStore{}
	r := newFixture(t, func(m *eventstoretest.Memory) eventstore.Store { counting.Memory = m; return counting })
	const pages = 24
	for range pages {
		r.append(feed.PageEvents)
	}
	quick, slow := r.subscribe(r.ctx, "quick"), r.subscribe(r.ctx, "slow")
	var ahead, lagging reader
	for range pages {
		if err := ahead.apply(r.ack(quick)); err != nil {
			t.Fatal(err)
		}
	}
	if n := counting.reads.Load(); n > pages {
		t.Errorf("%d pages were read %d times", pages, n)
	}
	for range pages {
		if err := lagging.apply(r.ack(slow)); err != nil {
			t.Fatal(err)
		}
	}
	// The slow one reads most of them again: what it would need all along is too much to keep.
	if n := counting.reads.Load(); n < pages+pages/2 || n > 2*pages {
		t.Errorf("%d pages were read %d times by two", pages, n)
	}
	if !slices.Equal(ahead.ids, lagging.ids) {
		t.Error("the topics built different things")
	}
}

// erasingStore hides the oldest events, as a store does that took them from its log, but not from
// its head.
type erasingStore struct {
	*eventstoretest.Memory
	erased eventstore.Position
}

func (s *erasingStore) ReadAll(
	ctx context.Context, after eventstore.Position, limit int,
) ([]eventstore.Recorded, error) {
	return s.Memory.ReadAll(ctx, max(after, s.erased), limit)
}

func TestTopic_ErasedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		erasing := &erasingStore{}
		r := newFixture(t, func(m *eventstoretest.Memory) eventstore.Store { erasing.Memory = m; return erasing })
		r.append(10)
		erasing.erased = r.head()
		messages := r.subscribe(r.ctx, "access")
		synctest.Wait()
		r.append(1)
		if page := r.ack(messages); page.After != 0 || len(page.Events) != 1 || page.Next != r.head() {
			t.Errorf("page after %d up to %d with %d events, want 1 after 0 up to %d", page.After, page.Next, len(page.Events),
				r.head())
		}
		r.close()
	})
}

// lateStore holds back the answer of its first read of the log, which is then of long ago.
type lateStore struct {
	erasingStore
	reads   atomic.Int64
	release chan struct{}
}

func (s *lateStore) ReadAll(ctx context.Context, after eventstore.Position, limit int) ([]eventstore.Recorded, error) {
	events, err := s.erasingStore.ReadAll(ctx, after, limit)
	if s.reads.Add(1) == 1 {
		<-s.release
	}
	return events, err
}

func TestReads_OldHeadIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &lateStore{release: make(chan struct{})}
		r := newFixture(t, func(m *eventstoretest.Memory) eventstore.Store { late.Memory = m; return late })
		r.append(10)
		late.erased = r.head()
		first := r.subscribe(r.ctx, "first")
		synctest.Wait()
		// By now the feed has reported to the first topic that there is nothing, and the topic has not
		// received that yet. More events arrive than the feed keeps.
		const more = 6000
		for range more / 500 {
			r.append(500)
		}
		synctest.Wait()
		second := r.subscribe(r.ctx, "second")
		synctest.Wait()
		close(late.release)
		for name, messages := range map[string]<-chan *message.Message{"first": first, "second": second} {
			var built reader
			for len(built.ids) < more {
				if err := built.apply(r.ack(messages)); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			if !slices.Equal(built.ids, r.written()[10:]) {
				t.Errorf("%s built %d other facts", name, len(built.ids))
			}
		}
		r.close()
	})
}
