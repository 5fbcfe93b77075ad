package esdb_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/continuity"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node/clustertest"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
)

// TestOutage_ServerReturns covers what the driver does not survive: a server that is down for
// longer than its search lasts.
func TestOutage_ServerReturns(t *testing.T) {
	sound := func() *fake {
		return &fake{
			onAppend: func(_ []*streams.AppendReq, in streams.Streams_AppendServer) error {
				return in.SendAndClose(appended(0, 7))
			},
			onRead: func(req *streams.ReadReq, out streams.Streams_ReadServer) error {
				if req.GetOptions().GetSubscription() == nil {
					return nil
				}
				if err := out.Send(confirmation()); err != nil {
					return err
				}
				<-out.Context().Done()
				return status.FromContextError(out.Context().Err()).Err()
			},
		}
	}
	addr, stop := sound().serve(t, runtest.FreeAddress(t))
	store, ctx := insecure(t, addr), within(t, hangLimit)
	for round := range 3 {
		if _, err := store.Append(ctx, "a-1", eventstore.NoStream, oneEvent()); err != nil {
			t.Fatalf("round %d: append: %v", round, err)
		}
		sub, err := store.Subscribe(ctx, 0)
		if err != nil {
			t.Fatalf("round %d: subscribe: %v", round, err)
		}
		stop()
		if r, err := sub.Next(ctx); !errors.Is(err, eventstore.ErrUnavailable) {
			t.Errorf("round %d: the subscription goes on: %v, %v", round, r, err)
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		for range 4 {
			if _, err := store.Append(ctx, "a-1", eventstore.NoStream, oneEvent()); !errors.Is(err, eventstore.ErrUnknown) ||
				!errors.Is(err, eventstore.ErrUnavailable) {
				t.Errorf("round %d: append: %v", round, err)
			}
			wantError(t, fmt.Sprintf("round %d: head", round), errorOf(store.Head(ctx)), eventstore.ErrUnavailable)
			if _, err := store.Subscribe(ctx, 0); !errors.Is(err, eventstore.ErrUnavailable) {
				t.Errorf("round %d: subscribe: %v", round, err)
			}
		}
		_, stop = sound().serve(t, addr)
	}
}

func TestOutage_ServerStartsLater(t *testing.T) {
	addr := runtest.FreeAddress(t)
	store, ctx := insecure(t, addr), within(t, hangLimit)
	wantError(t, "head", errorOf(store.Head(ctx)), eventstore.ErrUnavailable)
	f := &fake{onRead: func(*streams.ReadReq, streams.Streams_ReadServer) error { return nil }}
	f.serve(t, addr)
	if _, err := store.Head(ctx); err != nil {
		t.Error(err)
	}
}

// TestOutage_SilentServer has a server that accepts connections and sends
// nothing. The driver then waits for its search to time out and ignores the context of the call.
func TestOutage_SilentServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	runtest.Must(t, err)
	nodetest.CloseAtEnd(t, listener)
	store := nodetest.Open(t, esdb.Config{
		ConnectionString: "esdb://" + listener.Addr().String() +
			"?tls=false&maxDiscoverAttempts=1&gossipTimeout=1&discoveryInterval=1", Logger: quiet(),
	})
	for what, call := range map[string]func(context.Context) error{
		"append": func(ctx context.Context) error { _, err := store.Append(ctx, "a-1", 0, oneEvent()); return err },
		"read": func(ctx context.Context) error {
			_, err := store.Read(ctx, "a-1", 0, eventstore.Forwards, 1)
			return err
		},
		"head":      func(ctx context.Context) error { _, err := store.Head(ctx); return err },
		"subscribe": func(ctx context.Context) error { _, err := store.Subscribe(ctx, 0); return err },
	} {
		err := call(within(t, 20*time.Millisecond))
		wantError(t, what, err, context.DeadlineExceeded)
	}
}

func TestClose_LaterCalls(t *testing.T) {
	f := &fake{}
	addr, _ := f.serve(t, "127.0.0.1:0")
	store, err := esdb.Open(esdb.Config{ConnectionString: "esdb://" + addr + "?tls=false", Logger: quiet()})
	runtest.Must(t, err)
	runtest.Must(t, store.Close())
	ctx := within(t, hangLimit)
	if _, err := store.Head(ctx); err == nil || errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("head: %v", err)
	}
	if _, err := store.Subscribe(ctx, 0); err == nil || errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("subscribe: %v", err)
	}
	if _, err := store.Append(ctx, "a-1", 0, oneEvent()); err == nil || errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("append: %v", err)
	}
}

