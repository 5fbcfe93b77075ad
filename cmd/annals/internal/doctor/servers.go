package doctor

import (
	"context"
	"net"
	"net/url"
	"strings"
	"time"

	client "github.com/annals-project/annals/client"
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

// checkProxies reports a proxy for calls to others that does not answer, and a public address that does not lead to the
// running service.
func (e *examination) checkProxies(ctx context.Context, running bool) {
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY"} {
		if text := e.Getenv(name); text != "" {
			e.checkOutgoing(ctx, name, text)
		}
	}
	public := e.Settings["ANNALS_API_URL"]
	if public == "" {
		return
	}
	if e.Settings["ANNALS_TRUSTED_PROXIES"] == "" && e.Service.TLSCert == "" {
		e.note("proxy", "set ANNALS_TRUSTED_PROXIES to the network of the proxy, or all callers share one throttle",
			"ANNALS_API_URL is set, and no proxy is trusted")
	}
	if running {
		e.checkPublic(ctx, public)
	}
}

// checkOutgoing reports a proxy that does not answer. It does not repeat the password of its address.
func (e *examination) checkOutgoing(ctx context.Context, name, text string) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		e.broken("proxy", "write it as http://host:port, or unset it", "%s is no address", name)
		return
	}
	addr := u.Host
	if u.Port() == "" {
		port := "80"
		if u.Scheme == "https" {
			port = "443"
		}
		addr = net.JoinHostPort(u.Hostname(), port)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		e.broken("proxy", "start it or unset "+name+"; hosts in NO_PROXY are called without it",
			"the proxy that %s names does not answer: %v", name, err)
		return
	}
	_ = conn.Close() // nothing was sent
	e.ok("proxy", "the proxy that %s names answers", name)
}

// checkPublic reports a public address that does not lead to a service.
func (e *examination) checkPublic(ctx context.Context, public string) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	const remedy = "let the proxy pass every path to the address of ANNALS_API_ADDR, or correct ANNALS_API_URL"
	to, err := client.New(public, "", client.WithMaxAttempts(1))
	if err == nil {
		_, err = to.Health(ctx)
	}
	if err != nil {
		e.broken("proxy", remedy, "ANNALS_API_URL %s does not lead to the service: %v", public, err)
		return
	}
	e.ok("proxy", "ANNALS_API_URL %s leads to a service", public)
}
