package ops_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/ownership"
	"github.com/annals-project/annals/internal/runtest"
)

const checkpointOf = `create table %.checkpoint (epoch int, holder text, position int, log_id uuid, last_event_id uuid, target text);
	insert into %.checkpoint (log_id) values ('$');`

// checkpoint is a schema of a projection from before schemas were marked.
func checkpoint(schema string, logID uuid.UUID) string {
	return "create schema " + schema + ";" + strings.NewReplacer("%", schema, "$", logID.String()).Replace(checkpointOf)
}

func TestCheckOwner(t *testing.T) {
	log, other := uuid.New(), uuid.New()
	earlier := func(rows string) string {
		return `create schema ops; create table ops.migrations (file text primary key, applied_at timestamptz);
			insert into ops.migrations values ('usage/1.sql'); create table ops.seen (n int);` + rows
	}
	const filled = `insert into ops.seen values (1);`
	for name, c := range map[string]struct {
		sql string
		log uuid.UUID
		// refused is the schema that is refused, "" for none, of is the log that it is of.
		refused string
		of      uuid.UUID
	}{
		"empty database":               {"", log, "", uuid.Nil},
		"names like ours":              {`create schema usages; create schema directory_nexts; create schema xops`, log, "", uuid.Nil},
		"ops of another application":   {`create schema ops`, log, "ops", uuid.Nil},
		"a projection's name":          {`create schema access; create table access.customers (name text)`, log, "access", uuid.Nil},
		"a shadow's name":              {`create schema directory_next`, log, "directory_next", uuid.Nil},
		"an old schema's name":         {`create schema trace_old_7`, log, "trace_old_7", uuid.Nil},
		"of this log":                  {`create schema ops;` + ownership.MarkStatement("ops", log), log, "", uuid.Nil},
		"ops of another log":           {`create schema ops;` + ownership.MarkStatement("ops", other), log, "ops", other},
		"no event, ops of a log":       {`create schema ops;` + ownership.MarkStatement("ops", other), uuid.Nil, "ops", other},
		"no event, rows of a log":      {checkpoint("datapoints", other), uuid.Nil, "datapoints", other},
		"earlier, of this log":         {earlier(filled) + checkpoint("datapoints", log), log, "", uuid.Nil},
		"earlier, of another log":      {earlier(filled) + checkpoint("datapoints", other), log, "datapoints", other},
		"earlier, no projection":       {earlier(filled), log, "ops", uuid.Nil},
		"earlier, without rows":        {earlier(""), log, "", uuid.Nil},
		"no event, earlier, no rows":   {earlier(""), uuid.Nil, "", uuid.Nil},
		"no event, earlier, with rows": {earlier(filled), uuid.Nil, "ops", uuid.Nil},
	} {
		t.Run(name, func(t *testing.T) {
			db := empty(t)
			exec(t, db, c.sql)
			err := ops.CheckOwner(t.Context(), db, c.log)
			foreign, is := errors.AsType[*ownership.ForeignError](err)
			if is != (c.refused != "") || is && (foreign.Schema != pg.SchemaPrefixOf(db).Name(c.refused) || foreign.Of != c.of) {
				t.Errorf("check: %v, want schema %q of log %s", err, c.refused, c.of)
			}
			if c.log == uuid.Nil {
				return
			}
			err = ops.Migrate(t.Context(), db, c.log)
			if c.refused == "ops" && (err == nil || !strings.Contains(err.Error(), "ops of the database")) {
				t.Errorf("migrate: %v", err)
			}
			if c.refused == "" && !strings.HasPrefix(name, "earlier, ") && err != nil {
				t.Errorf("migrate: %v", err)
			}
		})
	}
}

// What an earlier version made gets its mark with the first start.
func TestMigrate_MarksWhatAnEarlierVersionMade(t *testing.T) {
	log, other := uuid.New(), uuid.New()
	db := empty(t)
	runtest.Must(t, ops.Migrate(t.Context(), db, uuid.Nil))
	exec(t, db, `insert into ops.embedding_model (name) values ('one')`)
	exec(t, db, checkpoint("datapoints", log))
	for range 2 {
		runtest.Must(t, ops.Migrate(t.Context(), db, log))
	}
	for _, name := range []string{"ops", "datapoints"} {
		s, ok, err := ownership.One(t.Context(), db, pg.SchemaPrefixOf(db).Name(name))
		if err != nil || !ok || !s.Marked || s.LogID != log {
			t.Errorf("%s: %+v, %t, %v", name, s, ok, err)
		}
	}
	exec(t, db, `drop schema datapoints cascade`)
	runtest.Must(t, ops.CheckOwner(t.Context(), db, log))
	if err := ops.Migrate(t.Context(), db, other); err == nil || !strings.Contains(err.Error(), log.String()) {
		t.Errorf("a second log in the database: %v", err)
	}
}
