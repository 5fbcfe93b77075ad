package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/ownership"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/pg/schemas"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/runtest"
)

// newShared makes a service whose schemas in a database have a prefix.
func newShared(t *testing.T, url, prefix string) *harness {
	h := newHarness(t)
	h.postgres = url
	h.set = func(cfg *Config) { cfg.SchemaPrefix = prefix }
	return h
}

// databaseState is what a service has in its database: which schemas, the epochs of its leases, and rows that its calls
// write.
func databaseState(t testing.TB, db *pgxpool.Pool) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(key, sql string, args ...any) {
		t.Helper()
		var found string
		if err := db.QueryRow(t.Context(), sql, args...).Scan(&found); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		all[key] = found
	}
	prefix := pg.SchemaPrefixOf(db)
	names := schemas.Names()
	for i, name := range names {
		names[i] = prefix.Name(name)
	}
	add("schemas", `select string_agg(oid::text || ' ' || nspname || ' ' || coalesce(obj_description(oid, 'pg_namespace'), ''), ','
		order by nspname) from pg_namespace where nspname = any($1) or nspname ~ $2`, names, prefix.Projections())
	for _, projection := range []string{"access", "datapoints", "directory", "memories", "reads", "recallindex", "trace", "usage"} {
		add("epoch of "+projection, `select epoch::text from `+pgx.Identifier{projection}.Sanitize()+`.checkpoint`)
	}
	for _, table := range []string{"datapoints.data_points", "memories.memories", "ops.sealed_keys"} {
		add(table, `select count(*)::text from `+table)
	}
	return all
}

// use sends, recalls, deletes, erases and rebuilds, for the time that it counts, and wants that the service finds its
// own text alone.
func (h *harness) use(name string, time int) {
	h.t.Helper()
	key, _ := h.keys()
	for i := range 3 {
		content := fmt.Sprintf("The parcel of %s has number %d%d.", name, time, i)
		h.send(key, "/ingest", "completed", point{"id": fmt.Sprint(name, time, "-", i), "content": content})
	}
	h.must(key, http.MethodPost, api+"/data-points/delete", point{"ids": []string{fmt.Sprint(name, time, "-0")}}, nil)
	h.eraseNow()
	h.finds(name, time)
	h.rebuilds()
	h.finds(name, time)
}

// finds wants that the service finds what use has left after some times, and nothing of others.
func (h *harness) finds(name string, times int) {
	h.t.Helper()
	key, _ := h.keys()
	found, want := map[string]bool{}, map[string]bool{}
	for time := range times {
		want[fmt.Sprint(name, time+1, "-1")], want[fmt.Sprint(name, time+1, "-2")] = true, true
	}
	for _, source := range h.sources(key, "Which number has the parcel?", "ana") {
		found[source.SourceID] = true
	}
	if !maps.Equal(found, want) {
		h.t.Errorf("service %s finds %v, want %v", name, found, want)
	}
}

// Services of several logs and another application share a database, as long as the names of their schemas differ.
func TestServer_SharedDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	open := func(prefix string) *pgxpool.Pool {
		db, err := pg.OpenPool(t.Context(), url, pg.SchemaPrefix(prefix))
		runtest.Must(t, err)
		t.Cleanup(db.Close)
		return db
	}
	plain := open("")
	exec := func(sql string) {
		t.Helper()
		_, err := plain.Exec(t.Context(), sql)
		runtest.Must(t, err)
	}
	exec(`create schema access; create table access.customers (name text); insert into access.customers values ('Ana');
		create schema trace_old_7; create table trace_old_7.customers (name text); insert into trace_old_7.customers values ('Bo')`)
	customers := func() {
		t.Helper()
		var names string
		err := plain.QueryRow(t.Context(), `select string_agg(name, ',' order by name)
			from (select name from access.customers union all select name from trace_old_7.customers) c`).Scan(&names)
		if err != nil || names != "Ana,Bo" {
			t.Errorf("customers %q, %v", names, err)
		}
	}
	a, b, none := newShared(t, url, "a_"), newShared(t, url, "b_"), newShared(t, url, "")
	none.wantRefused("access of the database is of another application", "ANNALS_POSTGRES_SCHEMA_PREFIX")
	a.start()
	b.start()
	a.use("alpha", 1)
	b.use("beta", 1)
	customers()
	exec(`drop schema access cascade; drop schema trace_old_7 cascade`) // the other application moves away
	none.start()
	none.use("gamma", 1)

	// What one service does changes nothing of the others.
	databases := map[string]*pgxpool.Pool{"alpha": open("a_"), "beta": open("b_"), "gamma": plain}
	services := map[string]*harness{"alpha": a, "beta": b, "gamma": none}
	for name, h := range services {
		before := map[string]map[string]string{}
		for other, db := range databases {
			before[other] = databaseState(t, db)
		}
		h.use(name, 2)
		for other, db := range databases {
			diff := cmp.Diff(before[other], databaseState(t, db))
			if (other == name) != strings.Contains(diff, "schemas") {
				t.Errorf("after the work of %s, the difference of %s is %q", name, other, diff)
			} else if other != name && diff != "" {
				t.Errorf("work of %s changes %s (-before +after):\n%s", name, other, diff)
			}
		}
	}
	for name, h := range services {
		h.finds(name, 2)
	}
	a.movesToAnotherPrefix(databases["alpha"], open)
}

