package feed_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
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
	"github.com/annals-project/annals/internal/runtest"
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
		runtest.Must(t, built.apply(page))
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
	runtest.Must(t, late.apply(page))
	// More than the feed keeps for those who are late.
	const rounds, each = 40, 250
	for i := range rounds {
		r.append(each)
		for len(early.ids) < 1+each*(i+1) {
			runtest.Must(t, early.apply(r.ack(quick)))
		}
	}
	held.Ack()
	for len(late.ids) < 1+rounds*each {
		runtest.Must(t, late.apply(r.ack(slow)))
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
		runtest.Must(t, err)
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
	runtest.Must(t, err)
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
	runtest.Must(r, err)
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

func TestClose_PageInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil)
		r.append(1)
		messages := r.subscribe(r.ctx, "access")
		msg, _ := r.take(messages)
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.close()
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Error("closed with a page out")
		case <-messages:
			t.Error("the channel was closed, or gave another page")
		default:
		}
		if err := msg.Context().Err(); err != nil {
			t.Errorf("the message was ended: %v", err)
		}
		msg.Ack()
		<-done
		if _, open := <-messages; open {
			t.Error("the channel is still open")
		}
		if _, err := r.feed.Subscribe(r.ctx, "access"); !errors.Is(err, feed.ErrClosed) {
			t.Errorf("subscribe after close: %v", err)
		}
	})
}

func TestSubscribe_ContextEnds(t *testing.T) {
	r := newFixture(t, nil)
	r.append(1)
	ctx, cancel := context.WithCancel(r.ctx)
	busy, idle := r.subscribe(ctx, "busy"), r.subscribe(ctx, "idle")
	r.ack(idle)
	msg, _ := r.take(busy)
	stays := r.subscribe(r.ctx, "stays")
	r.ack(stays)
	cancel()
	r.closed(idle)
	<-msg.Context().Done()
	msg.Nack()
	r.closed(busy)
	r.append(1)
	if page := r.ack(stays); len(page.Events) != 1 {
		t.Errorf("%d events", len(page.Events))
	}
}

func TestSubscribe_AfterLastTopicEnded(t *testing.T) {
	r := newFixture(t, nil)
	for i := range 5 {
		ctx, cancel := context.WithCancel(r.ctx)
		messages := r.subscribe(ctx, "access")
		r.append(1)
		page := r.ack(messages)
		if diff := cmp.Diff(1, len(page.Events)); diff != "" {
			t.Errorf("round %d: %s", i, diff)
		}
		r.setCheckpoint("access", page.Next)
		cancel()
		r.closed(messages)
	}
}

func TestNack_SamePageAgain(t *testing.T) {
	r := newFixture(t, nil)
	r.append(3)
	messages := r.subscribe(r.ctx, "access")
	msg, first := r.take(messages)
	msg.Nack()
	r.append(1)
	for range 3 {
		msg, again := r.take(messages)
		if again.After != first.After || again.Next != first.Next || len(again.Events) != 3 {
			t.Fatalf("page after %d up to %d, want after %d up to %d", again.After, again.Next, first.After, first.Next)
		}
		if msg.Context().Err() != nil {
			t.Error("the message has ended before it was answered")
		}
		msg.Nack()
	}
	if again := r.ack(messages); again.Next != first.Next {
		t.Errorf("page up to %d, want %d", again.Next, first.Next)
	}
	if next := r.ack(messages); next.After != first.Next || len(next.Events) != 1 {
		t.Errorf("page after %d with %d events, want after %d with 1", next.After, len(next.Events), first.Next)
	}
	if r.asked["access"] != 1 {
		t.Errorf("the checkpoint was read %d times", r.asked["access"])
	}
}

func TestRewind_ContinuesFromCheckpoint(t *testing.T) {
	r := newFixture(t, nil)
	for range 3 {
		r.append(600)
	}
	messages := r.subscribe(r.ctx, "access")
	var built reader
	for range 2 {
		runtest.Must(t, built.apply(r.ack(messages)))
	}
	// The database fell back to the first page.
	fallen := reader{ids: slices.Clone(built.ids[:512])}
	fallen.at = r.positionOf(fallen.ids[511])
	r.setCheckpoint("access", fallen.at)
	msg, page := r.take(messages)
	if page.After != built.at {
		t.Fatalf("page after %d, want %d", page.After, built.at)
	}
	feed.Rewind(msg)
	msg.Nack()
	for len(fallen.ids) < 1800 {
		runtest.Must(t, fallen.apply(r.ack(messages)))
	}
	if diff := cmp.Diff(r.written(), fallen.ids); diff != "" {
		t.Error(diff)
	}
	// And once more at the head, where pages come from the shared subscription.
	r.append(5)
	at := fallen.at
	msg, _ = r.take(messages)
	r.setCheckpoint("access", 0)
	feed.Rewind(msg)
	msg.Nack()
	if page := r.ack(messages); page.After != 0 || len(page.Events) != feed.PageEvents {
		t.Errorf("page after %d (head was %d) with %d events", page.After, at, len(page.Events))
	}
}

func TestRewind_BeforeAck(t *testing.T) {
	r := newFixture(t, nil)
	messages := r.subscribe(r.ctx, "access")
	r.append(1)
	msg, page := r.take(messages)
	feed.Rewind(msg)
	msg.Ack()
	r.append(1)
	if next := r.ack(messages); next.After != page.Next {
		t.Errorf("page after %d, want %d", next.After, page.Next)
	}
}

func (r *fixture) positionOf(id uuid.UUID) eventstore.Position {
	r.Helper()
	for after := eventstore.Position(0); ; {
		page, err := r.memory.ReadAll(r.ctx, after, 1000)
		if err != nil || len(page) == 0 {
			r.Fatalf("event %s is not in the log: %v", id, err)
		}
		for _, e := range page {
			if e.ID == id {
				return e.Position
			}
		}
		after = page[len(page)-1].Position
	}
}

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
