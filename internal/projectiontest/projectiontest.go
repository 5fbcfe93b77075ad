// Package projectiontest applies given facts to a projector and shows the rows that they leave.
package projectiontest

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/eventstore"
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