// movesToAnotherPrefix starts the service with another prefix: it goes on with the schemas if they are renamed, and
// begins with new ones otherwise.
func (h *harness) movesToAnotherPrefix(db *pgxpool.Pool, open func(prefix string) *pgxpool.Pool) {
	t := h.t
	t.Helper()
	h.stop()
	before := databaseState(t, db)
	for _, name := range schemas.Names() {
		if name == projection.Embeddings {
			continue // without a model there is none
		}
		_, err := db.Exec(t.Context(), `alter schema `+name+` rename to d_`+name)
		runtest.Must(t, err)
	}
	h.set = func(cfg *Config) { cfg.SchemaPrefix = "d_" }
	h.start()
	h.finds("alpha", 2)
	renamed := databaseState(t, h.storage.db)
	h.stop()
	if want := strings.ReplaceAll(before["schemas"], " a_", " d_"); renamed["schemas"] != want {
		t.Errorf("schemas %s, want %s", renamed["schemas"], want)
	}
	if keys := renamed["ops.sealed_keys"]; keys != before["ops.sealed_keys"] || keys == "0" {
		t.Errorf("%s sealed keys, want %s", keys, before["ops.sealed_keys"])
	}

	db = open("d_")
	// A rebuild of the service left it when it had that prefix.
	_, err := db.Exec(t.Context(), `create schema trace_old_7; `+ownership.MarkStatement("trace_old_7", h.storage.logID))
	runtest.Must(t, err)
	renamed = databaseState(t, db)
	h.set = func(cfg *Config) { cfg.SchemaPrefix = "e_" }
	h.start()
	h.finds("alpha", 2)
	h.eraseNow()
	if diff := cmp.Diff(renamed, databaseState(t, db)); diff != "" {
		t.Errorf("what the old prefix names changes:\n%s", diff)
	}
	if oids := databaseState(t, h.storage.db)["schemas"]; !strings.Contains(oids, " e_ops ") || !strings.Contains(oids, " e_access ") {
		t.Errorf("schemas %s", oids)
	}
}

// wantRefused starts a service, which must be refused in some words.
func (h *harness) wantRefused(words ...string) {
	h.t.Helper()
	cfg := h.config()
	ctx, cancel := context.WithTimeout(h.t.Context(), runtest.Timeout)
	defer cancel()
	s, err := New(ctx, cfg)
	if err == nil {
		_ = s.Close()
		h.t.Fatalf("the service starts, want that it is refused: %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			h.t.Errorf("refused with %q, want %q in it", err, w)
		}
	}
}

// onNode has a service use an event store of its own, and returns that.
func (h *harness) onNode() *esdb.Store {
	h.t.Helper()
	n := nodetest.Start(h.t, node.Config{Insecure: true})
	h.set = func(cfg *Config) { cfg.EventStore = n.Connection().ConnectionString() }
	return nodetest.Open(h.t, nodetest.ConfigOf(n.Connection()))
}

// ids are the ids of all events of a store.
func ids(t *testing.T, store eventstore.Store) (list []uuid.UUID) {
	t.Helper()
	for _, r := range eventstoretest.All(t, store, 0) {
		list = append(list, r.ID)
	}
	return list
}

// added reports whether a store holds an event that is none of these. The node removes what is deleted when it comes to
// it, so that some of them may be gone.
func added(t *testing.T, store eventstore.Store, before []uuid.UUID) bool {
	t.Helper()
	return slices.ContainsFunc(ids(t, store), func(id uuid.UUID) bool { return !slices.Contains(before, id) })
}

func (h *harness) database() *pgxpool.Pool {
	h.t.Helper()
	db, err := pg.OpenPool(h.t.Context(), h.postgres)
	runtest.Must(h.t, err)
	h.t.Cleanup(db.Close)
	return db
}

