package esdb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node/clustertest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/seedtest"
)

// clusterFaults is how many faults a cluster has in one test: ANNALS_CLUSTER_FAULTS, or each kind
// once.
func clusterFaults(t *testing.T) int {
	t.Helper()
	text := os.Getenv("ANNALS_CLUSTER_FAULTS")
	if text == "" {
		return len(faults)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < len(faults) {
		t.Fatalf("ANNALS_CLUSTER_FAULTS is %q, want a number from %d on", text, len(faults))
	}
	return n
}

// faults disturb a cluster of which a member leads. heal ends the disturbance after calls went on;
// nil if there is nothing to end. lead is the next leader.
var faults = []struct {
	name string
	do   func(c *clustertest.Cluster, leader, next int) (lead int, heal func())
}{
	{"another leader", func(c *clustertest.Cluster, _, next int) (int, func()) { c.Lead(next); return next, nil }},
	{"the leader dies", func(c *clustertest.Cluster, leader, next int) (int, func()) {
		c.Kill(leader)
		c.Lead(next)
		return next, func() { c.Return(leader); c.Lead(next) }
	}},
	{"a follower dies", func(c *clustertest.Cluster, leader, next int) (int, func()) {
		c.Kill(next)
		return leader, func() { c.Return(next) }
	}},
	{"the leader freezes", func(c *clustertest.Cluster, leader, next int) (int, func()) {
		c.Freeze(leader)
		c.Lead(next)
		return next, func() { c.Thaw(leader); c.Lead(next) }
	}},
	{"answers are lost", func(c *clustertest.Cluster, leader, _ int) (int, func()) {
		c.LoseAnswers(leader, 5)
		return leader, nil
	}},
	{"requests are lost", func(c *clustertest.Cluster, leader, _ int) (int, func()) {
		c.LoseRequests(leader, 5)
		return leader, nil
	}},
	{"connections break", func(c *clustertest.Cluster, leader, _ int) (int, func()) { c.Cut(leader); return leader, nil }},
	{"the leader is not ready", func(c *clustertest.Cluster, leader, next int) (int, func()) {
		c.Script(leader, func(s *clustertest.Script) { s.Refuse = true })
		c.Lead(next)
		return next, func() { c.Script(leader, func(s *clustertest.Script) { s.Refuse = false }) }
	}},
	{"the leader is slow, then another leads", func(c *clustertest.Cluster, leader, next int) (int, func()) {
		c.Script(leader, func(s *clustertest.Script) { s.Delay = 100 * time.Millisecond })
		c.LoseAnswers(leader, 2)
		return leader, func() {
			c.Lead(next)
			c.Script(leader, func(s *clustertest.Script) { s.Delay = 0 })
			c.Lead(leader)
		}
	}},
	{"the old leader lags and refuses early", func(c *clustertest.Cluster, leader, next int) (int, func()) {
		at := max(c.Node.Stats().Events/2, 1)
		c.Script(leader, func(s *clustertest.Script) { s.Lag, s.Early = at, true })
		c.Lead(next)
		return next, func() { c.Script(leader, func(s *clustertest.Script) { s.Lag, s.Early = 0, false }) }
	}},
	{"the old leader does not notice for a while", func(c *clustertest.Cluster, leader, next int) (int, func()) {
		at := max(c.Node.Stats().Events/2, 1)
		c.Script(leader, func(s *clustertest.Script) { s.Lag, s.Deaf = at, true })
		c.Lead(next)
		return next, func() { c.Script(leader, func(s *clustertest.Script) { s.Lag, s.Deaf = 0, false }) }
	}},
	{"nobody leads for a while", func(c *clustertest.Cluster, _, next int) (int, func()) {
		c.Lead(-1)
		time.AfterFunc(300*time.Millisecond, func() { c.Lead(next) })
		return next, nil
	}},
}

// TestCluster_Faults disturbs a cluster while writers append, decide and follow. At the end the log
// holds each append that was acknowledged once, at the revision that was answered, and every
// follower had every event.
func TestCluster_Faults(t *testing.T) {
	seed := seedtest.Of(t)
	c := clustertest.Start(t, 3)
	ctx := within(t, hangLimit+time.Duration(clusterFaults(t))*30*time.Second)
	w := newClusterLoad(ctx, t, c)
	rng := rand.New(rand.NewPCG(seed, 0))
	leader := 0
	for i, kind := 0, rng.Perm(len(faults)); i < clusterFaults(t); i++ {
		fault := faults[kind[i%len(kind)]]
		began := time.Now()
		next, heal := fault.do(c, leader, (leader+1+rng.IntN(2))%3)
		w.awaitProgress()
		if heal != nil {
			heal()
			w.awaitProgress()
		}
		leader = next
		t.Logf("%s: %s", fault.name, time.Since(began).Round(time.Millisecond))
	}
	w.finish()
}

// clusterLoad is what goes on while a cluster is disturbed.
type clusterLoad struct {
	ctx, working context.Context
	stop         context.CancelFunc
	t            *testing.T
	store, truth *esdb.Store
	running      sync.WaitGroup
	// done counts the rounds of each worker.
	done []*atomic.Int64

	mu    sync.Mutex
	acked []ackedAppend
	ends  map[string]eventstore.Revision // of the acknowledged appends to each stream
	// lost are the ids of appends that another one came before.
	lost map[uuid.UUID]bool
	// seen are the positions that each follower had.
	seen [][]eventstore.Position
}

type ackedAppend struct {
	stream string
	ids    []uuid.UUID
	answer eventstore.Appended
}

func newClusterLoad(ctx context.Context, t *testing.T, c *clustertest.Cluster) *clusterLoad {
	w := &clusterLoad{
		ctx: ctx, t: t, store: openCluster(t, c.ConnectionString(soon...), 3), truth: open(t, c.Node.Connection(), 1),
		ends: map[string]eventstore.Revision{}, lost: map[uuid.UUID]bool{}, seen: make([][]eventstore.Position, 2),
	}
	w.working, w.stop = context.WithCancel(ctx)
	t.Cleanup(func() { w.stop(); w.running.Wait() })
	for i := range 3 {
		w.work(func() bool { return w.appendOwn(fmt.Sprintf("own-%d", i)) })
		w.work(func() bool { return w.decide("counter-1") })
	}
	for i := range w.seen {
		w.work(func() bool {
			for had := len(w.seen[i]); len(w.seen[i]) == had && w.working.Err() == nil; {
				if !w.follow(w.working, i, 20) {
					return false
				}
			}
			return true
		})
	}
	return w
}

// work repeats a round until the end of the load.
func (w *clusterLoad) work(round func() bool) {
	done := &atomic.Int64{}
	w.done = append(w.done, done)
	w.running.Go(func() {
		for w.working.Err() == nil && round() {
			done.Add(1)
			// The faults are what is tested, not the load.
			_ = backoff.Pause(w.working, 2*time.Millisecond, nil)
		}
	})
}

// awaitProgress waits until every worker has made some rounds.
func (w *clusterLoad) awaitProgress() {
	w.t.Helper()
	for i, done := range w.done {
		want := done.Load() + 3
		until(w.ctx, w.t, fmt.Sprintf("worker %d goes on", i), func() bool { return done.Load() >= want })
	}
}

func (w *clusterLoad) append(stream string, at eventstore.Revision, events []eventstore.Proposed) error {
	done, err := eventstore.AppendUntilKnown(w.ctx, w.store, stream, at, events)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.acked = append(w.acked, ackedAppend{stream, ids(events), done})
		w.ends[stream] = done.Revision
		if want := at + eventstore.Revision(len(events)); done.Revision != want {
			w.t.Errorf("append at %d answered %d", want, done.Revision)
		}
	}
	if errors.Is(err, eventstore.ErrConflict) {
		for _, id := range ids(events) {
			w.lost[id] = true
		}
	}
	return err
}