// A follower that is not up to date is never read from, by a client that it led before either.
func TestCluster_LaggingFollower(t *testing.T) {
	c, store, first := lagging(t)
	c.Script(0, func(s *clustertest.Script) { s.Lag = uint64(first) })
	c.Script(2, func(s *clustertest.Script) { s.Lag = uint64(first) })
	c.Lead(1)
	ctx := within(t, hangLimit)
	for range 3 {
		if last, ok, err := store.ReadLast(ctx, "counter-1"); err != nil || !ok || last.Revision != 2 {
			t.Errorf("last: %+v, %t, %v", last, ok, err)
		}
		if head, err := store.Head(ctx); err != nil || head <= first {
			t.Errorf("head: %d, %v", head, err)
		}
	}
}

// A leader that has not noticed that another one leads may show an old state. A decision on that is
// refused, and the next one is made on the current state.
func TestCluster_DecisionOnOldState(t *testing.T) {
	c, store, first := lagging(t)
	c.Script(0, func(s *clustertest.Script) { s.Lag, s.Deaf = uint64(first), true })
	c.Lead(1)
	ctx := within(t, hangLimit)
	last, ok, err := store.ReadLast(ctx, "counter-1")
	if err != nil || !ok || last.Revision != 0 {
		t.Fatalf("the old leader shows no old state: %+v, %t, %v", last, ok, err)
	}
	events := []eventstore.Proposed{{ID: uuid.New(), Type: "thing.counted.v1", Data: []byte(`{}`)}}
	_, err = eventstore.AppendUntilKnown(ctx, store, "counter-1", last.Revision, events)
	wantError(t, "a decision on an old state", err, eventstore.ErrConflict)
	if last, ok, err = store.ReadLast(ctx, "counter-1"); err != nil || !ok || last.Revision != 2 {
		t.Errorf("after the conflict: %+v, %t, %v", last, ok, err)
	}
}

// lagging returns a cluster with three events in a stream, and a client of its leader, member 0. first
// is the position of the first event.
func lagging(t *testing.T) (c *clustertest.Cluster, store eventstore.Store, first eventstore.Position) {
	t.Helper()
	c = clustertest.Start(t, 3)
	store = openCluster(t, c.ConnectionString(soon...), 2)
	ctx := within(t, hangLimit)
	for at := eventstore.NoStream; at < 2; at++ {
		events := []eventstore.Proposed{{ID: uuid.New(), Type: "thing.counted.v1", Data: []byte(`{}`)}}
		done, err := store.Append(ctx, "counter-1", at, events)
		runtest.Must(t, err)
		if first == 0 {
			first = done.Position
		}
	}
	return c, store, first
}

// The answers to a truncation and to a tombstone are lost after both were done: made again, they
// report what is so.
func TestCluster_EndsWithLostAnswers(t *testing.T) {
	c, store, _ := lagging(t)
	ctx := within(t, hangLimit)
	c.LoseAnswers(0, 1)
	wantError(t, "truncate", store.Truncate(ctx, "counter-1", 1), eventstore.ErrUnknown)
	if err := store.Truncate(ctx, "counter-1", 1); err != nil {
		t.Errorf("truncate again: %v", err)
	}
	events, err := store.Read(ctx, "counter-1", 0, eventstore.Forwards, 10)
	if err != nil || len(events) != 2 || events[0].Revision != 1 {
		t.Errorf("after the truncation: %+v, %v", events, err)
	}
	c.LoseAnswers(0, 1)
	wantError(t, "tombstone", errorOf(store.Tombstone(ctx, "counter-1", 2)), eventstore.ErrUnknown)
	c.Lead(2)
	if _, _, err := store.ReadLast(ctx, "counter-1"); !errors.Is(err, eventstore.ErrDeleted) {
		t.Errorf("read after the tombstone: %v", err)
	}
	wantError(t, "tombstone again", errorOf(store.Tombstone(ctx, "counter-1", 2)), eventstore.ErrDeleted)
}

