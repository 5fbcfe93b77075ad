package node

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/internal/runtest"
)

// subscription reads what a subscription brings, message by message.
type subscription struct {
	t      runtest.T
	call   streams.Streams_ReadClient
	cancel context.CancelFunc
}

func (c client) subscribe(o *readOptions) subscription {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runtest.Timeout)
	c.t.Cleanup(cancel)
	call, err := c.Read(ctx, readOf(subscribed(o)))
	if err != nil {
		c.t.Fatal(err)
	}
	s := subscription{t: c.t, call: call, cancel: cancel}
	if s.next().GetConfirmation().GetSubscriptionId() == "" {
		c.t.Fatal("a subscription begins with its confirmation")
	}
	return s
}

func (s subscription) next() *streams.ReadResp {
	s.t.Helper()
	resp, err := s.call.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	return resp
}

func (s subscription) event() recordedEvent {
	s.t.Helper()
	return recordedOf(s.t, s.next())
}

func (s subscription) caughtUp() {
	s.t.Helper()
	if resp := s.next(); resp.GetCaughtUp() == nil {
		s.t.Fatalf("not caught up: %v", resp)
	}
}

func TestSubscribe_All(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	_, first := c.append("a", none, newEvents(1)...)
	c.append("b", none, newEvents(2)...)
	tests := []struct {
		name    string
		options *readOptions
		stored  int
	}{
		{"from the start", ofAll(), 3},
		{"behind a position", from(ofAll(), first), 2},
		{"from the end", atEnd(ofAll()), 0},
		{"from the greatest position", from(ofAll(), 1<<64-1), 0},
	}
	subscriptions := make([]subscription, len(tests))
	for i, tt := range tests {
		s := c.subscribe(tt.options)
		for range tt.stored {
			s.event()
		}
		s.caughtUp()
		subscriptions[i] = s
	}
	sent := newEvents(3)
	c.append("a", at(0), sent...)
	for i, s := range subscriptions {
		for n, want := range sent {
			if got := s.event(); got.id != want.id || got.revision != uint64(n+1) {
				t.Errorf("%s: live event %d is %+v", tests[i].name, n, got)
			}
		}
	}
}

func TestSubscribe_Stream(t *testing.T) {
	for name, tt := range map[string]struct {
		options *readOptions
		want    []uint64
	}{
		"from the start":    {ofStream("s"), []uint64{0, 1, 2}},
		"behind a revision": {from(ofStream("s"), 0), []uint64{1, 2}},
		"from the end":      {atEnd(ofStream("s")), nil},
		"a missing stream":  {ofStream("later"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, startNode(t, memoryConfig()))
			c.append("s", none, newEvents(3)...)
			c.append("other", none, newEvents(3)...)
			s := c.subscribe(tt.options)
			for _, want := range tt.want {
				if got := s.event(); got.revision != want || got.stream != "s" {
					t.Errorf("got %+v, want revision %d", got, want)
				}
			}
			s.caughtUp()
			stream := string(tt.options.GetStream().GetStreamIdentifier().GetStreamName())
			sent := newEvent("{}")
			c.append("other", anyRevision, newEvents(1)...)
			c.append(stream, anyRevision, sent)
			if got := s.event(); got.id != sent.id {
				t.Errorf("live: got %+v", got)
			}
		})
	}
}

// A tombstone is delivered, then ends the subscription. A later subscription ends at once.
func TestSubscription_Tombstone(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	c.append("s", none, newEvents(1)...)
	s := c.subscribe(ofStream("s"))
	s.event()
	s.caughtUp()
	c.tombstone("s", at(0))
	if got := s.event(); got.typ != storage.TombstoneType {
		t.Errorf("got %+v", got)
	}
	for _, s := range []subscription{s, c.subscribe(ofStream("s"))} {
		_, err := s.call.Recv()
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("got %v", err)
		}
		if got := s.call.Trailer().Get("stream-name"); len(got) != 1 || got[0] != "s" {
			t.Errorf("stream-name is %v", got)
		}
	}
}

// While many clients append, every subscriber gets every event once and in order, whenever it
// began.
func TestSubscription_HandOver(t *testing.T) {
	const writers, appends, subscribers = 4, 150, 6
	c := dial(t, startNode(t, memoryConfig()))
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range appends {
				resp, err := c.tryAppend(context.Background(), fmt.Sprintf("w%d", w), at(int64(i)-1), newEvents(1)...)
				if err != nil || resp.GetSuccess() == nil {
					t.Errorf("append: %v, %v", resp, err)
				}
			}
		})
	}
	for i := range subscribers {
		wg.Go(func() {
			o, want := ofAll(), writers*appends
			if i%2 == 1 {
				o, want = ofStream("w1"), appends
			}
			ctx, cancel := context.WithTimeout(context.Background(), runtest.Timeout)
			defer cancel()
			call, err := c.Read(ctx, readOf(subscribed(o)))
			if err != nil {
				t.Error(err)
				return
			}
			last := map[string]int64{}
			position := uint64(0)
			for seen := 0; seen < want; {
				resp, err := call.Recv()
				if err != nil {
					t.Errorf("subscriber %d after %d events: %v", i, seen, err)
					return
				}
				e := resp.GetEvent().GetEvent()
				if e == nil {
					continue
				}
				name := string(e.GetStreamIdentifier().GetStreamName())
				if next := last[name]; int64(e.GetStreamRevision()) != next || e.GetCommitPosition() <= position {
					t.Errorf("subscriber %d: %s revision %d at %d after revision %d at %d", i, name, e.GetStreamRevision(),
						e.GetCommitPosition(), next-1, position)
					return
				}
				last[name]++
				position = e.GetCommitPosition()
				seen++
			}
		})
	}
	wg.Wait()
}

// A subscriber that does not read delays nobody. It lags beyond the events that are kept in memory,
// and still misses none.
func TestSubscription_SlowReader(t *testing.T) {
	n := startNode(t, memoryConfig())
	c := dial(t, n)
	slow := c.subscribe(ofAll())
	slow.caughtUp()
	const size, total = 256 << 10, 96 // three times what the tail holds
	big := strings.Repeat("x", size)
	for i := range total {
		c.append("s", at(int64(i)-1), newEvent(big))
	}
	if _, _, lagging := n.engine.Tail(0, nil); !lagging {
		t.Fatal("the tail still holds everything: this test tests nothing")
	}
	var got []uint64
	caughtUp := false
	for len(got) < total || !caughtUp {
		resp := slow.next()
		if resp.GetCaughtUp() != nil {
			caughtUp = true
			continue
		}
		got = append(got, recordedOf(t, resp).revision)
	}
	for i, revision := range got {
		if revision != uint64(i) {
			t.Fatalf("event %d has revision %d", i, revision)
		}
	}
	sent := newEvent("{}")
	c.append("s", at(total-1), sent)
	if e := slow.event(); e.id != sent.id {
		t.Errorf("live again: got %+v", e)
	}
}
