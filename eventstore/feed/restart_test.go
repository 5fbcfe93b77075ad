package feed_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
)

// restarting is a node that can be restarted over the same log. Clients reach it through a wire
// that knows its address.
type restarting struct {
	*testing.T
	disk  vfs.FS
	node  *node.Node
	wire  *nodetest.Wire
	store eventstore.Store
	codec *eventstore.Codec
}

func newRestarting(t *testing.T) *restarting {
	t.Helper()
	r := &restarting{T: t, disk: vfs.NewMem()}
	r.start()
	r.wire = nodetest.NewWire(t, r.node.Connection().Addr)
	r.store = nodetest.Open(t, esdb.Config{
		ConnectionString: "esdb://" + r.wire.Addr() + "?tls=false&discoveryInterval=5", Connections: 2,
	})
	r.codec = eventstoretest.Codec(t)
	return r
}

func (r *restarting) start() {
	r.Helper()
	r.node = nodetest.Start(r, node.Config{Dir: "log", FS: r.disk, Insecure: true})
}

func (r *restarting) restart() {
	r.Helper()
	runtest.Must(r, r.node.Close())
	r.start()
	r.wire.Lead(r.node.Connection().Addr)
}

// append stores n events one by one after a revision, whatever happens to the server meanwhile.
func (r *restarting) append(ctx context.Context, name string, at eventstore.Revision, n int) eventstore.Revision {
	r.Helper()
	for range n {
		done, err := eventstore.AppendUntilKnown(ctx, r.store, name, at, []eventstore.Proposed{accepted(r, r.codec)})
		runtest.Must(r, err)
		at = done.Revision
	}
	return at
}

