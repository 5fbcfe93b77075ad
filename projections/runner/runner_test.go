package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	_ "github.com/annals-project/annals/internal/seedtest"
	"github.com/annals-project/annals/projections"
)

// continuing is a filled tally of version 2 that goes on with rows of version 1. Its shadow waits at the
// gate before each page.
type continuing struct {
	*filled
	gate *gate
}

func (continuing) Version() int               { return 2 }
func (continuing) Continues(version int) bool { return version == 1 }

func (c continuing) Shadow(ctx context.Context, resume string) (projections.Projector, bool, error) {
	next, resumed, err := c.filled.Shadow(ctx, resume)
	if err != nil {
		return nil, false, err
	}
	return gatedShadow{continuing{next.(*filled), c.gate}}, resumed, nil
}

type gatedShadow struct{ continuing }

func (g gatedShadow) Apply(ctx context.Context, tx pgx.Tx, page []eventstore.DecodedEvent) error {
	if err := g.gate.pass(); err != nil {
		return err
	}
	return g.filled.Apply(ctx, tx, page)
}

// gate holds pages until free is closed, or fails them once broken is. reached is closed by the first.
type gate struct {
	once                  sync.Once
	reached, free, broken chan struct{}
}

func newGate() *gate {
	return &gate{reached: make(chan struct{}), free: make(chan struct{}), broken: make(chan struct{})}
}

func (g *gate) pass() error {
	g.once.Do(func() { close(g.reached) })
	select {
	case <-g.free:
		return nil
	case <-g.broken:
		return context.Canceled
	}
}

// hold is pass for the pages of a tally.
func (g *gate) hold(context.Context, []eventstore.DecodedEvent) error { return g.pass() }

// While the rows of a new version are built, the process feeds and reads those of the version before.
// An end in the middle changes nothing. After the switch-over it goes on with the new rows.
func TestUpgrade_OldRowsContinued(t *testing.T) {
	t.Parallel()
	w, in := newWorld(t), &targets{held: map[string]map[eventstore.Position]bool{}}
	before, stop := startFilled(t, w, in)
	mustWait(t, before.Waiter(), w.add(t, "apple-1", 1, 2), "apples")
	stop()
	old := in.live
	start := func(g *gate) (*Runtime, func()) {
		rt := w.runtime(t, nil, continuing{&filled{tally: tally{family: "apple"}, in: in}, g})
		return rt, run(t, rt)
	}
	version := func() (v int) {
		t.Helper()
		runtest.Must(t, w.db.QueryRow(t.Context(), `select version from apples.checkpoint`).Scan(&v))
		return v
	}
	for round := range 2 {
		g := newGate()
		rt, stop := start(g)
		<-g.reached
		mustWait(t, rt.Waiter(), w.add(t, "apple-1", 3), "apples")
		w.wantTotals(t, "apples", total{"apple-1", int64(6 + 3*round), int64(3 + round)})
		if s := status(t, rt, "apples"); !s.Active || s.LastErr != nil || version() != 1 || in.live != old {
			t.Errorf("round %d: %+v, rows of version %d in %s", round, s, version(), in.live)
		}
		close(g.broken)
		stop()
	}
	g := newGate()
	rt, _ := start(g)
	<-g.reached
	other := w.start(t, nil, continuing{&filled{tally: tally{family: "apple"}, in: in}, g})
	last := w.add(t, "apple-1", 4)
	mustWait(t, other.Waiter(), last, "apples") // a standby reads the rows, too
	if s := status(t, other, "apples"); s.Active {
		t.Error("the standby is active")
	}
	close(g.free)
	eventually(t, "the new rows are in use", func() bool { return version() == 2 && status(t, rt, "apples").Active })
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 5), "apples")
	w.wantTotals(t, "apples", total{"apple-1", 18, 6})
	if in.live == old || len(in.shadows()) != 0 {
		t.Errorf("%s is in use, shadows %q", in.live, in.shadows())
	}
}

