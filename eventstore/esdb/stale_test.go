package esdb_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/continuity"
	"github.com/annals-project/annals/eventstore/node/clustertest"
	"github.com/annals-project/annals/internal/runtest"
)

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
	done, err := eventstore.AppendUntilKnown(ctx, store, "counter-1", last.Revision, events)
	if !errors.Is(err, eventstore.ErrConflict) {
		t.Errorf("a decision on an old state: %+v, %v", done, err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err := store.Truncate(ctx, "counter-1", 1); !errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("truncate: %v", err)
	}
	if err := store.Truncate(ctx, "counter-1", 1); err != nil {
		t.Errorf("truncate again: %v", err)
	}
	events, err := store.Read(ctx, "counter-1", 0, eventstore.Forwards, 10)
	if err != nil || len(events) != 2 || events[0].Revision != 1 {
		t.Errorf("after the truncation: %+v, %v", events, err)
	}
	c.LoseAnswers(0, 1)
	if _, err := store.Tombstone(ctx, "counter-1", 2); !errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("tombstone: %v", err)
	}
	c.Lead(2)
	if _, _, err := store.ReadLast(ctx, "counter-1"); !errors.Is(err, eventstore.ErrDeleted) {
		t.Errorf("read after the tombstone: %v", err)
	}
	if _, err := store.Tombstone(ctx, "counter-1", 2); !errors.Is(err, eventstore.ErrDeleted) {
		t.Errorf("tombstone again: %v", err)
	}
}

// A change of the leader is no older copy, also while the member that led before shows an old end of the log.
func TestCluster_LeaderChangeIsNoOlderCopy(t *testing.T) {
	c, store, first := lagging(t)
	ctx := within(t, hangLimit)
	log := continuity.New(store, hangLimit, runtest.Logger(t))
	sub, err := log.Subscribe(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