func ids(events []eventstore.Proposed) []uuid.UUID {
	all := make([]uuid.UUID, len(events))
	for i, e := range events {
		all[i] = e.ID
	}
	return all
}

// appendOwn appends after the last event of a stream that nobody else writes.
func (w *clusterLoad) appendOwn(stream string) bool {
	at := eventstore.NoStream
	w.mu.Lock()
	if end, ok := w.ends[stream]; ok {
		at = end
	}
	w.mu.Unlock()
	events := make([]eventstore.Proposed, 1+rand.IntN(5))
	for i := range events {
		size := 10
		if rand.IntN(20) == 0 {
			size = 100 << 10 // such an append is sent in several parts
		}
		events[i] = eventstore.Proposed{
			ID: uuid.New(), Type: "thing.done.v1", Data: append(bytes.Repeat([]byte{'1'}, size), ' '), Meta: []byte(`{}`),
		}
	}
	if err := w.append(stream, at, events); err != nil {
		w.t.Errorf("append to %s at %d: %v", stream, at, err)
		return false
	}
	return true
}

// decide adds one to the number in the last event of a stream that others write too. A conflict is a
// round as well.
func (w *clusterLoad) decide(stream string) bool {
	for {
		last, ok, err := w.store.ReadLast(w.ctx, stream)
		if errors.Is(err, eventstore.ErrUnavailable) {
			continue
		}
		if err != nil {
			w.t.Errorf("decide: %v", err)
			return false
		}
		at, number := eventstore.NoStream, 0
		if ok {
			at = last.Revision
			if number, err = strconv.Atoi(string(last.Data)); err != nil {
				w.t.Error(err)
				return false
			}
		}
		err = w.append(stream, at, []eventstore.Proposed{
			{ID: uuid.New(), Type: "thing.counted.v1", Data: []byte(strconv.Itoa(number + 1)), Meta: []byte(`{}`)},
		})
		if err != nil && !errors.Is(err, eventstore.ErrConflict) {
			w.t.Errorf("decide: %v", err)
			return false
		}
		return true
	}
}