// Pages of any size give the same rows, and events after one that cannot be applied never show.
func TestRunner_PagesOfAnySize(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rapid.Check(t, func(rt *rapid.T) {
		facts, spoiled := drawLog(rt, w)
		cuts := rapid.SliceOfN(rapid.IntRange(1, 9), 1, 20).Draw(rt, "cuts")
		wantStop := spoiled < len(facts)
		one, oneStopped := w.rowsAfter(t, rt, facts, []int{1})
		many, manyStopped := w.rowsAfter(t, rt, facts, cuts)
		if diff := cmp.Diff(one, many); diff != "" {
			rt.Fatalf("one by one (-) and in pages (+):\n%s", diff)
		}
		if oneStopped != wantStop || manyStopped != wantStop {
			rt.Fatalf("stopped %t one by one and %t in pages, want %t", oneStopped, manyStopped, wantStop)
		}
	})
}

// drawLog draws facts of two families, at most one of which cannot be applied; spoiled is where, or
// their number.
func drawLog(rt *rapid.T, w *fixture) (facts []eventstore.DecodedEvent, spoiled int) {
	n := rapid.IntRange(1, 30).Draw(rt, "events")
	spoiled = rapid.IntRange(0, 2*n).Draw(rt, "spoiled")
	for i := range n {
		name := rapid.SampledFrom([]string{"apple-1", "apple-2", "pear-1"}).Draw(rt, "stream")
		f := eventstore.DecodedEvent{
			Recorded: eventstore.Recorded{Stream: name, Position: eventstore.Position(10 * (i + 1)), Type: "tally.added.v1"},
		}
		f.Event = &added{N: rapid.IntRange(0, 9).Draw(rt, "n")}
		if i == spoiled {
			f.Stream = "apple-1"
			f.Event = &added{N: rapid.SampledFrom([]int{refusedByApply, refusedByPanic, refusedByDatabase}).Draw(rt, "refused")}
		}
		facts = append(facts, f)
	}
	return facts, min(spoiled, n)
}

// rowsAfter applies facts to an empty projection in pages of the given sizes, the last size again
// and again.
func (w *fixture) rowsAfter(
	t *testing.T, rt *rapid.T, facts []eventstore.DecodedEvent, sizes []int,
) (rows []total, stopped bool) {
	w.exec(t, "drop schema if exists apples cascade")
	runtime := w.runtime(t, nil, tally{family: "apple"})
	r := runtime.runners[0]
	turn, err := r.takeLease(t.Context())
	runtest.Must(rt, err)
	defer turn.end()
	after := eventstore.Position(0)
	for i := 0; len(facts) > 0; i++ {
		size := min(sizes[min(i, len(sizes)-1)], len(facts))
		page := feed.Page{After: after, Next: facts[size-1].Position, Events: facts[:size]}
		if err := r.applyPage(t.Context(), turn, page); err != nil {
			if _, ok := errors.AsType[*Stop](err); !ok {
				rt.Fatal(err)
			}
			return w.totals(t, "apples"), true
		}
		after, facts = page.Next, facts[size:]
	}
	return w.totals(t, "apples"), false
}

// newNodeWorld is a world whose log is the embedded node, reached through the driver.
func newNodeWorld(t *testing.T) *fixture {
	t.Helper()
	return worldOver(t, pgtest.Database(t), nodetest.Store(t, node.Config{Dir: t.TempDir()}))
}