// A change of the leader is no older copy, also while the member that led before shows an old end of the log.
func TestCluster_LeaderChangeIsNoOlderCopy(t *testing.T) {
	c, store, first := lagging(t)
	ctx := within(t, hangLimit)
	log := continuity.New(store, hangLimit, runtest.Logger(t))
	sub, err := log.Subscribe(ctx, 0)
	runtest.Must(t, err)
	for r := (eventstore.Recorded{}); r.Stream != "counter-1" || r.Revision != 2; {
		if r, err = sub.Next(ctx); err != nil {
			t.Fatal(err)
		}
	}
	at := eventstore.Revision(2)
	for leader := range 3 {
		for member := range 3 {
			c.Script(member, func(s *clustertest.Script) { s.Lag, s.Deaf = uint64(first), true })
		}
		c.Script(leader, func(s *clustertest.Script) { s.Lag, s.Deaf = 0, false })
		c.Lead(leader)
		done, err := eventstore.AppendUntilKnown(ctx, log, "counter-1", at, []eventstore.Proposed{
			{ID: uuid.New(), Type: "thing.counted.v1", Data: []byte(`{}`)},
		})
		runtest.Must(t, err)
		at = done.Revision
		if err := log.Err(); err != nil {
			t.Error(err)
		}
	}
	for err = log.Check(ctx); errors.Is(err, eventstore.ErrUnavailable) && log.Err() == nil && ctx.Err() == nil; {
		err = log.Check(ctx)
	}
	if err != nil {
		t.Error(err)
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
}

// frozenLimit is less than the keepalive and the deadlines of patient need to end a call.
const frozenLimit = time.Minute

// patient are settings by which nothing but the question who leads notices a frozen server.
var patient = []string{"discoveryInterval=20", "keepAliveInterval=60000", "keepAliveTimeout=60000", "defaultDeadline=600000"}

// openPatient is openCluster with calls that are slow at once.
func openPatient(t *testing.T, c *clustertest.Cluster, connections int) *esdb.Store {
	t.Helper()
	store := openCluster(t, c.ConnectionString(patient...), connections)
	store.SetSlowAfter(5 * time.Millisecond)
	store.SetDistrustTime(time.Hour)
	return store
}

func thing() []eventstore.Proposed {
	return []eventstore.Proposed{{ID: uuid.New(), Type: "thing.done.v1", Data: []byte(`{}`), Meta: []byte(`{}`)}}
}

// A frozen leader is left once another member leads: reads and appends are made there, a tombstone
// has an unknown outcome, and a subscription ends so that its caller subscribes again.
func TestCluster_FrozenLeader(t *testing.T) {
	c := clustertest.Start(t, 3)
	store, ctx := openPatient(t, c, 2), within(t, frozenLimit)
	first, err := store.Append(ctx, "account-1", eventstore.NoStream, thing())
	runtest.Must(t, err)
	sub, err := store.Subscribe(ctx, first.Position)
	runtest.Must(t, err)
	c.Freeze(0)
	var calls sync.WaitGroup
	calls.Go(func() {
		if last, ok, err := store.ReadLast(ctx, "account-1"); err != nil || !ok || last.Revision != 0 {
			t.Errorf("read: %+v, %t, %v", last, ok, err)
		}
	})
	calls.Go(func() {
		if head, err := store.Head(ctx); err != nil || head < first.Position {
			t.Errorf("head: %d, %v", head, err)
		}
	})
	calls.Go(func() {
		if done, err := store.Append(ctx, "account-2", eventstore.NoStream, thing()); err != nil || done.Revision != 0 {
			t.Errorf("append: %+v, %v", done, err)
		}
	})
	calls.Go(func() {
		if _, err := store.Tombstone(ctx, "account-3", eventstore.NoStream); !errors.Is(err, eventstore.ErrUnknown) ||
			!errors.Is(err, eventstore.ErrUnavailable) {
			t.Errorf("tombstone: %v", err)
		}
	})
	calls.Go(func() {
		opened, err := store.Subscribe(ctx, 0)
		if err != nil {
			t.Errorf("subscribe: %v", err)
			return
		}
		if r, err := opened.Next(ctx); err != nil || r.Position != first.Position {
			t.Errorf("follow: %+v, %v", r, err)
		}
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	calls.Go(func() {
		wantError(t, "the subscription goes on", errorOf(sub.Next(ctx)), eventstore.ErrUnavailable)
	})
	// Until there is another leader, the connections stay.
	until(ctx, t, "five calls and no subscription are slow", func() bool { return store.SlowCalls() == 5 })
	asked := c.Questions(1)
	until(ctx, t, "the others are asked", func() bool { return c.Questions(1) > asked+2 })
	if got := store.Stats(); got.GivenUp != 0 {
		t.Errorf("without another leader: %+v", got)
	}
	c.Lead(1)
	calls.Wait()
	if got := store.Stats(); got.Moved != 1 || got.GivenUp != 2 {
		t.Errorf("after the move: %+v", got)
	}
	// What the old leader had received, it may do later: that changes nothing.
	c.Thaw(0)
	if done, err := store.Append(ctx, "account-2", 0, thing()); err != nil || done.Revision != 1 {
		t.Errorf("append: %+v, %v", done, err)
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
}

// A connection that was given up earlier, and still has a subscription, is left too.
func TestCluster_FrozenLeaderOfRetiredConnection(t *testing.T) {
	c := clustertest.Start(t, 3)
	store, ctx := openPatient(t, c, 1), within(t, frozenLimit)
	sub, err := store.Subscribe(ctx, 0)
	runtest.Must(t, err)
	c.Script(0, func(s *clustertest.Script) { s.Refuse = true })
	if _, err := store.Head(ctx); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Fatalf("head: %v", err)
	}
	c.Script(0, func(s *clustertest.Script) { s.Refuse = false })
	done, err := store.Append(ctx, "account-1", eventstore.NoStream, thing())
	runtest.Must(t, err)
	if r, err := sub.Next(ctx); err != nil || r.Position != done.Position {
		t.Fatalf("the subscription ended with its connection: %+v, %v", r, err)
	}
	c.Freeze(0)
	c.Lead(1)
	runtest.Must(t, errorOf(store.Head(ctx)))
	wantError(t, "the subscription goes on", errorOf(sub.Next(ctx)), eventstore.ErrUnavailable)
}

// A call that is slow changes nothing while the others name the same leader, or do not answer.
func TestCluster_SlowCall(t *testing.T) {
	for name, script := range map[string]func(*clustertest.Script){
		"same leader": func(*clustertest.Script) {},
		"no answer":   func(s *clustertest.Script) { s.Refuse = true },
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.Start(t, 3)
			store, ctx := openPatient(t, c, 2), within(t, hangLimit)
			runtest.Must(t, errorOf(store.Append(ctx, "account-1", eventstore.NoStream, thing())))
			for i := range 2 {
				c.Script(1+i, script)
			}
			c.Script(0, func(s *clustertest.Script) { s.Hold = true })
			answered := make(chan error, 1)
			go func() {
				last, _, err := store.ReadLast(ctx, "account-1")
				if err == nil && last.Revision != 0 {
					err = errors.New("another event is the last")
				}
				answered <- err
			}()
			asked := c.Questions(1)
			until(ctx, t, "the others are asked", func() bool { return c.Questions(1) > asked+2 })
			if got := store.Stats(); got.GivenUp != 0 {
				t.Errorf("a connection was given up: %+v", got)
			}
			calls := c.Calls(0)
			c.Script(0, func(s *clustertest.Script) { s.Hold = false })
			if err := <-answered; err != nil {
				t.Error(err)
			}
			if got := c.Calls(0); got != calls {
				t.Errorf("the call was made again")
			}
		})
	}
}

// A leader is left for one that most others name, and not for an old leader that only claims to lead.
func TestCluster_OldLeaderClaims(t *testing.T) {
	c := clustertest.Start(t, 3)
	store, ctx := openPatient(t, c, 1), within(t, frozenLimit)
	runtest.Must(t, errorOf(store.Append(ctx, "account-1", eventstore.NoStream, thing())))
	stays := func(state string) {
		t.Helper()
		asked := c.Questions(2)
		until(ctx, t, "the others are asked", func() bool { return c.Questions(2) > asked+2 })
		if got := store.Stats(); got.GivenUp != 0 {
			t.Errorf("%s: a connection was given up: %+v", state, got)
		}
	}
	c.Script(1, func(s *clustertest.Script) { s.Claims = true })
	c.Script(0, func(s *clustertest.Script) { s.Hold = true })
	answered := make(chan error, 1)
	go func() {
		_, _, err := store.ReadLast(ctx, "account-1")
		answered <- err
	}()
	stays("an old leader claims to lead, and nobody else names it")
	c.Lead(2)
	stays("there are two leaders")
	c.Script(1, func(s *clustertest.Script) { s.Claims = false })
	runtest.Must(t, <-answered)
	if got := store.Stats(); got.Moved != 1 {
		t.Errorf("after the move: %+v", got)
	}
	// The leader that was left claims to lead, and answers. It is not believed.
	c.Script(0, func(s *clustertest.Script) { s.Hold, s.Claims, s.Deaf = false, true, true })
	calls := c.Calls(0)
	for range 20 {
		c.Cut(2)
		if _, _, err := store.ReadLast(ctx, "account-1"); err != nil && !errors.Is(err, eventstore.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if got := c.Calls(0); got != calls {
		t.Errorf("%d calls came to the old leader", got-calls)
	}
	// The others elect it again.
	c.Lead(0)
	until(ctx, t, "it leads again", func() bool {
		c.Cut(2)
		_, _, err := store.ReadLast(ctx, "account-1")
		return err == nil && c.Calls(0) > calls
	})
}
