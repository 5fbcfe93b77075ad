package pg

import (
	"log/slog"
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
	t.Run("drops read-only sessions", func(t *testing.T) { dropsReadOnlySessions(t, s) })
	t.Run("describes behind a pooler", func(t *testing.T) { describesBehindAPooler(t, s) })
	t.Run("takes its size from the address", func(t *testing.T) { takesItsSizeFromTheAddress(t, s) })
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
