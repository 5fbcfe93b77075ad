package server

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

// operatorStep is what an operator does, and undoes.
type operatorStep struct {
	name string
	do   func(w *operatorWalk, what string)
}

// operatorSteps are all that an operator does. A step leaves the stores such that the service becomes ready by itself.
var operatorSteps = []operatorStep{
	{"the service restarts", func(w *operatorWalk, _ string) { w.stop(); w.start() }},
	{"the event store restarts", func(w *operatorWalk, _ string) { w.log.restart(func() {}) }},
	{"the event store freezes", func(w *operatorWalk, what string) {
		w.log.wire.Mute(true)
		w.awaitEffect(what)
		w.log.wire.Mute(false)
		w.log.wire.Cut() // what it answered meanwhile is lost
	}},
	{"the newer log is put back", func(w *operatorWalk, what string) { w.restore(what, false) }},
	{"the older log is accepted", func(w *operatorWalk, what string) { w.restore(what, true) }},
	{"Postgres freezes", func(w *operatorWalk, what string) {
		w.pooler.Freeze()
		w.awaitEffect(what)
		w.pooler.Thaw()
	}},
	{"sessions are ended", func(w *operatorWalk, _ string) { w.endSessions() }},
	{"a table has another owner", func(w *operatorWalk, what string) {
		table := w.table()
		w.sql("alter table " + table + " owner to " + w.admin.Config().User)
		w.awaitEffect(what + " " + table)
		w.sql("alter table " + table + " owner to " + w.role)
	}},
	{"a schema has no rights", func(w *operatorWalk, what string) {
		schema, _, _ := strings.Cut(w.table(), ".")
		w.sql("revoke all on schema " + schema + " from " + w.role)
		w.awaitEffect(what + " " + schema)
		w.sql("grant all on schema " + schema + " to " + w.role)
	}},
	{"a table is locked", func(w *operatorWalk, what string) {
		tx, err := w.admin.Begin(w.background())
		runtest.Must(w.t, err)
		table := w.table()
		_, err = tx.Exec(w.background(), "lock table "+table+" in access exclusive mode")
		runtest.Must(w.t, err)
		w.awaitEffect(what + " " + table)
		runtest.Must(w.t, tx.Rollback(w.background()))
	}},
	{"the database is read-only", func(w *operatorWalk, what string) {
		w.sql("alter database " + w.database + " set default_transaction_read_only = on")
		w.endSessions()
		w.awaitEffect(what)
		w.sql("set default_transaction_read_only = off")
		w.sql("alter database " + w.database + " reset default_transaction_read_only")
		w.endSessions() // the pooler keeps those that were opened meanwhile
		// One that was just being opened is listed later: no program without retries must get it.
		taken := w.load.count()
		runtest.Await(w.t, what+": sends are taken again", func() bool { return w.load.count() > taken+loadWidth })
		w.endSessions()
	}},
	{"the pooler changes its mode", func(w *operatorWalk, _ string) {
		if w.mode = pgtest.SessionMode; w.rng.IntN(2) == 0 {
			w.mode = pgtest.TransactionMode
		}
		w.pooler.SetMode(w.mode)
	}},
	{"another application makes schemas", func(w *operatorWalk, _ string) { w.others.makeSchema(w) }},
	{"another application has a schema of our name", (*operatorWalk).refusesSchema},
	{"another application writes streams", func(w *operatorWalk, _ string) { w.others.writeStreams(w) }},
}

func (w *operatorWalk) background() context.Context { return context.WithoutCancel(w.t.Context()) }

func (w *operatorWalk) sql(statement string) {
	w.t.Helper()
	if _, err := w.admin.Exec(w.background(), statement); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
}

func (w *operatorWalk) endSessions() {
	w.t.Helper()
	w.sql(`select pg_terminate_backend(pid) from pg_stat_activity where usename = '` + w.role + `'`)
}