// TestTopics_ServerRestarts has topics at the head of the log, and topics that begin
// before it, while the server stops and starts.
func TestTopics_ServerRestarts(t *testing.T) {
	const restarts, each = 5, 40
	ctx, cancel := context.WithTimeout(t.Context(), 2*hangLimit)
	defer cancel()
	r := newRestarting(t)
	f := feed.New(r.store, r.codec, noCheckpoint, quiet())
	built := make([]reader, restarts+1)
	var reading sync.WaitGroup
	begin := func(i int) {
		messages, err := f.Subscribe(ctx, string(rune('a'+i)))
		runtest.Must(t, err)
		reading.Go(func() {
			for msg := range messages {
				page, _ := feed.PageOf(msg)
				if err := built[i].apply(page); err != nil {
					t.Errorf("topic %d: %v", i, err)
				}
				msg.Ack()
				if len(built[i].ids) >= restarts*each {
					return
				}
			}
		})
	}
	begin(0)
	name, at := "project-"+uuid.NewString(), eventstore.NoStream
	for i := range restarts {
		at = r.append(ctx, name, at, each)
		begin(i + 1)
		r.restart()
	}
	reading.Wait()
	if ctx.Err() != nil {
		t.Errorf("the topics did not get to the end within %s", 2*hangLimit)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	for i, b := range built {
		if len(b.ids) != restarts*each || !slices.Equal(b.ids, built[0].ids) {
			t.Errorf("topic %d built %d events of %d, or in another order", i, len(b.ids), restarts*each)
		}
	}
}

// TestPage_OutlivesConnection holds a page while its connection is lost and more
// events are stored. The page stays the same, and the next one begins after it.
func TestPage_OutlivesConnection(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hangLimit)
	defer cancel()
	r := newRestarting(t)
	name := "project-" + uuid.NewString()
	at := r.append(ctx, name, eventstore.NoStream, 3)
	f := feed.New(r.store, r.codec, noCheckpoint, quiet())
	messages, err := f.Subscribe(ctx, "access")
	runtest.Must(t, err)
	var built reader
	for _, cut := range []func(){r.wire.Cut, r.restart, r.wire.Cut} {
		want := len(built.ids)
		held, page := take(ctx, t, messages)
		before := slices.Clone(page.Events)
		cut()
		at = r.append(ctx, name, at, 3)
		if held.Context().Err() != nil {
			t.Error("the message ended with the connection")
		}
		if !slices.EqualFunc(before, page.Events, func(a, b eventstore.DecodedEvent) bool { return a.ID == b.ID }) {
			t.Error("the page changed while it was held")
		}
		held.Nack() // it could not be applied: the same page comes again
		again, same := take(ctx, t, messages)
		if same.After != page.After || same.Next != page.Next {
			t.Errorf("page after %d up to %d came again after %d up to %d", page.After, page.Next, same.After, same.Next)
		}
		if err := built.apply(page); err != nil {
			t.Error(err)
		}
		again.Ack()
		if len(built.ids) <= want {
			t.Errorf("%d events after %d", len(built.ids), want)
		}
	}
	for len(built.ids) < 12 {
		msg, page := take(ctx, t, messages)
		runtest.Must(t, built.apply(page))
		msg.Ack()
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if stored := readWhole(ctx, t, r.store, name); len(stored) != 12 {
		t.Errorf("%d events are stored, want 12", len(stored))
	}
}

// newNode starts a node in memory and opens a store of it, over another address if via names one.
func newNode(t testing.TB, via func(addr string) string) (eventstore.Store, *eventstore.Codec) {
	t.Helper()
	conn := nodetest.Start(t, node.Config{}).Connection()
	if via != nil {
		conn.Addr = via(conn.Addr)
	}
	cfg := nodetest.ConfigOf(conn)
	cfg.Connections = 2
	return nodetest.Open(t, cfg), eventstoretest.Codec(t)
}

// TestTopics_BrokenConnections has writers and readers of a real node whose
// connections are cut again and again.
func TestTopics_BrokenConnections(t *testing.T) {
	const writers, each, topics, cutEvery = 4, 100, 3, 20
	ctx, cancel := context.WithTimeout(t.Context(), 2*hangLimit)
	defer cancel()
	var w *nodetest.Wire
	store, codec := newNode(t, func(addr string) string {
		w = nodetest.NewWire(t, addr)
		return w.Addr()
	})
	f := feed.New(store, codec, noCheckpoint, quiet())
	built := make([]reader, topics)
	var reading, writing sync.WaitGroup
	for i := range topics {
		messages, err := f.Subscribe(ctx, string(rune('a'+i)))
		runtest.Must(t, err)
		reading.Go(func() {
			own := 0
			for msg := range messages {
				page, _ := feed.PageOf(msg)
				if err := built[i].apply(page); err != nil {
					t.Errorf("topic %d: %v", i, err)
				}
				msg.Ack()
				for _, fact := range page.Events {
					if !fact.System() {
						own++
					}
				}
				if own >= writers*each {
					return
				}
			}
		})
	}
	var stored atomic.Int64
	for range writers {
		writing.Go(func() {
			name := "project-" + uuid.NewString()
			for at := eventstore.NoStream; at < each-1; at++ {
				done, err := eventstore.AppendUntilKnown(ctx, store, name, at, []eventstore.Proposed{accepted(t, codec)})
				if err != nil || done.Revision != at+1 {
					t.Errorf("append at %d: %+v, %v", at, done, err)
					return
				}
				if stored.Add(1)%cutEvery == 0 {
					w.Cut()
				}
			}
			events := readWhole(ctx, t, store, name)
			if len(events) != each {
				t.Errorf("%d events are stored, want %d", len(events), each)
			}
		})
	}
	writing.Wait()
	reading.Wait()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	for i := 1; i < topics; i++ {
		if n := len(built[0].ids); len(built[i].ids) != n || !slices.Equal(built[i].ids, built[0].ids) {
			t.Errorf("topics 0 and %d built %d and %d events, or in another order", i, n, len(built[i].ids))
		}
	}
}

// readWhole reads a stream over connections that break.
func readWhole(ctx context.Context, t *testing.T, store eventstore.Store, name string) []eventstore.Recorded {
	for {
		events, err := store.Read(ctx, name, 0, eventstore.Forwards, 1000)
		if err == nil {
			return events
		}
		if !errors.Is(err, eventstore.ErrUnavailable) {
			t.Errorf("read: %v", err)
			return nil
		}
	}
}

// mute is a store whose subscriptions can stall: they stay open and bring no more events.
type mute struct {
	eventstore.Store
	// silent stalls every open subscription, and none that is opened later. deaf makes the next
	// call of Subscribe hang.
	silent, deaf atomic.Bool
	opened       atomic.Int64
	// noHead makes the head unreadable.
	noHead atomic.Bool
}

func (m *mute) Subscribe(ctx context.Context, after eventstore.Position) (eventstore.Subscription, error) {
	m.opened.Add(1)
	if m.deaf.CompareAndSwap(true, false) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	m.silent.Store(false)
	sub, err := m.Store.Subscribe(ctx, after)
	return &muteSubscription{Subscription: sub, of: m}, err
}

func (m *mute) Head(ctx context.Context) (eventstore.Position, error) {
	if m.noHead.Load() {
		return 0, errors.New("no head")
	}
	return m.Store.Head(ctx)
}

type muteSubscription struct {
	eventstore.Subscription
	of *mute
}

func (s *muteSubscription) Next(ctx context.Context) (eventstore.Recorded, error) {
	r, err := s.Subscription.Next(ctx)
	if err == nil && s.of.silent.Load() {
		<-ctx.Done()
		return r, context.Cause(ctx)
	}
	return r, err
}

func newMuteFixture(t *testing.T) (*fixture, *mute) {
	m := &mute{}
	r := newFixture(t, func(memory *eventstoretest.Memory) eventstore.Store {
		m.Store = memory
		return m
	})
	return r, m
}

// A subscription that stalls is restarted within a minute, and no event is lost or delivered twice.
func TestWatch_SilentSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := newMuteFixture(t)
		messages := r.subscribe(r.ctx, "access")
		var built reader
		for round := range 3 {
			r.append(2)
			for built.at != r.head() { // the two events may come as two pages
				runtest.Must(t, built.apply(r.ack(messages)))
			}
			synctest.Wait() // the reader has joined the live subscription, and reads the log itself no more
			m.silent.Store(true)
			r.append(1)
			silentSince := time.Now()
			page := r.ack(messages)
			runtest.Must(t, built.apply(page))
			if took := time.Since(silentSince); took < 30*time.Second || took > time.Minute {
				t.Errorf("noticed after %v", took)
			}
			if got := r.feed.Stalls(); got != uint64(round+1) || m.opened.Load() != int64(round+2) {
				t.Errorf("round %d: %d stalls, %d subscriptions", round, got, m.opened.Load())
			}
		}
		if built.at != r.head() || len(built.ids) != len(r.written()) {
			t.Errorf("built %d events up to %d, want %d up to %d", len(built.ids), built.at, len(r.written()), r.head())
		}
		r.close()
	})
}

