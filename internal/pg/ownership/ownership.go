// Package ownership knows whose the schemas of a database are: of a log, or of another application.
//
// A schema of ours has a comment that names the program and the id of the log. It is written in the transaction that
// makes the schema. It stays with the schema through a rename, a dump and a restore, and needs no rights to be read.
package ownership

import (
	"context"
	"errors"
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
	// LogID is the log that the schema is proved to be of, uuid.Nil without a proof.
	LogID uuid.UUID
	// Marked is false if only the checkpoint in the schema is the proof, as before schemas were marked.
	Marked bool
	// Owned is true if the user of the connection may mark it.
	Owned bool
}

// Require returns a *ForeignError unless the schema is proved to be of a log.
func (s Schema) Require(logID uuid.UUID) error {
	if s.LogID != uuid.Nil && s.LogID == logID {
		return nil
	}
	return &ForeignError{Schema: s.Name, Of: s.LogID, LogID: logID}
}

// ForeignError refuses a schema that is not proved to be of a log.
type ForeignError struct {
	Schema string
	// Of is the log that the schema is of, uuid.Nil if it is not proved to be of any.
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

// find reads the schemas that a pattern matches. hasCheckpoint is true of those whose table checkpoint has the columns
// of a checkpoint of ours and may be read.
const find = `select n.nspname::text, coalesce(obj_description(n.oid, 'pg_namespace'), ''), exists (
		select from pg_class c where c.relnamespace = n.oid and c.relname = 'checkpoint' and c.relkind = 'r'
			and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')
			and (select count(*) from pg_attribute a where a.attrelid = c.oid and not a.attisdropped
				and a.attname in ('epoch', 'holder', 'position', 'log_id', 'last_event_id', 'target')) = 6
	), pg_has_role(n.nspowner, 'usage') from pg_namespace n where n.nspname = any($1) or $2 <> '' and n.nspname ~ $2 order by 1`

// Find returns the schemas with names, and those whose names match a regular expression unless it is empty, in the
// order of their names.
func Find(ctx context.Context, db Querier, names []string, pattern string) ([]Schema, error) {
	list, err := findAll(ctx, db, names, pattern)
	if err != nil {
		return nil, fmt.Errorf("find whose the schemas are: %w", err)
	}
	return list, nil
}

func findAll(ctx context.Context, db Querier, names []string, pattern string) (list []Schema, err error) {
	rows, err := db.Query(ctx, find, names, pattern)
	if err != nil {
		return nil, err
	}
	var unmarked []int // of list
	var name, comment string
	var hasCheckpoint, owned bool
	if _, err := pgx.ForEachRow(rows, []any{&name, &comment, &hasCheckpoint, &owned}, func() error {
		s := Schema{Name: name, Owned: owned}
		if id, is := strings.CutPrefix(comment, mark); is {
			if logID, err := uuid.Parse(id); err == nil {
				s.LogID, s.Marked = logID, true
			}
		}
		if !s.Marked && hasCheckpoint {
			unmarked = append(unmarked, len(list))
		}
		list = append(list, s)
		return nil
	}); err != nil {
		return nil, err
	}
	for _, i := range unmarked {
		checkpoint := pgx.Identifier{list[i].Name, "checkpoint"}.Sanitize()
		err := db.QueryRow(ctx, `select log_id from `+checkpoint).Scan(&list[i].LogID)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, err
		}
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