func TestRunner_OnTheNode(t *testing.T) {
	t.Parallel()
	w := newNodeWorld(t)
	for n := range 700 { // more than a page
		w.add(t, fmt.Sprintf("apple-%d", n%3), 1)
	}
	rt := w.runtime(t, nil, tally{family: "apple"}, tally{family: "pear"})
	stop := run(t, rt)
	var writers sync.WaitGroup
	for n := range 4 {
		// Each writer has a separate map of revisions and separate streams.
		own := &fixture{store: w.store, next: map[string]eventstore.Revision{}}
		writers.Go(func() {
			for range 50 {
				own.add(t, fmt.Sprintf("pear-%d", n), 2)
			}
		})
	}
	writers.Wait()
	head, err := w.store.Head(t.Context())
	runtest.Must(t, err)
	mustWait(t, rt.Waiter(), head, "apples", "pears") // before the events of one stream are gone
	runtest.Must(t, errorOf(w.store.Tombstone(t.Context(), "apple-0", w.next["apple-0"]-1)))
	if head, err = w.store.Head(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustWait(t, rt.Waiter(), head, "apples", "pears")
	apples := []total{{"apple-0", 234, 234}, {"apple-1", 233, 233}, {"apple-2", 233, 233}}
	w.wantTotals(t, "apples", apples...)
	w.wantTotals(t, "pears", total{"pear-0", 100, 50}, total{"pear-1", 100, 50}, total{"pear-2", 100, 50},
		total{"pear-3", 100, 50})
	stop()

	// The next process finds the same log, and rebuilds the same rows from the remaining events.
	again := w.start(t, nil, tally{family: "apple", version: 2}, tally{family: "pear"})
	mustWait(t, again.Waiter(), head, "apples", "pears")
	eventually(t, "the same log is accepted", func() bool { return status(t, again, "pears").Active })
	left := w.totals(t, "apples")
	for _, row := range left {
		if row.Stream != "apple-0" && row != apples[1] && row != apples[2] {
			t.Errorf("row %+v after the rebuild", row)
		}
	}
}

// Pages do not wait for the disk, so a server that crashes forgets the newest ones. Rows and
// checkpoint forget the same.
func TestRunner_ServerCrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := startServer(t, dir)
	db, err := pg.OpenPool(t.Context(), server.URL())
	runtest.Must(t, err)
	t.Cleanup(db.Close)
	w := worldOver(t, db, eventstoretest.NewMemory())
	rt := w.start(t, nil, tally{family: "apple"}, tally{family: "pear"})
	for range 3 {
		for range 40 {
			w.add(t, "apple-1", 1)
			mustWait(t, rt.Waiter(), w.add(t, "pear-1", 2), "apples", "pears")
		}
		crash(t, dir)
		<-server.Exited()
		if err := server.Close(); err != nil {
			t.Log(err)
		}
		server = startServer(t, dir)
	}
	// Health may still report both as they were before the crash: it does not read the checkpoint.
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples", "pears")
	eventually(t, "the turns go on", func() bool {
		for _, s := range rt.Health(t.Context()) {
			if !s.Active || s.Stop != nil || s.LastErr != nil || s.Head == 0 || s.Lag() > 0 {
				return false
			}
		}
		return true
	})
	db.Reset() // drop connections from before the crash, so that queries of the test do not use them
	w.wantTotals(t, "apples", total{"apple-1", 121, 121})
	w.wantTotals(t, "pears", total{"pear-1", 240, 120})
}

func startServer(t *testing.T, dir string) *pg.Server {
	t.Helper()
	server, err := pg.Start(t.Context(), pg.Config{DataDir: dir, Settings: map[string]string{"fsync": "off"}})
	runtest.Must(t, err)
	t.Cleanup(func() {
		var exit interface{ ExitCode() int }
		if err := server.Close(); err != nil && !errors.As(err, &exit) { // ignore the exit code of a crash
			t.Error(err)
		}
	})
	return server
}

// crash kills the server, which loses everything that it has not yet written.
func crash(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	runtest.Must(t, err)
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	runtest.Must(t, err)
	runtest.Must(t, syscall.Kill(pid, syscall.SIGQUIT))
}

// foreignSchemas are schemas of another application, by names that the projections use too. Some have a table
// "checkpoint", as ours do.
var foreignSchemas = map[string]string{
	"with a name of ours": `create schema apples; create table apples.customers (name text)`,
	"with a table":        `create schema apples; create table apples.customers (name text); create table apples.checkpoint (at int)`,
	"with our columns": `create schema apples; create table apples.customers (name text);
		create table apples.checkpoint (epoch int, holder int, position int, log_id uuid, last_event_id int, target int)`,
	"with a comment": `create schema apples; create table apples.customers (name text);
		comment on schema apples is 'annals log of the harvest'`,
}