// A subscription that is never confirmed is ended too.
func TestWatch_SubscribeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := newMuteFixture(t)
		m.deaf.Store(true)
		messages := r.subscribe(r.ctx, "access")
		synctest.Wait()
		r.append(1)
		r.ack(messages)
		if r.feed.Stalls() != 1 || m.opened.Load() != 2 {
			t.Errorf("%d stalls, %d subscriptions", r.feed.Stalls(), m.opened.Load())
		}
		r.close()
	})
}

// slowObserver is slow for every event.
type slowObserver struct{ pause time.Duration }

func (slowObserver) Begins(eventstore.Position) {}

func (o slowObserver) Arrived(eventstore.DecodedEvent) { pass(o.pause) }

// These are no stalls: an idle log, a page or an observer that needs minutes, events that arrive
// one by one for hours, and a store whose head cannot be read.
func TestWatch_NoFalseAlarm(t *testing.T) {
	for name, live := range map[string]func(*testing.T, *fixture, *mute){
		"nothing happens": func(_ *testing.T, r *fixture, _ *mute) {
			r.append(1)
			pass(time.Hour)
		},
		"a page takes minutes": func(_ *testing.T, r *fixture, _ *mute) {
			messages := r.subscribe(r.ctx, "slow")
			r.append(1)
			msg, _ := r.take(messages)
			for range 20 {
				r.append(feed.PageEvents)
				pass(time.Minute)
			}
			msg.Ack()
		},
		"an observer takes minutes": func(_ *testing.T, r *fixture, _ *mute) {
			r.feed.Observe(slowObserver{pause: 3 * time.Minute})
			synctest.Wait()
			r.append(10)
			pass(time.Hour)
		},
		"events come one by one": func(_ *testing.T, r *fixture, _ *mute) {
			for range 400 {
				r.append(1)
				pass(9 * time.Second)
			}
		},
		"the head cannot be read": func(t *testing.T, r *fixture, m *mute) {
			synctest.Wait()
			m.noHead.Store(true)
			m.silent.Store(true)
			r.append(1)
			pass(time.Hour)
			if got := r.feed.Stalls(); got != 0 {
				t.Errorf("%d stalls without proof", got)
			}
			m.noHead.Store(false)
			pass(time.Minute)
			if got := r.feed.Stalls(); got != 1 {
				t.Errorf("%d stalls once the head is read again, want 1", got)
			}
			m.opened.Store(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, m := newMuteFixture(t)
				r.ctx = t.Context() // hours pass here
				if name != "an observer takes minutes" {
					ctx, stop := context.WithCancel(t.Context())
					defer stop()
					messages := r.subscribe(ctx, "access")
					go func() {
						for msg := range messages {
							msg.Ack()
						}
					}()
				}
				live(t, r, m)
				if m.opened.Load() != 1 {
					t.Errorf("%d subscriptions were opened, want 1", m.opened.Load())
				}
				r.close()
			})
		})
	}
}

// pass advances the clock of a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }
