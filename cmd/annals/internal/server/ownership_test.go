package server

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

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
	for _, schema := range []string{"access", "usage", "directory_next", "trace_old_7"} {
		t.Run(schema, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			store := h.onNode()
			before := ids(t, store)
			h.postgres = pgtest.URL(t)
			db := h.database()
			_, err := db.Exec(t.Context(), `create schema `+schema+`; create table `+schema+`.customers (name text);
				insert into `+schema+`.customers values ('Ana')`)
			runtest.Must(t, err)
			h.wantRefused(schema+" of the database is of another application", "use another database",
				"ANNALS_POSTGRES_SCHEMA_PREFIX")
			var n int
			if err := db.QueryRow(t.Context(), `select count(*) from `+schema+`.customers`).Scan(&n); err != nil || n != 1 {
				t.Errorf("%d customers, %v", n, err)
			}
			if added(t, store, before) {
				t.Error("the log was begun")
			}
			if !(datafolder.Folder{Dir: h.dir}).IsNew() {
				t.Error("keys were written")
			}
		})
	}
}

// Two logs never share a database: what the calls of one cost stays counted.
func TestServer_DatabaseOfAnotherLog(t *testing.T) {
	unraced(t)
	t.Parallel()
	a := newHarness(t)
	a.start()
	a.stop()
	db := a.database()
	_, err := db.Exec(t.Context(), `insert into ops.charges
			(project_id, month, flush_id, organization_id, recalls, recall_tenths, since)
		values (gen_random_uuid(), '2026-11', $1, gen_random_uuid(), 40, 40, now() - interval '1 day')`, uuid.Nil)
	runtest.Must(t, err)
	b := newHarness(t)
	store := b.onNode()
	b.start() // on a database of its own
	b.stop()
	b.postgres = a.postgres
	before, folder := ids(t, store), b.files()
	b.wantRefused("of the database is of log ", "and the event store holds log ", "use another database")
	if added(t, store, before) || b.files() != folder {
		t.Error("something was written to the log or the data folder")
	}
	var recalls int
	err = db.QueryRow(t.Context(), `select sum(recalls) from ops.charges`).Scan(&recalls)
	if err != nil || recalls != 40 {
		t.Errorf("%d recalls are counted, %v", recalls, err)
	}
	a.start()
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
// written there.
func TestServer_EventStoreThatLacksTheLog(t *testing.T) {
	unraced(t)
	t.Parallel()
	bound := func(fields string) func(*harness, *esdb.Store) {
		return func(h *harness, store *esdb.Store) {
			_, err := store.Append(h.t.Context(), "$$"+stream.Registry, eventstore.NoStream, []eventstore.Proposed{
				{ID: uuid.New(), Type: eventstore.MetadataType, Data: []byte(fields)},
			})
			runtest.Must(h.t, err)
		}
	}
	for name, c := range map[string]struct {
		damage func(*harness, *esdb.Store)
		words  []string
	}{
		"registry bounded":      {bound(`{"$maxCount":1}`), []string{"lacks its first events and begins at 3"}},
		"registry truncated":    {bound(`{"$tb":2}`), []string{"lacks its first events and begins at 2"}},
		"registry soft-deleted": {bound(`{"$tb":9223372036854775807}`), []string{"has no event, and its metadata has $tb"}},
		"registry tombstoned": {func(h *harness, store *esdb.Store) {
			last, _, err := store.ReadLast(h.t.Context(), stream.Registry)
			runtest.Must(h.t, err)
			_, err = store.Tombstone(h.t.Context(), stream.Registry, last.Revision)
			runtest.Must(h.t, err)
		}, []string{"with which the log begins, was deleted"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			store := h.onNode()
			h.start()
			h.stop()
			c.damage(h, store)
			before, folder := ids(t, store), h.files()
			h.wantRefused(append(c.words, "ANNALS_EVENTSTORE")...)
			// Also where nothing but the store shows it.
			other := newHarness(t)
			other.set = h.set
			other.wantRefused(c.words...)
			if added(t, store, before) || h.files() != folder {
				t.Error("something was written")
			}
		})
	}
}

func TestServer_EmptyEventStore(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	h.onNode()
	h.start()
	h.stop()
	logged := func(store *esdb.Store, name string, words ...string) {
		t.Helper()
		before, folder := ids(t, store), h.files()
		h.wantRefused(words...)
		if added(t, store, before) || h.files() != folder {
			t.Errorf("%s: something was written", name)
		}
	}
	empty := h.onNode()
	logged(empty, "beside all", "the event store is empty, and data folder ")
	filled := h.postgres
	h.postgres = pgtest.URL(t)
	logged(empty, "beside the data folder", "the event store is empty, and data folder ")
	runtest.Must(t, os.Remove(filepath.Join(h.dir, datafolder.LogIDFile))) // as an earlier version left it
	values := h.credentials()
	values[datafolder.OwnerEmailName] = "ana@acme.example"
	runtest.Must(t, datafolder.WriteCredentials(h.dir, values))
	logged(empty, "beside the credentials", "the event store is empty, and ", "has the owner of an organization")
	h.postgres, h.dir = filled, filepath.Join(t.TempDir(), "new")
	runtest.Must(t, os.Mkdir(h.dir, 0o700))
	logged(empty, "beside the tables", "the event store is empty, and schema ", "of the database is of log ")

	other := newHarness(t)
	store := other.onNode()
	other.start()
	other.stop()
	h.set = other.set
	logged(store, "another log beside the tables", "and the event store holds log ")
}
