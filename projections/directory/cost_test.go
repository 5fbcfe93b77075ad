package directory_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/directory"
)

// statements is a transaction that records the statements sent.
type statements struct {
	pgx.Tx
	sent *[]string
}

func (s statements) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	*s.sent = append(*s.sent, sql)
	return s.Tx.Query(ctx, sql, args...)
}

func (s statements) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	*s.sent = append(*s.sent, sql)
	return s.Tx.QueryRow(ctx, sql, args...)
}

func (s statements) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		*s.sent = append(*s.sent, q.SQL)
	}
	return s.Tx.SendBatch(ctx, b)
}

// containing counts the statements that contain a text.
func containing(sent []string, text string) (n int) {
	for _, sql := range sent {
		if strings.Contains(sql, text) {
			n++
		}
	}
	return n
}

// A page scans the identities of a project once, however many audiences it recomputes, and reads no
// text of rules or traits. Writes of identities read no other identities.
func TestApply_CostOfAPage(t *testing.T) {
	w := newWriter()
	p, db := directory.New(w.blobs, namespaces, slog.New(slog.DiscardHandler)), pgtest.Database(t)
	projectiontest.Make(t, db, p)
	done := 0
	apply := func() (sent []string) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			if err := projectiontest.Enter(t.Context(), tx, p); err != nil {
				return err
			}
			return p.Apply(t.Context(), statements{tx, &sent}, w.Facts[done:])
		})
		if err != nil {
			t.Fatal(err)
		}
		done = len(w.Facts)
		return sent
	}
	const rules = 300
	for n := range rules {
		w.rule(fmt.Sprint("rule-", n), audience.MatchAll, is("team", fmt.Sprint(n%3)))
	}
	for n := range 50 {
		w.put(fmt.Sprint("person ", n), traits{"team": fmt.Sprint(n % 3)})
	}
	apply()
	for n := range rules {
		w.recompute(fmt.Sprint("rule-", n))
	}
	sent := apply()
	if passes := containing(sent, "select marks from identities where project_id"); passes != 1 {
		t.Errorf("%d recomputes go through the identities %d times", rules, passes)
	}
	for _, text := range []string{"select traits", ", traits,", ", rule,"} {
		if n := containing(sent, text); n > 0 {
			t.Errorf("%d statements read %q:\n%s", n, text, strings.Join(sent, "\n"))
		}
	}
	for n := range 50 {
		w.put(fmt.Sprint("person ", n), traits{"team": fmt.Sprint((n + 1) % 3)})
	}
	sent = apply()
	if n := containing(sent, "where project_id = $1 and identity is not null"); n > 0 {
		t.Errorf("writes of identities go through those of the project %d times", n)
	}
	if n := containing(sent, "select compiled") + containing(sent, "select id, compiled from audiences"); n > 1 {
		t.Errorf("50 writes read the rules %d times", n)
	}
	if len(sent) > 20 {
		t.Errorf("%d statements for 50 writes:\n%s", len(sent), strings.Join(sent, "\n"))
	}
}
