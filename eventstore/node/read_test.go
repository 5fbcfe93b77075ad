package node

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/eventstore/node/wire"
	"github.com/annals-project/annals/internal/runtest"
)

// revisions are what a read of one stream brought.
func revisions(events []recordedEvent) []uint64 {
	out := []uint64{}
	for _, e := range events {
		out = append(out, e.revision)
	}
	return out
}

func TestReadStream(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	c.append("before", none, newEvents(2)...)
	c.append("s", none, newEvents(5)...)
	c.append("s2", none, newEvents(2)...)

	tests := []struct {
		name string
		read func() []recordedEvent
		want []uint64
	}{
		{"from the start", func() []recordedEvent { return c.read(ofStream("s")) }, []uint64{0, 1, 2, 3, 4}},
		{"from the start, two", func() []recordedEvent { return c.read(limited(ofStream("s"), 2)) }, []uint64{0, 1}},
		{"from a revision, inclusive", func() []recordedEvent { return c.read(from(ofStream("s"), 3)) }, []uint64{3, 4}},
		{"from behind the last", func() []recordedEvent { return c.read(from(ofStream("s"), 5)) }, []uint64{}},
		{"from the greatest revision", func() []recordedEvent { return c.read(from(ofStream("s"), math.MaxInt64)) }, []uint64{}},
		{"backwards from the end", func() []recordedEvent { return c.read(backwards(atEnd(ofStream("s")))) }, []uint64{4, 3, 2, 1, 0}},
		{"backwards from the end, one", func() []recordedEvent { return c.read(limited(backwards(atEnd(ofStream("s"))), 1)) }, []uint64{4}},
		{"backwards from a revision, inclusive", func() []recordedEvent { return c.read(backwards(from(ofStream("s"), 1))) }, []uint64{1, 0}},
		{"backwards from the start", func() []recordedEvent { return c.read(backwards(ofStream("s"))) }, []uint64{0}},
		{"backwards from behind the last", func() []recordedEvent { return c.read(limited(backwards(from(ofStream("s"), 9)), 2)) }, []uint64{4, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			same(t, "revisions", tt.want, revisions(tt.read()))
		})
	}
	for _, o := range []uint64{1, 10} {
		if _, found, _, err := c.tryRead(limited(ofStream("missing"), o)); found || err != nil {
			t.Errorf("read of %d events of a missing stream: found %v, %v", o, found, err)
		}
	}
}

// Clients read what was appended, byte for byte.
func TestRead_AppendedBytes(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	before := time.Now().Add(-time.Second)
	sent := []event{newEvent(`{"a":1}`), newEvent(""), newEvent("\x00\xff")}
	sent[0].meta = `{"by":"x"}`
	sent[1].typ = "käse"
	sent[2].raw = true
	_, position := c.append("s", none, sent...)
	events := c.read(ofStream("s"))
	for i, want := range sent {
		got := events[i]
		diff := cmp.Diff(
			recordedEvent{
				stream:   "s",
				revision: uint64(i),
				position: position - 2 + uint64(i),
				id:       want.id,
				typ:      want.typ,
				data:     want.data,
				meta:     want.meta,
			},
			got,
			cmp.AllowUnexported(recordedEvent{}),
		)
		if diff != "" {
			t.Error(diff)
		}
	}
	call, err := c.Read(runtest.Context(t), readOf(ofStream("s")))
	runtest.Must(t, err)
	for i, contentType := range []string{wire.ContentTypeJSON, wire.ContentTypeJSON, wire.ContentTypeRaw} {
		resp, err := call.Recv()
		runtest.Must(t, err)
		system := resp.GetEvent().GetEvent().GetMetadata()
		created, ok := wire.ParseTicks([]byte(system[wire.KeyCreated]))
		if len(system) != 3 || system[wire.KeyContentType] != contentType || !ok || created.Before(before) ||
			created.After(time.Now()) {
			t.Errorf("system metadata of event %d: %v", i, system)
		}
	}
}

func TestReadAll(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	c.wantCount(ofAll(), 0)
	var positions []uint64
	for i := range 5 {
		_, p := c.append(fmt.Sprintf("s%d", i%2), anyRevision, newEvent("{}"))
		positions = append(positions, p)
	}
	for i, p := range positions {
		if p == 0 || i > 0 && p <= positions[i-1] {
			t.Fatalf("positions do not rise from above 0: %v", positions)
		}
	}
	at := func(events []recordedEvent) []uint64 {
		out := []uint64{}
		for _, e := range events {
			out = append(out, e.position)
		}
		return out
	}
	p := positions
	tests := []struct {
		name string
		got  []recordedEvent
		want []uint64
	}{
		{"from the start", c.read(ofAll()), p},
		{"from position 0", c.read(from(ofAll(), 0)), p},
		{"from a position, inclusive", c.read(from(ofAll(), p[2])), p[2:]},
		{"from a position, two", c.read(limited(from(ofAll(), p[1]), 2)), p[1:3]},
		{"behind the last", c.read(from(ofAll(), p[4]+1)), []uint64{}},
		{"from the end", c.read(atEnd(ofAll())), []uint64{}},
		{"backwards from the end", c.read(backwards(atEnd(ofAll()))), []uint64{p[4], p[3], p[2], p[1], p[0]}},
		{"backwards from the greatest position", c.read(limited(backwards(from(ofAll(), math.MaxUint64)), 1)), []uint64{p[4]}},
		{"backwards from a position, exclusive", c.read(backwards(from(ofAll(), p[2]))), []uint64{p[1], p[0]}},
		{"backwards from the start", c.read(backwards(ofAll())), []uint64{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			same(t, "revisions", tt.want, at(tt.got))
		})
	}
}

