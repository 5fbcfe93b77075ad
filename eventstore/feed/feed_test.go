package feed_test

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/feed"
)

func TestTopic_ReadsInPages(t *testing.T) {
	r := newFixture(t, nil)
	for range 3 {
		r.append(500)
	}
	messages := r.subscribe(r.ctx, "access")
	var built reader
	var sizes []int
	for len(built.ids) < 1500 {
		page := r.ack(messages)
		if err := built.apply(page); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(page.Events))
		if want := page.Next == r.head(); page.AtHead != want {
			t.Errorf("page up to %d of %d: at head %t", page.Next, r.head(), page.AtHead)
		}
	}
	if diff := cmp.Diff(r.written(), built.ids); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{512, 512, 476}, sizes); diff != "" {
		t.Error(diff)
	}
}

func TestTopic_BeginsAfterCheckpoint(t *testing.T) {
	r := newFixture(t, nil)
	r.append(2)
	r.setCheckpoint("access", r.head())
	r.append(3)
	page := r.ack(r.subscribe(r.ctx, "access"))
	if diff := cmp.Diff([]string{"0", "1", "2"}, numbers(page)); diff != "" {
		t.Error(diff)
	}
}

func TestTopic_EventsDuringPageFormOnePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil)
		messages := r.subscribe(r.ctx, "access")
		r.append(1)
		msg, page := r.take(messages)
		if len(page.Events) != 1 || !page.AtHead {
			t.Errorf("first page: %d events, at head %t", len(page.Events), page.AtHead)
		}
		for range 40 {
			r.append(2)
		}
		synctest.Wait()
		msg.Ack()
		if page := r.ack(messages); len(page.Events) != 80 || !page.AtHead {
			t.Errorf("second page: %d events, at head %t; want 80 and true", len(page.Events), page.AtHead)
		}
		r.close()
	})
}

// Only an extended topic gets more events in a page, and both get all of them.
func TestTopic_Extended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil)
		r.feed.Extend("index", 2*feed.PageEvents)
		for topic, want := range map[string][]int{
			"access": {1, feed.PageEvents, feed.PageEvents, feed.PageEvents}, "index": {1, 2 * feed.PageEvents, feed.PageEvents},
		} {
			r.setCheckpoint(topic, r.head())
			messages := r.subscribe(r.ctx, topic)
			r.append(1)
			msg, page := r.take(messages)
			sizes := []int{len(page.Events)}
			r.append(3 * feed.PageEvents)
			synctest.Wait()
			msg.Ack()
			for page.Next < r.head() {
				page = r.ack(messages)
				sizes = append(sizes, len(page.Events))
			}
			if diff := cmp.Diff(want, sizes); diff != "" {
				t.Errorf("pages of %s: %s", topic, diff)
			}
		}
		r.close()
	})
}

func TestTopics_ShareSubscriptionAndEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counting := &countingStore{}
		r := newFixture(t, func(m *eventstoretest.Memory) eventstore.Store { counting.Memory = m; return counting })
		one, other := r.subscribe(r.ctx, "access"), r.subscribe(r.ctx, "memories")
		synctest.Wait()
		for range 20 {
			r.append(1)
			a, b := r.ack(one), r.ack(other)
			if len(a.Events) != 1 || len(b.Events) != 1 || a.Events[0].Event != b.Events[0].Event {
				t.Fatalf("the topics hold different events: %d up to %d, %d up to %d", len(a.Events), a.Next, len(b.Events), b.Next)
			}
		}
		if n := counting.subscriptions.Load(); n != 1 {
			t.Errorf("%d subscriptions", n)
		}
		if n := counting.reads.Load(); n != 0 {
			t.Errorf("%d reads of the log at its head", n)
		}
		r.close()
	})
}

func TestTopics_OneIsSlow(t *testing.T) {
	r := newFixture(t, nil)
	slow, quick := r.subscribe(r.ctx, "slow"), r.subscribe(r.ctx, "quick")
	r.append(1)
	var late, early reader
	held, page := r.take(slow)
	if err := late.apply(page); err != nil {
		t.Fatal(err)
	}
	// More than the feed keeps for those who are late.
	const rounds, each = 40, 250
	for i := range rounds {
		r.append(each)
		for len(early.ids) < 1+each*(i+1) {
			if err := early.apply(r.ack(quick)); err != nil {
				t.Fatal(err)
			}
		}
	}
	held.Ack()
	for len(late.ids) < 1+rounds*each {
		if err := late.apply(r.ack(slow)); err != nil {
			t.Fatal(err)
		}
	}
	written := r.written()
	if !slices.Equal(early.ids, written) || !slices.Equal(late.ids, written) {
		t.Errorf("read %d and %d events, want the %d of the log", len(early.ids), len(late.ids), len(written))
	}
}