func TestRunner_SchemaOfAnotherApplication(t *testing.T) {
	for name, sql := range foreignSchemas {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.exec(t, sql)
			w.exec(t, `insert into apples.customers values ('Ana')`)
			rt := w.start(t, nil, tally{family: "apple"})
			w.add(t, "apple-1", 1)
			eventually(t, "it stops", func() bool { return rt.waiter.local["apples"].snapshot().stop != nil })
			if stop := rt.waiter.local["apples"].snapshot().stop; !strings.Contains(stop.Error(),
				"schema apples of the database is of another") {
				t.Errorf("stop %v", stop)
			}
			wantNoRebuild(t, rt, "schema apples")
			w.wantCustomers(t, "apples")
		})
	}
}

func (w *fixture) wantCustomers(t *testing.T, schemas ...string) {
	t.Helper()
	for _, schema := range schemas {
		var n int
		if err := w.db.QueryRow(t.Context(), `select count(*) from `+schema+`.customers`).Scan(&n); err != nil || n != 1 {
			t.Errorf("%s has %d customers, %v", schema, n, err)
		}
	}
}

// What looks like a leftover of a rebuild is dropped only if it is proved to be of the log.
func TestDropLeftovers_OfOthers(t *testing.T) {
	w := newWorld(t)
	apples := tally{family: "apple"}
	other := worldOver(t, w.db, eventstoretest.NewMemory())
	other.start(t, nil, tally{family: "pear"})
	mustWait(t, NewWaiter(w.db), other.add(t, "pear-1", 1), "pears")
	other.killedRebuild(t, tally{family: "pear"})
	foreign := []string{"apples_next", "apples_old_7", "harvest_next", "harvest_old_12"}
	for _, schema := range foreign {
		w.exec(t, `create schema `+schema)
		w.exec(t, `create table `+schema+`.customers (name text); insert into `+schema+`.customers values ('Ana')`)
		w.exec(t, `create table `+schema+`.checkpoint (position bigint, until timestamptz)`)
	}
	rt := w.start(t, nil, apples)
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	w.exec(t, `update pears_next.checkpoint set until = clock_timestamp()`)
	if err := rt.DropLeftovers(limited(t)); err != nil {
		t.Error(err)
	}
	if _, err := (Vacuum{DB: w.db, LogID: w.id, Leftovers: rt.DropLeftovers}).Vacuum(limited(t)); err != nil {
		t.Error(err)
	}
	wantNoRebuild(t, rt, "schema apples_next")
	if list, err := Rebuilds(t.Context(), w.db, w.id); err != nil || len(list) > 0 {
		t.Errorf("rebuilds %+v, %v", list, err)
	}
	w.wantCustomers(t, foreign...)
	w.wantSchemas(t, "pears", 2)
	w.exec(t, `drop schema apples_next cascade`)
	if err := rt.Rebuild(limited(t), "apples", nil); err != nil {
		t.Error(err)
	}
	w.wantTotals(t, "apples", total{"apple-1", 1, 1})
}

// Another application may write to streams whose names begin like those of a projection. A malformed event in a stream
// of ours stops the projection.
func TestRunner_StreamsOfAnotherApplication(t *testing.T) {
	w := newWorld(t)
	mine := stream.Name(stream.Project, uuid.New())
	foreign := []string{"project-1", "project-", "project", mine + "-1", strings.ToUpper(mine), "project-" + mine}
	for _, name := range foreign {
		w.append(t, name, "order-placed", map[string]int{"n": 1})
	}
	w.add(t, mine, 1)
	rt := w.start(t, nil, tally{family: stream.Project})
	mustWait(t, rt.Waiter(), w.add(t, mine, 2), "projects")
	for _, name := range foreign {
		w.append(t, name, "tally.added.v1", "no number") // of a name that we know
	}
	mustWait(t, rt.Waiter(), w.add(t, mine, 3), "projects")
	w.wantTotals(t, "projects", total{mine, 6, 3})
	if err := rt.Rebuild(limited(t), "projects", nil); err != nil {
		t.Error(err)
	}
	w.wantTotals(t, "projects", total{mine, 6, 3})
	w.append(t, mine, "order-placed", map[string]int{"n": 1})
	eventually(t, "it stops at a malformed event of ours", func() bool {
		stop := status(t, rt, "projects").Stop
		return stop != nil && stop.Stream == mine
	})
}
