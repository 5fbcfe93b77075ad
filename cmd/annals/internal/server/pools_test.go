package server

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/internal/pg"
)

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
	if err != nil {
		t.Fatal(err)
	}
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
