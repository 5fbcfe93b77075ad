// Package ownership knows whose the schemas of a database are: of a log, or of another application.
//
// A schema of ours has a comment that names the program and the id of the log. It is written in the transaction that
// makes the schema. It stays with the schema through a rename, a dump and a restore, and needs no rights to be read.
package ownership

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// mark begins the comment of a schema of ours. The id of its log follows.
const mark = "annals log "

// Comment is the comment of a schema of a log.
func Comment(logID uuid.UUID) string { return mark + logID.String() }

// MarkStatement is the statement that marks a schema as one of a log.
func MarkStatement(schema string, logID uuid.UUID) string {
	return "comment on schema " + pgx.Identifier{schema}.Sanitize() + " is '" + Comment(logID) + "'"
}

// Schema is a schema that exists.
type Schema struct {
	Name string
	// LogID is the log that the schema is marked as one of, uuid.Nil without a mark.
	LogID uuid.UUID
}

// Require returns a *ForeignError unless the schema is marked as one of a log.
func (s Schema) Require(logID uuid.UUID) error {
	if s.LogID != uuid.Nil && s.LogID == logID {
		return nil
	}
	return &ForeignError{Schema: s.Name, Of: s.LogID, LogID: logID}
}

// ForeignError refuses a schema that is not marked as one of a log.
type ForeignError struct {
	Schema string
	// Of is the log that the schema is of, uuid.Nil if it is not marked as one of any.
	Of uuid.UUID
	// LogID is the log of the event store, uuid.Nil if that is empty.
	LogID uuid.UUID
}

// Error implements error.
func (e *ForeignError) Error() string {
	switch {
	case e.Of == uuid.Nil:
		return fmt.Sprintf("schema %s of the database is of another application: nothing in it shows that this service "+
			"made it, so it is neither read nor changed: use another database, or set ANNALS_POSTGRES_SCHEMA_PREFIX, with "+
			"which the schemas of this service have other names", e.Schema)
	case e.LogID == uuid.Nil:
		return fmt.Sprintf("the event store is empty, and schema %s of the database is of log %s: connect the event "+
			"store of that log, or use another database or ANNALS_POSTGRES_SCHEMA_PREFIX for a new log", e.Schema, e.Of)
	}
	return fmt.Sprintf("schema %s of the database is of log %s, and the event store holds log %s: connect the event "+
		"store of that log, or use another database or ANNALS_POSTGRES_SCHEMA_PREFIX for this one", e.Schema, e.Of, e.LogID)
}

// Querier is a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// find reads the schemas that have a name or match a pattern.
const find = `select nspname::text, coalesce(obj_description(oid, 'pg_namespace'), '') from pg_namespace
	where nspname = any($1) or $2 <> '' and nspname ~ $2 order by 1`

// Find returns the schemas with names, and those whose names match a regular expression unless it is empty, in the
// order of their names.
func Find(ctx context.Context, db Querier, names []string, pattern string) ([]Schema, error) {
	rows, err := db.Query(ctx, find, names, pattern)
	if err != nil {
		return nil, fmt.Errorf("find whose the schemas are: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Schema, err error) {
		var comment string
		if err := row.Scan(&s.Name, &comment); err != nil {
			return s, err
		}
		if id, is := strings.CutPrefix(comment, mark); is {
			if logID, err := uuid.Parse(id); err == nil {
				s.LogID = logID
			}
		}
		return s, nil
	})
	if err != nil {
		return nil, fmt.Errorf("find whose the schemas are: %w", err)
	}
	return list, nil
}

// One returns the schema of a name; ok is false if there is none.
func One(ctx context.Context, db Querier, name string) (s Schema, ok bool, err error) {
	list, err := Find(ctx, db, []string{name}, "")
	if err != nil || len(list) == 0 {
		return Schema{}, false, err
	}
	return list[0], true, nil
}