// table is one of the tables of the service, with its schema.
func (w *operatorWalk) table() string {
	w.t.Helper()
	rows, err := w.admin.Query(w.background(),
		`select schemaname || '.' || tablename from pg_tables where tableowner = $1 order by 1`, w.role)
	runtest.Must(w.t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	runtest.Must(w.t, err)
	return names[w.rng.IntN(len(names))]
}

// restore puts the event store back from a copy that lacks some sends. The service takes no send after that, and shows
// why. Then the operator puts the newer log back, or accepts the older one, of which the sends after the copy are gone.
func (w *operatorWalk) restore(what string, accept bool) {
	w.t.Helper()
	before, others := w.load.count(), maps.Clone(w.others.streams)
	kept, newer := filepath.Join(w.log.TempDir(), "copy"), filepath.Join(w.log.TempDir(), "newer")
	w.log.restart(func() { runtest.Must(w.t, os.CopyFS(kept, os.DirFS(w.log.dir))) })
	copied := w.load.count()
	runtest.Await(w.t, what+": sends are taken after the copy", func() bool { return w.load.count() > copied+loadWidth })
	w.log.restart(func() {
		runtest.Must(w.t, os.Rename(w.log.dir, newer))
		runtest.Must(w.t, os.Rename(kept, w.log.dir))
	})
	runtest.Await(w.t, what+": /readyz shows that the log is an older copy", func() bool {
		return strings.Contains(w.readyz().body, "older copy")
	})
	w.stop()
	if accept {
		// A renewal that the stop cut off may have come after the release: then the rebuild is refused for four seconds.
		runtest.Await(w.t, what+": no process has the lease of the index", func() bool {
			var left bool
			err := w.admin.QueryRow(w.background(), `select until > clock_timestamp() from recallindex.checkpoint`).Scan(&left)
			runtest.Must(w.t, err)
			return !left
		})
		w.acceptOlderCopy()
		w.load.forget(before)
		w.confirmed, w.others.streams = min(w.confirmed, before), others
		runtest.Must(w.t, os.RemoveAll(newer))
	} else {
		w.log.restart(func() {
			runtest.Must(w.t, os.RemoveAll(w.log.dir))
			runtest.Must(w.t, os.Rename(newer, w.log.dir))
		})
	}
	w.start()
}

// refusesSchema restarts the service next to a schema of another application that has a name of the service: the start
// is refused, and the schema keeps what it holds. The other application gives it another name.
func (w *operatorWalk) refusesSchema(string) {
	w.t.Helper()
	schema := fmt.Sprintf("trace_old_%d", 1000+w.rng.IntN(1000))
	if w.rng.IntN(2) == 0 {
		schema = "memories_next"
	}
	w.sql("create schema " + schema + "; create table " + schema + ".customers (name text); insert into " + schema +
		".customers values ('Ana')")
	w.stop()
	w.wantRefused("schema " + schema + " of the database is of another application")
	name := w.others.name(w)
	w.sql("alter schema " + schema + " rename to " + name)
	w.others.schemas[name] = 1
	w.start()
}

// otherApplication is another application on the same stores: how many customers are in each of its schemas, and which
// events in each of its streams.
type otherApplication struct {
	schemas map[string]int
	streams map[string][]uuid.UUID
	names   int
}

func (o *otherApplication) name(w *operatorWalk) string {
	if o.schemas == nil {
		o.schemas = map[string]int{}
	}
	o.names++
	return fmt.Sprintf("%s_%d", []string{"crm", "usage_of_others", "directory_data"}[w.rng.IntN(3)], o.names)
}

func (o *otherApplication) makeSchema(w *operatorWalk) {
	w.t.Helper()
	name, rows := o.name(w), 1+w.rng.IntN(5)
	w.sql(fmt.Sprintf("create schema %s; create table %s.customers as select 'Ana' as name from generate_series(1, %d)",
		name, name, rows))
	o.schemas[name] = rows
	if len(o.schemas) > 20 { // it gives up an old one
		old := slices.Sorted(maps.Keys(o.schemas))[0]
		w.sql("drop schema " + old + " cascade")
		delete(o.schemas, old)
	}
}

// open connects the other application to the event store.
func (o *otherApplication) open(w *operatorWalk) *esdb.Store {
	w.t.Helper()
	store, err := esdb.Open(esdb.Config{
		ConnectionString: w.log.node.Connection().ConnectionString(), Logger: runtest.Warnings(w.t),
	})
	runtest.Must(w.t, err)
	return store
}

// writeStreams writes to streams whose names are nearly those of the service.
func (o *otherApplication) writeStreams(w *operatorWalk) {
	w.t.Helper()
	if o.streams == nil {
		o.streams = map[string][]uuid.UUID{}
	}
	store := o.open(w)
	defer func() { runtest.Must(w.t, store.Close()) }()
	for _, category := range []string{"project", "person", "identity", "usage", "memory", "crm"} {
		name := fmt.Sprintf("%s-%d", category, w.rng.IntN(5))
		e := eventstore.Proposed{ID: uuid.New(), Type: "customer.called", Data: []byte(`{"name":"Ana"}`), Meta: []byte(`{}`)}
		at := eventstore.Revision(len(o.streams[name]) - 1)
		if _, err := store.Append(w.background(), name, at, []eventstore.Proposed{e}); err != nil {
			w.t.Fatalf("append of the other application: %v", err)
		}
		o.streams[name] = append(slices.Clip(o.streams[name]), e.ID)
	}
}

// check checks that the other application has what it had.
func (o *otherApplication) check(w *operatorWalk) {
	w.t.Helper()
	for schema, want := range o.schemas {
		var n int
		err := w.admin.QueryRow(w.background(), "select count(*) from "+schema+".customers").Scan(&n)
		if err != nil || n != want {
			w.t.Fatalf("schema %s has %d customers, want %d: %v", schema, n, want, err)
		}
	}
	if len(o.streams) == 0 {
		return
	}
	store := o.open(w)
	defer func() { runtest.Must(w.t, store.Close()) }()
	for name, want := range o.streams {
		events, err := store.Read(w.background(), name, 0, eventstore.Forwards, len(want)+1)
		var got []uuid.UUID
		for _, e := range events {
			got = append(got, e.ID)
		}
		if err != nil || !slices.Equal(got, want) {
			w.t.Fatalf("stream %s has the events %v, want %v: %v", name, got, want, err)
		}
	}
}