// follow takes some events of the log after the last one that it had, with a subscription of its own.
func (w *clusterLoad) follow(ctx context.Context, number, most int) bool {
	after := eventstore.Position(0)
	if had := w.seen[number]; len(had) > 0 {
		after = had[len(had)-1]
	}
	// A lagging member is left after a while, as the feed does.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	sub, err := w.store.Subscribe(ctx, after)
	for had := 0; err == nil && had < most; had++ {
		var r eventstore.Recorded
		if r, err = sub.Next(ctx); err == nil {
			w.seen[number] = append(w.seen[number], r.Position)
		}
	}
	if sub != nil {
		if err := sub.Close(); err != nil {
			w.t.Error(err)
		}
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, eventstore.ErrUnavailable) {
		w.t.Errorf("follow: %v", err)
		return false
	}
	return true
}

// finish ends the load and compares with the log.
func (w *clusterLoad) finish() {
	w.stop()
	w.running.Wait()
	var log []eventstore.Recorded
	for after := eventstore.Position(0); ; after = log[len(log)-1].Position {
		page, err := w.truth.ReadAll(w.ctx, after, 512)
		runtest.Must(w.t, err)
		if len(page) == 0 {
			break
		}
		log = append(log, page...)
	}
	at, stored := map[uuid.UUID]eventstore.Recorded{}, 0
	for _, r := range log {
		if before, twice := at[r.ID]; twice {
			w.t.Errorf("event %s is at %d and at %d", r.ID, before.Position, r.Position)
		}
		if w.lost[r.ID] {
			w.t.Errorf("event %d of %s is stored, and its append was answered with a conflict", r.Revision, r.Stream)
		}
		if r.Stream == "counter-1" && string(r.Data) != strconv.Itoa(int(r.Revision)+1) {
			w.t.Errorf("event %d of the counter is %s", r.Revision, r.Data)
		}
		at[r.ID] = r
	}
	for _, a := range w.acked {
		for i, id := range a.ids {
			r, ok := at[id]
			want := a.answer.Revision - eventstore.Revision(len(a.ids)-1-i)
			if !ok || r.Stream != a.stream || r.Revision != want {
				w.t.Errorf("event %d of %s was acknowledged, and the log has %+v", want, a.stream, r)
			}
			stored++
		}
		if last := at[a.ids[len(a.ids)-1]]; last.Position != a.answer.Position {
			w.t.Errorf("event %d of %s was acknowledged at %d and is at %d", last.Revision, a.stream, a.answer.Position, last.Position)
		}
	}
	if stored != len(log) {
		w.t.Errorf("%d events were acknowledged, and the log has %d", stored, len(log))
	}
	w.t.Logf("%d appends, %d conflicts, %d events", len(w.acked), len(w.lost), len(log))
	for number := range w.seen {
		for len(w.seen[number]) < len(log) && w.ctx.Err() == nil && w.follow(w.ctx, number, len(log)-len(w.seen[number])) {
			continue
		}
		had := w.seen[number]
		if len(had) != len(log) {
			w.t.Fatalf("follower %d had %d events, and the log has %d", number, len(had), len(log))
		}
		for i, position := range had {
			if position != log[i].Position {
				w.t.Fatalf("follower %d had %d as event %d, and the log has %d", number, position, i, log[i].Position)
			}
		}
	}
}

// An old leader that refuses an append before it has read it all: the driver loses the reason, and
// the append reaches the new leader all the same.
func TestCluster_AppendRefusedEarly(t *testing.T) {
	c := clustertest.Start(t, 2)
	store, ctx := openCluster(t, c.ConnectionString(soon...), 1), within(t, hangLimit)
	at := eventstore.NoStream
	for round := range 6 {
		events := make([]eventstore.Proposed, 10)
		for i := range events {
			events[i] = eventstore.Proposed{ID: uuid.New(), Type: "thing.done.v1", Data: bytes.Repeat([]byte{'1'}, 70<<10)}
		}
		done, err := eventstore.AppendUntilKnown(ctx, store, "own-1", at, events)
		if err != nil || done.Revision != at+10 {
			t.Fatalf("round %d: %+v, %v", round, done, err)
		}
		at = done.Revision
		c.Script(round%2, func(s *clustertest.Script) { s.Early = true })
		c.Lead((round + 1) % 2)
	}
	if got := store.Stats(); got.Moved < 5 || got.GivenUp < 5 || got.Connected <= got.Moved {
		t.Errorf("of 5 changes of the leader the store counts %+v", got)
	}
	if got := c.Node.Stats().Events; got != uint64(at)+1 {
		t.Errorf("%d events are stored, want %d", got, at+1)
	}
}
