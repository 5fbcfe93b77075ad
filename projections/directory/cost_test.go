package directory_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections"
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

// countsIdentities is in the statement that reads the next identities of a project.
const countsIdentities = "where project_id = $1 and id > $2"

// follow does all follow-ups of a projector, and counts how often they read identities.
func follow(t *testing.T, db *pgxpool.Pool, p *directory.Projector) (reads, slices int) {
	t.Helper()
	var sent []string
	for found := true; found; slices++ {
		err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) (err error) {
			if err = projectiontest.Enter(t.Context(), tx, p); err == nil {
				_, found, _, err = projections.DoSlice(t.Context(), statements{tx, &sent}, p, uuid.Nil)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return containing(sent, countsIdentities), slices - 1
}

// A page reads no identities to count them, and no text of rules or traits. Its recounts go through the
// identities of a project once, however many there are. Writes of identities read no other identities.
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
	const rules = 100
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
	if n := containing(sent, countsIdentities); n > 0 {
		t.Errorf("the page of %d recomputes goes through the identities %d times", rules, n)
	}
	if passes, slices := follow(t, db, p.WithSlice(50)); passes != 2 || slices != rules+1 {
		t.Errorf("%d recomputes read %d slices of identities in %d slices, want all in two", rules, passes, slices)
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
	if n := containing(sent, countsIdentities); n > 0 {
		t.Errorf("writes of identities go through those of the project %d times", n)
	}
	if n := containing(sent, "select compiled") + containing(sent, "select id, compiled from audiences"); n > 1 {
		t.Errorf("50 writes read the rules %d times", n)
	}
	if len(sent) > 20 {
		t.Errorf("%d statements for 50 writes:\n%s", len(sent), strings.Join(sent, "\n"))
	}
}
