package esdb_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node/clustertest"
)

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
	if err != nil {
		t.Fatal(err)
	}
	sub, err := store.Subscribe(ctx, first.Position)
	if err != nil {
		t.Fatal(err)
	}
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
		if r, err := sub.Next(ctx); !errors.Is(err, eventstore.ErrUnavailable) {
			t.Errorf("the subscription goes on: %+v, %v", r, err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	c.Script(0, func(s *clustertest.Script) { s.Refuse = true })
	if _, err := store.Head(ctx); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Fatalf("head: %v", err)
	}
	c.Script(0, func(s *clustertest.Script) { s.Refuse = false })
	done, err := store.Append(ctx, "account-1", eventstore.NoStream, thing())
	if err != nil {
		t.Fatal(err)
	}
	if r, err := sub.Next(ctx); err != nil || r.Position != done.Position {
		t.Fatalf("the subscription ended with its connection: %+v, %v", r, err)
	}
	c.Freeze(0)
	c.Lead(1)
	if _, err := store.Head(ctx); err != nil {
		t.Fatal(err)
	}
	if r, err := sub.Next(ctx); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("the subscription goes on: %+v, %v", r, err)
	}
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
			if _, err := store.Append(ctx, "account-1", eventstore.NoStream, thing()); err != nil {
				t.Fatal(err)
			}
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
	if _, err := store.Append(ctx, "account-1", eventstore.NoStream, thing()); err != nil {
		t.Fatal(err)
	}
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
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
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
