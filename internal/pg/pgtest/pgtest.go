// Package pgtest gives each test an empty Postgres database.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/schemas"
)

// Variable names the environment variable with the URL of a server to use in place of the one of the run.
// Its user must be allowed to create databases.
const Variable = "ANNALS_TEST_POSTGRES"

// PrefixVariable names the environment variable with the prefix of the schemas of all databases.
const PrefixVariable = "ANNALS_TEST_SCHEMA_PREFIX"

// SchemaPrefix returns the prefix of the schemas of all databases, "" in most runs. Each call reads it, so that the
// cache of tests knows it.
func SchemaPrefix() schemas.Prefix { return schemas.Prefix(os.Getenv(PrefixVariable)) }

// shared is the server of this test process. It is a variable since tests cannot receive values from
// TestMain.
var shared struct {
	sync.Mutex
	running bool // within Run
	// users makes this process a user of the server of the run; nil with a server that the environment names.
	users    *os.File
	admin    *pgx.Conn
	url      string // of any database of the server
	template string
	// strategy is how databases are copied, where the server knows more than one way.
	strategy string
	// created are all databases but the template, free those that no test uses.
	created, free []string
}

var numbers atomic.Int64

const folderPrefix = "annals-pgtest-"

// Main runs the tests and exits: func TestMain(m *testing.M) { pgtest.Main(m) }. The first test of a
// run that asks for a database starts the server, the end of its last package stops and removes it.
func Main(m interface{ Run() int }) { os.Exit(Run(m)) }

// Run is Main for a TestMain that has more to do; it returns the exit code.
func Run(m interface{ Run() int }) int {
	// Tests start one service after the other, whose garbage is small for the memory of a machine. With a quarter of the
	// collections they take a seventh less processor time.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	shared.running = true
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		return max(code, 1)
	}
	return code
}

// Database returns a pool on a database with schema ops migrated and no rows. No other test uses the
// database until the test ends.
func Database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pg.OpenPool(t.Context(), URL(t))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// URL returns the address of a database with schema ops migrated and no rows. No other test uses the
// database until the test ends.
func URL(t testing.TB) string {
	t.Helper()
	name, address, err := reserve(t.Context())
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := release(name, address); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return address
}

// reserve takes a database that an earlier test has released, or creates one. To create a database
// takes ten times as long as to clear one.
func reserve(ctx context.Context) (name, address string, err error) {
	shared.Lock()
	defer shared.Unlock()
	if !shared.running {
		return "", "", errors.New("the package needs func TestMain(m *testing.M) { pgtest.Main(m) }")
	}
	if shared.admin == nil {
		if err := start(ctx); err != nil {
			return "", "", err
		}
	}
	if last := len(shared.free) - 1; last >= 0 {
		name, shared.free = shared.free[last], shared.free[:last]
		address, err = onDatabase(shared.url, name)
		return name, address, err
	}
	if name, address, err = adopt(ctx); name != "" || err != nil {
		return name, address, err
	}
	name = newName()
	create := "create database " + name + " template " + shared.template + shared.strategy
	if err := claim(ctx, name); err != nil {
		return "", "", err
	}
	if _, err := shared.admin.Exec(ctx, create); err != nil {
		return "", "", fmt.Errorf("create database: %w", err)
	}
	shared.created = append(shared.created, name)
	address, err = onDatabase(shared.url, name)
	return name, address, err
}

// claim locks the name of a database until this process ends.
func claim(ctx context.Context, name string) error {
	if _, err := shared.admin.Exec(ctx, "select pg_advisory_lock($1, hashtext($2))", claims, name); err != nil {
		return fmt.Errorf("lock the database: %w", err)
	}
	return nil
}

// claims is the class of the advisory locks of databases.
const claims = 0x616e6e

// adopt takes a database of a process that has ended, if there is one.
func adopt(ctx context.Context) (name, address string, err error) {
	if shared.users == nil {
		return "", "", nil // processes of other runs may use that server
	}
	err = shared.admin.QueryRow(ctx, `select datname from pg_database
		where datname like $1 and datname <> all($2) and pg_try_advisory_lock($3, hashtext(datname)) limit 1`,
		strings.ReplaceAll(namePrefix(), "_", `\_`)+"%", append(shared.created, ""), claims).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("look for a database: %w", err)
	}
	if address, err = onDatabase(shared.url, name); err != nil {
		return "", "", err
	}
	shared.created = append(shared.created, name)
	return name, address, clean(ctx, address)
}

// release clears a database for the next test: it ends the sessions that are left, drops what the
// test created and empties the tables of schema ops.
func release(name, address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := clean(ctx, address); err != nil {
		return err
	}
	shared.Lock()
	defer shared.Unlock()
	shared.free = append(shared.free, name)
	return nil
}

func clean(ctx context.Context, address string) (err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return fmt.Errorf("connect to clear a database: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if _, err := conn.Exec(ctx, SchemaPrefix().Statement(clearDatabase)); err != nil {
		return fmt.Errorf("clear database: %w", err)
	}
	return nil
}