func TestPage_BoundInBytes(t *testing.T) {
	r := newFixture(t, nil)
	ref := r.writeBlob(20 << 20)
	messages := r.subscribe(r.ctx, "behind")
	r.drain(messages, r.head())
	// The same at the head.
	msg := r.hold(messages)
	r.writeBlob(20 << 20)
	msg.Ack()
	r.drain(messages, r.head())
	if data, err := (eventstore.Journal{Store: r.memory, Codec: r.codec}).ReadBlob(r.ctx, ref); err != nil ||
		len(data) != 20<<20 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

func TestPage_UnknownEvents(t *testing.T) {
	r := newFixture(t, nil)
	foreign, later := r.proposed(1), r.proposed(2)
	foreign.Type = "somebody.else.v1"
	later.Meta = bytes.Replace(later.Meta, []byte(`"schema":1,`), []byte(`"schema":2,`), 1)
	name := stream.Name(stream.Project, uuid.New())
	if _, err := r.memory.Append(r.ctx, name, eventstore.NoStream, []eventstore.Proposed{foreign, later}); err != nil {
		t.Fatal(err)
	}
	page := r.ack(r.subscribe(r.ctx, "access"))
	if len(page.Events) != 2 {
		t.Fatalf("got %+v", page.Events)
	}
	for i, e := range page.Events {
		var unknown *eventstore.UnknownEventError
		if !errors.As(e.Err, &unknown) || unknown.Stream != name || unknown.Step != 2*i || e.Event != nil {
			t.Errorf("event %d: got %+v", i, e)
		}
	}
}

func TestPage_EventsOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil)
		early := r.subscribe(r.ctx, "early")
		synctest.Wait()
		name := stream.Name(stream.DataPoint, uuid.New())
		end, err := r.memory.Tombstone(r.ctx, name, eventstore.NoStream)
		if err != nil {
			t.Fatal(err)
		}
		// One topic has it from the shared subscription, the other from the log.
		for i, page := range []feed.Page{r.ack(early), r.ack(r.subscribe(r.ctx, "late"))} {
			last := page.Events[len(page.Events)-1]
			ended, ok := last.Event.(*eventstore.Tombstoned)
			if page.Next != end || last.Position != end || last.Stream != feed.SystemStream || !ok || ended.Stream != name ||
				last.Err != nil ||
				!last.System() {
				t.Errorf("topic %d: page up to %d ends with %+v, want the tombstone at %d", i, page.Next, last, end)
			}
		}
		r.close()
	})
}

func TestTopic_CheckpointAheadOfLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil)
		r.append(2)
		r.setCheckpoint("access", r.head()+1)
		messages := r.subscribe(r.ctx, "access")
		synctest.Wait()
		if all := r.feed.Status(); len(all) != 1 || !errors.Is(all[0].Err, feed.ErrAhead) {
			t.Errorf("status is %+v, want %v", all, feed.ErrAhead)
		}
		r.append(1)
		synctest.Wait()
		select {
		case <-messages:
			t.Error("a page was handed over")
		default:
		}
		r.setCheckpoint("access", 0)
		if page := r.ack(messages); len(page.Events) != 3 {
			t.Errorf("%d events", len(page.Events))
		}
		synctest.Wait()
		if all := r.feed.Status(); len(all) != 1 || all[0].Err != nil || all[0].Position != r.head() ||
			all[0].Known != r.head() ||
			!all[0].Live {
			t.Errorf("status is %+v", all)
		}
		r.close()
	})
}

func TestRouter_RetriesPage(t *testing.T) {
	r := newFixture(t, nil)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		r.append(100)
	}
	want := r.written()
	var built reader
	done := make(chan struct{})
	tries := 0
	router.AddConsumerHandler("access", "access", r.feed, func(msg *message.Message) error {
		page, ok := feed.PageOf(msg)
		if !ok {
			return errors.New("no page")
		}
		if tries++; tries%2 == 1 {
			return errors.New("try " + strconv.Itoa(tries) + " fails")
		}
		if err := built.apply(page); err != nil {
			t.Error(err)
		}
		if len(built.ids) == len(want) {
			close(done)
		}
		return nil
	})
	running := make(chan error, 1)
	go func() { running <- router.Run(r.ctx) }()
	select {
	case <-done:
	case <-r.ctx.Done():
		t.Fatal("the log was not read")
	}
	if err := router.Close(); err != nil {
		t.Error(err)
	}
	if err := <-running; err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want, built.ids); diff != "" {
		t.Error(diff)
	}
}

func (r *fixture) writeBlob(size int) blob.Ref {
	r.Helper()
	ref, err := eventstore.Journal{Store: r.memory, Codec: r.codec}.WriteBlob(r.ctx, uuid.New(), uuid.New(), uuid.New(),
		later, meta, make([]byte, size))
	if err != nil {
		r.Fatal(err)
	}
	return ref
}

// drain acknowledges pages up to a position, none of which may be over the bound.
func (r *fixture) drain(messages <-chan *message.Message, to eventstore.Position) {
	r.Helper()
	for {
		page := r.ack(messages)
		size := 0
		for _, f := range page.Events {
			size += f.Size()
		}
		if size > feed.PageBytes+eventstore.MaxAppend {
			r.Errorf("page of %d events and %d bytes", len(page.Events), size)
		}
		if page.Next >= to {
			return
		}
	}
}

// hold takes a page of one event and keeps it.
func (r *fixture) hold(messages <-chan *message.Message) *message.Message {
	r.Helper()
	r.append(1)
	msg, _ := r.take(messages)
	return msg
}
