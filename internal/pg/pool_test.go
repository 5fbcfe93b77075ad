package pg

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestPool(t *testing.T) {
	t.Parallel()
	s := start(t, Config{DataDir: t.TempDir()})
	t.Run("reads times in UTC and knows uuids", func(t *testing.T) { readsUTCAndKnowsUUIDs(t, s) })
	t.Run("takes its size from the address", func(t *testing.T) { takesItsSizeFromTheAddress(t, s) })
	t.Run("processes migrate one after the other", func(t *testing.T) { processesMigrateOneAfterTheOther(t, s) })
	t.Run("statistics of sealed keys are removed", func(t *testing.T) { statisticsOfSealedKeysAreRemoved(t, s) })
}

func readsUTCAndKnowsUUIDs(t *testing.T, s *Server) {
	pool, err := OpenPool(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if got := pool.Config().MaxConns; got != 16 {
		t.Errorf("at most %d connections, want 16", got)
	}
	ids := []uuid.UUID{uuid.Nil, uuid.NewSHA1(uuid.Nil, []byte("a"))}
	now := time.Date(2026, 3, 4, 5, 6, 7, 8000, time.FixedZone("somewhere", 7200))
	var gotIDs []uuid.UUID
	var gotID uuid.UUID
	var gotTime time.Time
	var gotTimes []time.Time
	err = pool.QueryRow(t.Context(), "select $1::uuid[], $2::uuid, $3::timestamptz, $4::timestamptz[]",
		ids, ids[1], now, []time.Time{now}).Scan(&gotIDs, &gotID, &gotTime, &gotTimes)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ids, gotIDs); diff != "" || gotID != ids[1] {
		t.Errorf("ids: %s %s", diff, gotID)
	}
	if gotTime != now.UTC() || gotTimes[0] != now.UTC() {
		t.Errorf("read %v and %v, want %v", gotTime, gotTimes[0], now.UTC())
	}
}

func takesItsSizeFromTheAddress(t *testing.T, s *Server) {
	pool, err := OpenPool(t.Context(), s.URL()+"&pool_max_conns=3")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if got := pool.Config().MaxConns; got != 3 {
		t.Errorf("at most %d connections, want 3", got)
	}
}

func processesMigrateOneAfterTheOther(t *testing.T, s *Server) {
	pool, err := OpenPool(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := Migrate(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	const tables = "select count(*) from pg_tables where schemaname = 'ops' and tablename in ('leases', 'migrations')"
	if n := query[int](t, s, tables); n != 2 {
		t.Errorf("%d of 2 tables", n)
	}
}

// A database from before the migration has statistics of the sealed keys, which no later ANALYZE removes.
func statisticsOfSealedKeysAreRemoved(t *testing.T, s *Server) {
	pool, err := OpenPool(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	kept := func() int {
		t.Helper()
		return query[int](t, s, `select count(*) from pg_stats
			where schemaname = 'ops' and tablename = 'sealed_keys' and attname = 'sealed'`)
	}
	exec("alter table ops.sealed_keys alter sealed set statistics -1")
	exec(`insert into ops.sealed_keys (key_id, seal_key, sealed)
		select gen_random_uuid(), 'one', decode('00', 'hex') from generate_series(1, 100)`)
	exec("analyze ops.sealed_keys")
	if kept() != 1 {
		t.Fatal("Postgres keeps no statistics before the migration")
	}
	migration, err := migrations.ReadFile("migrations/00005_statistics.sql")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		exec(string(migration))
		exec("analyze ops.sealed_keys")
		if n := kept(); n != 0 {
			t.Errorf("%d columns of sealed keys keep statistics after it", n)
		}
	}
	exec("delete from ops.sealed_keys")
}
