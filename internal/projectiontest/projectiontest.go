// Package projectiontest applies given facts to a projector and shows the rows that they leave.
package projectiontest

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	_ "github.com/annals-project/annals/internal/seedtest"
)

// Projector is the part of a projector that its rows depend on.
type Projector interface {
	Name() string
	Categories() []string
	Schema() string
	Apply(ctx context.Context, tx pgx.Tx, page []eventstore.DecodedEvent) error
}

// Log is a log in memory. The zero value is empty.
type Log struct {
	Facts     []eventstore.DecodedEvent
	revisions map[string]eventstore.Revision
}

// Append adds an event, which must be a pointer as the codec makes it, and returns its position.
func (l *Log) Append(stream string, e event.Event) eventstore.Position {
	if l.revisions == nil {
		l.revisions = map[string]eventstore.Revision{}
	}
	position := l.Next()
	l.Facts = append(l.Facts, eventstore.DecodedEvent{
		Recorded: eventstore.Recorded{Stream: stream, Revision: l.revisions[stream], Position: position, Type: e.EventType()},
		Event:    e,
	})
	l.revisions[stream]++
	return position
}

// Next is the position of the event that Append adds next. Positions rise with gaps.
func (l *Log) Next() eventstore.Position { return eventstore.Position(len(l.Facts)*10 + 10) }

// Make creates the schema of a projector.
func Make(t testing.TB, db *pgxpool.Pool, p Projector) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		for _, ddl := range []string{"create schema " + p.Name(), "set local search_path = " + p.Name(), p.Schema()} {
			if _, err := tx.Exec(t.Context(), ddl); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("make schema %s: %v", p.Name(), err)
	}
}

// inSchema selects the tables of a schema. The prefix of the run is added to the names of our projectors alone.
const inSchema = `where table_schema in ($1::text, annals_schema_prefix() || $1::text)`

// Empty empties the tables of a projector.
func Empty(t testing.TB, db *pgxpool.Pool, p Projector) {
	t.Helper()
	tables, err := texts(t.Context(), db,
		`select table_schema || '.' || table_name from information_schema.tables `+inSchema, p.Name())
	if err == nil {
		_, err = db.Exec(t.Context(), "truncate "+strings.Join(tables, ", "))
	}
	if err != nil {
		t.Fatalf("empty schema %s: %v", p.Name(), err)
	}
}

// Apply applies a page in a separate transaction.
func Apply(t testing.TB, db *pgxpool.Pool, p Projector, page ...eventstore.DecodedEvent) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		return errors.Join(Enter(t.Context(), tx, p), p.Apply(t.Context(), tx, Own(p, page)))
	})
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
}

// Enter sets the search path to the tables of a projector, until the transaction ends.
func Enter(ctx context.Context, tx pgx.Tx, p Projector) error {
	_, err := tx.Exec(ctx, "set local search_path = "+p.Name())
	return err
}

// Own returns the facts of the families of a projector.
func Own(p Projector, events []eventstore.DecodedEvent) []eventstore.DecodedEvent {
	var own []eventstore.DecodedEvent
	for _, f := range events {
		for _, family := range p.Categories() {
			if strings.HasPrefix(f.Stream, family+"-") || f.Stream == family {
				own = append(own, f)
			}
		}
	}
	return own
}

// Querier is a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Dump returns every row of the tables of a projector as JSON without some columns, ordered by
// content.
func Dump(ctx context.Context, db Querier, p Projector, without ...string) (map[string][]string, error) {
	tables, err := texts(ctx, db, `select table_name::text from information_schema.tables `+inSchema,
		p.Name())
	if err != nil {
		return nil, err
	}
	dump := map[string][]string{}
	for _, table := range tables {
		rows, err := texts(ctx, db, fmt.Sprintf(`select (to_jsonb(t) - $1::text[])::text from %s.%s t`, p.Name(), table),
			append([]string{}, without...))
		if err != nil {
			return nil, err
		}
		sort.Strings(rows)
		if len(rows) > 0 {
			dump[table] = rows
		}
	}
	return dump, nil
}