// clearDatabase brings a database back to the state of the template. The migrations insert no rows.
// A terminated session holds its locks for a moment; the statements after it wait for them.
const clearDatabase = `do $$
declare
	name text;
	ops text := annals_schema_prefix() || 'ops';
begin
	perform pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid();
	for name in select nspname from pg_namespace where nspname !~ '^pg_' and nspname not in ('information_schema', ops) loop
		execute format('drop schema %I cascade', name);
	end loop;
	create schema public;
	if to_regnamespace(ops) is null then
		raise 'a test dropped schema ops of a database that others use after it';
	end if;
	comment on schema ops is null; -- each test has its own log
	for name in select tablename from pg_tables where schemaname = ops and tablename <> 'migrations' loop
		if obj_description(format('%I.%I', ops, name)::regclass) = 'template' then
			execute format('truncate %I.%I cascade', ops, name);
		else
			execute format('drop table %I.%I cascade', ops, name);
		end if;
	end loop;
end $$`

// markTemplate marks the tables that every database has.
const markTemplate = `do $$
declare
	name text;
	ops text := annals_schema_prefix() || 'ops';
begin
	for name in select tablename from pg_tables where schemaname = ops loop
		execute format('comment on table %I.%I is %L', ops, name, 'template');
	end loop;
end $$`

// start starts the server, or uses the one that the environment names, and creates the template.
func start(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // the server outlives the test that is the first to want it
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	shared.url = os.Getenv(Variable)
	if shared.url == "" {
		var err error
		if shared.users, shared.url, err = join(ctx); err != nil {
			return fmt.Errorf("server of the run: %w", err)
		}
	}
	admin, err := pgx.Connect(ctx, shared.url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	shared.admin = admin
	var version int
	if err := admin.QueryRow(ctx, "select current_setting('server_version_num')::int").Scan(&version); err != nil {
		return fmt.Errorf("read the version: %w", err)
	}
	if version >= 150000 {
		shared.strategy = " strategy file_copy" // the default logs each page
	}
	if shared.users == nil {
		shared.template = newName()
		return makeTemplate(ctx, shared.template)
	}
	return shareTemplate(ctx)
}

// shareTemplate makes the template of the run, unless another process did.
func shareTemplate(ctx context.Context) error {
	shared.template = templateName()
	if err := claim(ctx, shared.template); err != nil {
		return err
	}
	var made bool
	err := shared.admin.QueryRow(ctx, `select exists (select from pg_database where datname = $1)`, shared.template).Scan(&made)
	if err == nil && !made {
		// It gets its name when it is complete.
		name := fmt.Sprintf("%s_%d", shared.template, os.Getpid())
		if err = makeTemplate(ctx, name); err == nil {
			_, err = shared.admin.Exec(ctx, "alter database "+name+" rename to "+shared.template)
		}
	}
	_, unlockErr := shared.admin.Exec(ctx, "select pg_advisory_unlock($1, hashtext($2))", claims, shared.template)
	if err = errors.Join(err, unlockErr); err != nil {
		return fmt.Errorf("template of the run: %w", err)
	}
	return nil
}

// makeTemplate makes a database with schema ops migrated.
func makeTemplate(ctx context.Context, name string) error {
	if _, err := shared.admin.Exec(ctx, "create database "+name); err != nil {
		return fmt.Errorf("create template: %w", err)
	}
	address, err := onDatabase(shared.url, name)
	if err != nil {
		return err
	}
	pool, err := pg.OpenPool(ctx, address)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := ops.Migrate(ctx, pool, uuid.Nil); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, markTemplate); err != nil {
		return fmt.Errorf("mark the tables of the template: %w", err)
	}
	return nil
}

// stop removes the databases from a server that the environment names. Those of the server of the run are left to its
// other users, and go with it.
func stop() error {
	shared.Lock()
	defer shared.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var errs []error
	if shared.admin != nil {
		if shared.users == nil {
			for _, name := range append(shared.created, shared.template) {
				_, err := shared.admin.Exec(ctx, "drop database if exists "+name+" with (force)")
				errs = append(errs, err)
			}
		}
		errs = append(errs, shared.admin.Close(ctx))
	}
	if shared.users != nil {
		errs = append(errs, shared.users.Close())
	}
	return errors.Join(errs...)
}

// Databases with a prefix and those without may be on one server.
func namePrefix() string   { return "annals_" + string(SchemaPrefix()) + "test_" }
func templateName() string { return "annals_" + string(SchemaPrefix()) + "template" }

// newName returns a database name that is unique on this machine.
func newName() string {
	return fmt.Sprintf("%s%d_%d_%d", namePrefix(), os.Getpid(), time.Now().UnixNano(), numbers.Add(1))
}

// onDatabase returns the URL of another database of the same server.
func onDatabase(address, name string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("%s must be a postgres:// URL: %w", Variable, err)
	}
	u.Path = "/" + name
	return withPrefix(u.String()), nil
}

// withPrefix adds the prefix to the URL of a database.
func withPrefix(address string) string {
	prefix := SchemaPrefix()
	switch {
	case prefix == "":
		return address
	case strings.Contains(address, "?"):
		return address + "&" + pg.SchemaPrefixParameter + "=" + string(prefix)
	}
	return address + "?" + pg.SchemaPrefixParameter + "=" + string(prefix)
}