// A database may hold schemas of other applications, with names that this service uses too. Nothing of them changes,
// and nothing is written to the log or the data folder.
func TestServer_SchemasOfAnotherApplication(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	store := h.onNode()
	before := ids(t, store)
	h.postgres = pgtest.URL(t)
	db := h.database()
	for _, schema := range []string{"access", "usage", "directory_next", "trace_old_7"} {
		_, err := db.Exec(t.Context(), `create schema `+schema+`; create table `+schema+`.customers (name text);
			insert into `+schema+`.customers values ('Ana')`)
		runtest.Must(t, err)
		h.wantRefused(schema+" of the database is of another application", "use another database",
			"ANNALS_POSTGRES_SCHEMA_PREFIX")
		var n int
		if err := db.QueryRow(t.Context(), `select count(*) from `+schema+`.customers`).Scan(&n); err != nil || n != 1 {
			t.Errorf("%d customers, %v", n, err)
		}
		_, err = db.Exec(t.Context(), `drop schema `+schema+` cascade`)
		runtest.Must(t, err)
	}
	if added(t, store, before) {
		t.Error("the log was begun")
	}
	if !(datafolder.Folder{Dir: h.dir}).IsNew() {
		t.Error("keys were written")
	}
}

// files are the names and sizes of the small files of the data folder.
func (h *harness) files() string {
	h.t.Helper()
	entries, err := os.ReadDir(h.dir)
	runtest.Must(h.t, err)
	var list []string
	for _, e := range entries {
		if !e.IsDir() {
			text, err := os.ReadFile(filepath.Join(h.dir, e.Name()))
			runtest.Must(h.t, err)
			list = append(list, e.Name()+"="+string(text))
		}
	}
	return strings.Join(list, "\n")
}

// What somebody did to the event store, or another one at its address, is refused in its own words, and nothing is
// written there. Two logs never share a database: what the calls of one cost stays counted.
func TestServer_AnotherEventStore(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	h.onNode()
	h.start()
	h.stop()
	refused := func(h *harness, store *esdb.Store, name string, words ...string) {
		t.Helper()
		before, folder := ids(t, store), h.files()
		h.wantRefused(words...)
		if added(t, store, before) || h.files() != folder {
			t.Errorf("%s: something was written", name)
		}
	}
	filled, db := h.postgres, h.database()
	_, err := db.Exec(t.Context(), `insert into ops.charges
			(project_id, month, flush_id, organization_id, recalls, recall_tenths, since)
		values (gen_random_uuid(), '2026-11', $1, gen_random_uuid(), 40, 40, now() - interval '1 day')`, uuid.Nil)
	runtest.Must(t, err)
	other := newHarness(t)
	store := other.onNode()
	other.start() // on a database of its own
	other.stop()
	other.postgres = filled
	const another, held = "of the database is of log ", "and the event store holds log "
	refused(other, store, "another database beside its folder", another, held, "use another database")
	var recalls int
	err = db.QueryRow(t.Context(), `select sum(recalls) from ops.charges`).Scan(&recalls)
	if err != nil || recalls != 40 {
		t.Errorf("%d recalls are counted, %v", recalls, err)
	}
	h.start()
	h.stop()

	empty := h.onNode()
	refused(h, empty, "beside all", "the event store is empty, and data folder ")
	h.postgres = pgtest.URL(t)
	refused(h, empty, "beside the data folder", "the event store is empty, and data folder ")
	runtest.Must(t, os.Remove(filepath.Join(h.dir, datafolder.LogIDFile))) // as an earlier version left it
	values := h.credentials()
	values[datafolder.OwnerEmailName] = "ana@acme.example"
	runtest.Must(t, datafolder.WriteCredentials(h.dir, values))
	refused(h, empty, "beside the credentials", "the event store is empty, and ", "has the owner of an organization")
	h.postgres, h.dir = filled, filepath.Join(t.TempDir(), "new")
	runtest.Must(t, os.Mkdir(h.dir, 0o700))
	refused(h, empty, "beside the tables", "the event store is empty, and schema ", another)
	h.set = other.set
	refused(h, store, "another log beside the tables", held)

	_, err = store.Append(t.Context(), "$$"+stream.Registry, eventstore.NoStream, []eventstore.Proposed{
		{ID: uuid.New(), Type: eventstore.MetadataType, Data: []byte(`{"$tb":2}`)},
	})
	runtest.Must(t, err)
	h.postgres = pgtest.URL(t) // nothing but the store shows it
	refused(h, store, "its beginning is gone", "lacks its first events and begins at 2", "ANNALS_EVENTSTORE")
}

