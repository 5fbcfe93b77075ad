package doctor

import (
	"context"
	"strings"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/schemas"
)

// aboutDatabase is what a service needs to know of a server of Postgres.
const aboutDatabase = `select clock_timestamp(), current_setting('server_version_num')::int / 10000,
	pg_is_in_recovery() or current_setting('default_transaction_read_only')::bool, has_database_privilege(current_database(), 'CREATE'),
	current_database(), current_user, to_regnamespace($1) is not null`

// checkDatabase reports a Postgres that a start could not use.
func (e *examination) checkDatabase(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if e.Service.Postgres == server.Embedded {
		version, err := pg.Installed(ctx, e.Service.Data.Dir)
		if err != nil {
			e.note("postgres", "install postgresql, or let the start fetch it, or name a server with ANNALS_POSTGRES", "%v", err)
			return
		}
		e.ok("postgres", "this machine has version %s for the private server", version)
		return
	}
	db, err := pg.OpenPool(ctx, e.Service.Postgres, pg.SchemaPrefix(e.Service.SchemaPrefix))
	if err != nil {
		e.broken("postgres", or(pg.Cure(err), "check the address")+" in ANNALS_POSTGRES", "%s", pg.Plain(err))
		return
	}
	defer db.Close()
	var now time.Time
	var major int
	var readOnly, mayCreate, hasTables bool
	var database, role string
	schema := pg.SchemaPrefixOf(db).Name(schemas.Ops)
	if err := db.QueryRow(ctx, aboutDatabase, schema).
		Scan(&now, &major, &readOnly, &mayCreate, &database, &role, &hasTables); err != nil {
		e.broken("postgres", "look at the log of the server", "it does not answer a query: %s", pg.Plain(err))
		return
	}
	e.skew("postgres", now)
	switch {
	case major < pg.OldestMajor:
		e.broken("postgres", "move the database to a newer one", "the server has version %d and must have %d or newer", major,
			pg.OldestMajor)
	case readOnly:
		e.broken("postgres", "name the primary with ANNALS_POSTGRES; a standby goes to ANNALS_POSTGRES_REPLICA",
			"the server is a standby or read-only")
	case !mayCreate && !hasTables:
		e.broken("postgres", "GRANT CREATE ON DATABASE "+database+" TO "+role, "the role %s may not make schemas in %s", role,
			database)
	default:
		e.ok("postgres", "version %d, database %s, role %s", major, database, role)
	}
	if hasTables {
		if err := ops.Check(ctx, db); err != nil {
			e.broken("postgres", "let the role of ANNALS_POSTGRES own its schemas", "%s", pg.Plain(err))
		}
	}
}

// checkEventStore reports an event store that a start could not use, or that another hash key wrote.
func (e *examination) checkEventStore(ctx context.Context) {
	if e.Service.EventStore == server.Embedded {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := server.CheckLog(ctx, e.Service); err != nil {
		e.broken("event store", "start it, or check the hosts, tlsCAFile and the user in ANNALS_EVENTSTORE", "%v", err)
		return
	}
	e.ok("event store", "it answers, and the hash key is that of the log")
}

// checkProbes reports models and an Elasticsearch that cannot be used.
func (e *examination) checkProbes(ctx context.Context) {
	list, err := server.Probes(e.Service)
	if err != nil {
		e.broken("model", "check the settings ANNALS_MODEL_… and ANNALS_EMBEDDINGS_…", "%v", err)
		return
	}
	for _, s := range list {
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		err := s.Check(limited)
		cancel()
		if err == nil {
			e.ok(s.Label, "%s answers", s.Name)
			continue
		}
		t := s.Describe(err)
		e.broken(s.Label, "check "+or(strings.Join(t.Settings, ", "), "its settings"), "%s cannot be used: %s", s.Name,
			t.Cause)
	}
	if len(list) == 0 {
		e.ok("model", "no model and no Elasticsearch is called")
	}
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