// The node reads in pages internally. A read of any size, in either direction, returns the same
// events as without pages.
func TestRead_AcrossPages(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	const total = 2*storage.PageEvents + 37
	for left := total; left > 0; {
		n := min(left, 300)
		c.append("s", anyRevision, newEvents(n)...)
		c.append("other", anyRevision, newEvents(1)...)
		left -= n
	}
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Uint64Range(0, total-1).Draw(t, "from")
		count := rapid.Uint64Range(1, total).Draw(t, "count")
		var want, got []uint64
		if rapid.Bool().Draw(t, "backwards") {
			for r, n := int64(start), count; r >= 0 && n > 0; r, n = r-1, n-1 {
				want = append(want, uint64(r))
			}
			got = revisions(c.read(limited(backwards(from(ofStream("s"), start)), count)))
		} else {
			for r := start; r < total && r < start+count; r++ {
				want = append(want, r)
			}
			got = revisions(c.read(limited(from(ofStream("s"), start), count)))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
	c.wantCount(ofAll(), total+4)
}

// A reader gets only the events that the metadata of the stream does not hide.
func TestStreamMetadata(t *testing.T) {
	tests := []struct {
		metadata string
		want     []uint64
	}{
		{`{"$tb":2}`, []uint64{2, 3, 4}},
		{`{"$maxCount":2}`, []uint64{3, 4}},
		{`{"$maxCount":2,"$tb":4}`, []uint64{4}},
		{`{"$tb":17}`, []uint64{}},
		{`{"$maxAge":3600}`, []uint64{0, 1, 2, 3, 4}},
		{`{"$maxAge":9223372036854775807}`, []uint64{0, 1, 2, 3, 4}},
		{`{"$acl":{"$r":"x"},"own":[1]}`, []uint64{0, 1, 2, 3, 4}},
		{`{"$maxCount":0,"$tb":3}`, []uint64{0, 1, 2, 3, 4}},
		{`{"$maxCount":"2"}`, []uint64{0, 1, 2, 3, 4}},
		{`{"$tb":-1}`, []uint64{0, 1, 2, 3, 4}},
		{`not json`, []uint64{0, 1, 2, 3, 4}},
		{`null`, []uint64{0, 1, 2, 3, 4}},
	}
	for _, tt := range tests {
		t.Run(tt.metadata, func(t *testing.T) {
			c := dial(t, startNode(t, memoryConfig()))
			c.append("s", none, newEvents(5)...)
			c.append("$$s", none, metadataEvent(`{"$maxCount":1}`))
			c.append("$$s", at(0), metadataEvent(tt.metadata))
			same(t, "forwards", tt.want, revisions(c.read(ofStream("s"))))
			back := c.read(backwards(atEnd(ofStream("s"))))
			if len(back) != len(tt.want) || len(back) > 0 && last(back).revision != tt.want[0] {
				t.Errorf("backwards: %v", revisions(back))
			}
			if got := c.read(limited(ofStream("$$s"), 1)); len(got) != 1 || got[0].revision != 1 || got[0].data != tt.metadata {
				t.Errorf("the metadata is %v", got)
			}
		})
	}
}

// A request that lacks a required field is refused.
func TestRead_InvalidRequest(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	noCount := ofAll()
	noCount.CountOption = nil
	noStart := ofAll()
	noStart.GetAll().AllOption = nil
	noRevision := ofStream("s")
	noRevision.GetStream().RevisionOption = nil
	nothing := ofAll()
	nothing.StreamOption = nil
	tests := map[string]error{}
	for name, o := range map[string]*readOptions{
		"no options": nil, "no count": noCount, "no start": noStart, "no revision": noRevision, "neither stream nor log": nothing,
		"no name": ofStream(""), "subscription backwards": backwards(subscribed(ofAll())),
	} {
		_, _, _, tests[name] = c.tryRead(o)
	}
	for name, err := range tests {
		wantCode(t, name, err, codes.InvalidArgument)
	}
}

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
	runtest.Must(c.t, err)
	s := subscription{t: c.t, call: call, cancel: cancel}
	if s.next().GetConfirmation().GetSubscriptionId() == "" {
		c.t.Fatal("a subscription begins with its confirmation")
	}
	return s
}

func (s subscription) next() *streams.ReadResp {
	s.t.Helper()
	resp, err := s.call.Recv()
	runtest.Must(s.t, err)
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
		wantCode(t, "the answer", err, codes.FailedPrecondition)
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