// A service starts for the first time through a PgBouncer, takes sends, recalls and erases, in each mode that is
// supported (session mode below), whether or not its address chooses how statements are sent.
func TestPooler_Modes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ mode, setting string }{
		"transaction":                       {pgtest.TransactionMode, "application_name=annals"},
		"transaction, statements described": {pgtest.TransactionMode, "default_query_exec_mode=cache_describe"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.postgres = pgtest.With(pgtest.NewBouncer(t, pgtest.URL(t), c.mode).URL(), c.setting)
			h.start()
			h.sendsAndErases()
		})
	}
}

// A pooler in statement mode allows no transactions: the start is refused in its words.
func TestPooler_StatementMode(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.postgres = pgtest.NewBouncer(t, pgtest.URL(t), pgtest.StatementMode).URL()
	h.wantRefused("statement pooling mode")
}

// The operator changes the mode of the pooler under load, back and forth: nothing that was acknowledged is lost, and
// the service goes on by itself.
func TestPooler_ModeChanges(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	pooler := pgtest.NewBouncer(t, pgtest.URL(t), pgtest.SessionMode)
	h.postgres = pooler.URL()
	h.start()
	key, _ := h.keys()
	h.sendsAndErases()
	var sent []string
	for n, mode := range []string{pgtest.TransactionMode, pgtest.SessionMode, pgtest.TransactionMode} {
		var sending sync.WaitGroup
		var some [2][]string
		for i := range some {
			sending.Go(func() { some[i] = h.sendAll(key, fmt.Sprintf("m%d-%d-", n, i), 5) })
		}
		pooler.SetMode(mode)
		sending.Wait()
		sent = append(sent, h.sendAll(key, fmt.Sprintf("n%d-", n), 2)...)
		for _, list := range some {
			sent = append(sent, list...)
		}
	}
	h.awaitPoints(key, sent)
	runtest.Await(t, "the service is ready", func() bool { return h.readyz().status == http.StatusOK })
	h.readyz().want(t, http.StatusOK).lacks(t, "setAside")
}

// pool_max_conns bounds the connections of all pools of a process together.
func TestShares(t *testing.T) {
	for most, want := range map[int32]struct {
		calls, work int32
		fails       bool
	}{
		0: {callConnections, workConnections, false}, 1: {fails: true}, leastConnections - 1: {fails: true},
		leastConnections: {5, 4, false}, 20: {10, 9, false}, 57: {callConnections, workConnections, false},
		1000: {callConnections, workConnections, false},
	} {
		calls, work, err := shares(most)
		if calls != want.calls || work != want.work || (err != nil) != want.fails {
			t.Errorf("of %d: %d, %d, %v; want %+v", most, calls, work, err, want)
		}
		if err == nil && most > 0 && calls+work+checkConnections > most {
			t.Errorf("of %d connections %d are used", most, calls+work+checkConnections)
		}
	}
	for address, want := range map[string]int32{
		"postgres://a@h/x": 0, "postgres://a@h/x?pool_max_conns=12": 12, "host=h user=a pool_max_conns=7": 7,
	} {
		if got := pg.MaxConns(address); got != want {
			t.Errorf("%s allows %d connections, want %d", address, got, want)
		}
	}
}

// A missing right at the start names the setting and the statement that grants it.
func TestWithCure(t *testing.T) {
	db, err := pg.NewPool(t.Context(), `postgres://annals-app@h/app%22s`)
	runtest.Must(t, err)
	defer db.Close()
	denied := fmt.Errorf("migrate schema ops: %w", &pgconn.PgError{Code: missingRight, Message: "permission denied"})
	if text := withCure(db, denied).Error(); !strings.Contains(text, "ANNALS_POSTGRES") ||
		!strings.Contains(text, `GRANT CREATE ON DATABASE "app""s" TO "annals-app"`) {
		t.Errorf("the refusal is %s", text)
	}
	frozen := fmt.Errorf("migrate schema ops: %w", &pgconn.PgError{Code: readOnly, Message: "cannot execute CREATE TABLE"})
	if text := withCure(db, frozen).Error(); !strings.Contains(text, "ANNALS_POSTGRES names is read-only") ||
		!strings.Contains(text, "default_transaction_read_only") {
		t.Errorf("a read-only database is %s", text)
	}
	other := errors.New("no room")
	if got := withCure(db, other); !errors.Is(got, other) || strings.Contains(got.Error(), "GRANT") {
		t.Errorf("another error is %v", got)
	}
	if err := withCure(db, nil); err != nil {
		t.Errorf("no error is %v", err)
	}
}
