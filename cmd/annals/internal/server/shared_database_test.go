package server

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/ownership"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/pg/schemas"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/runner"
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
func databaseState(t *testing.T, db *pgxpool.Pool) map[string]string {
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
	if _, err := operatorapi.EraseNow.Call(h.t.Context(), operatorapi.Dial(h.dir), operatorapi.None{}); err != nil {
		h.t.Error(err)
	}
	h.finds(name, time)
	for _, projection := range h.read.runtime.Names() {
		err := operatorapi.Dial(h.dir).Rebuild(
			h.t.Context(), projection, runner.RebuildOptions{}, func(runner.RebuildProgress) {},
		)
		if err != nil {
			h.t.Errorf("rebuild %s: %v", projection, err)
		}
	}
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
}

// A service with another prefix goes on with the schemas if they are renamed, and begins with new ones otherwise.
func TestServer_AnotherPrefix(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	h := newShared(t, url, "a_")
	h.start()
	h.use("alpha", 1)
	h.stop()
	db, err := pg.OpenPool(t.Context(), url, pg.SchemaPrefix("a_"))
	runtest.Must(t, err)
	defer db.Close()
	before := databaseState(t, db)
	for _, name := range schemas.Names() {
		if name == projection.Embeddings {
			continue // without a model there is none
		}
		_, err := db.Exec(t.Context(), `alter schema `+name+` rename to b_`+name)
		runtest.Must(t, err)
	}
	h.set = func(cfg *Config) { cfg.SchemaPrefix = "b_" }
	h.start()
	h.finds("alpha", 1)
	renamed := databaseState(t, h.storage.db)
	h.stop()
	if want := strings.ReplaceAll(before["schemas"], " a_", " b_"); renamed["schemas"] != want {
		t.Errorf("schemas %s, want %s", renamed["schemas"], want)
	}
	if keys := renamed["ops.sealed_keys"]; keys != before["ops.sealed_keys"] || keys == "0" {
		t.Errorf("%s sealed keys, want %s", keys, before["ops.sealed_keys"])
	}

	db, err = pg.OpenPool(t.Context(), url, pg.SchemaPrefix("b_"))
	runtest.Must(t, err)
	defer db.Close()
	// A rebuild of the service left it when it had that prefix.
	_, err = db.Exec(t.Context(), `create schema trace_old_7; `+ownership.MarkStatement("trace_old_7", h.storage.logID))
	runtest.Must(t, err)
	renamed = databaseState(t, db)
	h.set = func(cfg *Config) { cfg.SchemaPrefix = "c_" }
	h.start()
	h.finds("alpha", 1)
	if _, err := operatorapi.EraseNow.Call(t.Context(), operatorapi.Dial(h.dir), operatorapi.None{}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(renamed, databaseState(t, db)); diff != "" {
		t.Errorf("what the old prefix names changes:\n%s", diff)
	}
	if oids := databaseState(t, h.storage.db)["schemas"]; !strings.Contains(oids, " c_ops ") || !strings.Contains(oids, " c_access ") {
		t.Errorf("schemas %s", oids)
	}
}