func texts(ctx context.Context, db Querier, sql string, args ...any) ([]string, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// errDone rolls back a transaction after its rows were read.
var errDone = errors.New("seen")

// Rows applies pages to empty tables, returns the dump, and rolls everything back.
func Rows(
	ctx context.Context, db *pgxpool.Pool, p Projector, pages [][]eventstore.DecodedEvent, without ...string,
) (dump map[string][]string, err error) {
	err = Inspect(ctx, db, p, pages, func(tx pgx.Tx) (err error) {
		dump, err = Dump(ctx, tx, p, without...)
		return err
	})
	return dump, err
}

// Inspect applies pages to empty tables, calls look with them and rolls everything back.
func Inspect(
	ctx context.Context, db *pgxpool.Pool, p Projector, pages [][]eventstore.DecodedEvent, inspect func(pgx.Tx) error,
) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := Enter(ctx, tx, p); err != nil {
			return err
		}
		for n, page := range pages {
			own := Own(p, page)
			if len(own) == 0 {
				continue
			}
			if err := p.Apply(ctx, tx, own); err != nil {
				return fmt.Errorf("page %d: %w", n, err)
			}
			if err := followUp(ctx, tx, p, n%3); err != nil {
				return fmt.Errorf("follow-ups of page %d: %w", n, err)
			}
		}
		if err := followUp(ctx, tx, p, maxSlices); err != nil {
			return err
		}
		if err := inspect(tx); err != nil {
			return err
		}
		return errDone
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

// maxSlices is more than the follow-ups of any test take.
const maxSlices = 1 << 20

// followUp does at most some slices of the follow-ups of a projector, if it has any. Projects take turns.
func followUp(ctx context.Context, tx pgx.Tx, p Projector, slices int) error {
	following, follows := p.(projection.Slicer)
	last := uuid.Nil
	for n := 0; follows && n < slices; n++ {
		work, found, _, err := projection.DoSlice(ctx, tx, following, last)
		if err != nil || !found {
			return err
		}
		last = work.Project
	}
	return nil
}

// FollowUp does all follow-ups of a projector.
func FollowUp(ctx context.Context, db *pgxpool.Pool, p Projector) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		return errors.Join(Enter(ctx, tx, p), followUp(ctx, tx, p, maxSlices))
	})
}

// Blobs holds blobs by stream; others are missing.
type Blobs map[string][]byte

// ReadBlob implements eventstore.BlobReader.
func (b Blobs) ReadBlob(_ context.Context, ref blob.Ref) ([]byte, error) {
	if data, ok := b[ref.Stream]; ok {
		return data, nil
	}
	return nil, &eventstore.BlobError{Stream: ref.Stream, Missing: true}
}

// fataler ends a test, or a check of a property.
type fataler interface{ Fatal(args ...any) }

// RowsAfter is Rows for a check of a property within a test. An error ends the check.
func RowsAfter(
	check fataler, t testing.TB, db *pgxpool.Pool, p Projector, pages [][]eventstore.DecodedEvent, without ...string,
) map[string][]string {
	t.Helper()
	rows, err := Rows(t.Context(), db, p, pages, without...)
	if err != nil {
		check.Fatal(err)
	}
	return rows
}

// WithoutErased draws a log that lacks events of erased streams: some of them, or all. The blobs of
// a data point end after its own streams, and a log in which only some of them are ended lacks none
// of it.
func (h *History) WithoutErased(t *rapid.T) []eventstore.DecodedEvent {
	all := rapid.Bool().Draw(t, "all erased")
	var left []eventstore.DecodedEvent
	for _, f := range h.Facts {
		family := stream.Category(f.Stream)
		owner := stream.Owner(f.Stream)
		erasable := (family == stream.DataPoint || family == stream.Memory) && h.Erased[owner] && !h.holds(owner) ||
			h.Ended[f.Stream]
		if erasable && (all || rapid.Bool().Draw(t, "erased")) {
			continue
		}
		left = append(left, f)
	}
	return left
}

// Cut draws pages of a log.
func Cut(t *rapid.T, events []eventstore.DecodedEvent) [][]eventstore.DecodedEvent {
	var pages [][]eventstore.DecodedEvent
	for len(events) > 0 {
		n := rapid.IntRange(1, min(len(events), 25)).Draw(t, "page")
		pages, events = append(pages, events[:n]), events[n:]
	}
	return pages
}
