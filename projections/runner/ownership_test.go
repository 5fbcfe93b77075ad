package runner

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/pg/ownership"
)

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
			rt := w.runtime(t, nil, tally{family: "apple"})
			run(t, rt)
			w.add(t, "apple-1", 1)
			eventually(t, "it stops", func() bool { return rt.waiter.local["apples"].snapshot().stop != nil })
			if stop := rt.waiter.local["apples"].snapshot().stop; !strings.Contains(stop.Error(),
				"schema apples of the database is of another") {
				t.Errorf("stop %v", stop)
			}
			if err := rt.Rebuild(limited(t), "apples", nil); err == nil || !strings.Contains(err.Error(), "schema apples") {
				t.Errorf("a rebuild ends with %v", err)
			}
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
	other := &fixture{
		db: w.db, store: eventstoretest.NewMemory(), codec: w.codec, logID: uuid.New(), next: map[string]eventstore.Revision{},
	}
	run(t, other.runtime(t, nil, tally{family: "pear"}))
	mustWait(t, NewWaiter(w.db), other.add(t, "pear-1", 1), "pears")
	other.killedRebuild(t, tally{family: "pear"})
	foreign := []string{"apples_next", "apples_old_7", "harvest_next", "harvest_old_12"}
	for _, schema := range foreign {
		w.exec(t, `create schema `+schema)
		w.exec(t, `create table `+schema+`.customers (name text); insert into `+schema+`.customers values ('Ana')`)
		w.exec(t, `create table `+schema+`.checkpoint (position bigint, until timestamptz)`)
	}
	rt := w.runtime(t, nil, apples)
	run(t, rt)
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	w.exec(t, `update pears_next.checkpoint set until = clock_timestamp()`)
	if err := rt.DropLeftovers(limited(t)); err != nil {
		t.Error(err)
	}
	if _, err := (Vacuum{DB: w.db, LogID: w.id, Leftovers: rt.DropLeftovers}).Vacuum(limited(t)); err != nil {
		t.Error(err)
	}
	if err := rt.Rebuild(limited(t), "apples", nil); err == nil || !strings.Contains(err.Error(), "schema apples_next") {
		t.Errorf("a rebuild ends with %v", err)
	}
	if list, err := Rebuilds(t.Context(), w.db, w.id); err != nil || len(list) > 0 {
		t.Errorf("rebuilds %+v, %v", list, err)
	}
	w.wantCustomers(t, foreign...)
	if n := w.schemas(t, "pears"); n != 2 {
		t.Errorf("%d schemas of the other log, want 2", n)
	}
	w.exec(t, `drop schema apples_next cascade`)
	if err := rt.Rebuild(limited(t), "apples", nil); err != nil {
		t.Error(err)
	}
	w.wantTotals(t, "apples", total{"apple-1", 1, 1})
}

// A schema from before schemas were marked is of the log that its checkpoint names, and so are its leftovers.
func TestRunner_SchemasWithoutMark(t *testing.T) {
	w := newWorld(t)
	apples := tally{family: "apple"}
	stop := run(t, w.runtime(t, nil, apples))
	mustWait(t, NewWaiter(w.db), w.add(t, "apple-1", 1), "apples")
	stop()
	w.killedRebuild(t, apples)
	w.exec(t, `update apples_next.checkpoint set until = clock_timestamp()`)
	w.exec(t, `comment on schema apples is null; comment on schema apples_next is null`)
	rt := w.runtime(t, nil, apples)
	run(t, rt)
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 2), "apples")
	w.wantTotals(t, "apples", total{"apple-1", 3, 2})
	eventually(t, "the shadow is dropped", func() bool { return w.schemas(t, "apples") == 1 })
	if err := rt.Rebuild(limited(t), "apples", nil); err != nil {
		t.Fatal(err)
	}
	s, ok, err := ownership.One(t.Context(), w.db, "apples")
	if err != nil || !ok || !s.Marked || s.LogID != w.logID {
		t.Errorf("after a rebuild: %+v, %t, %v", s, ok, err)
	}
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
	rt := w.runtime(t, nil, tally{family: stream.Project})
	run(t, rt)
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
