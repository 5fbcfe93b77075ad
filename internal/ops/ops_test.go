package ops_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/ownership"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// empty returns a database without schema ops.
func empty(t *testing.T) *pgxpool.Pool {
	t.Helper()
	admin := pgtest.Database(t)
	name := fmt.Sprintf("annals_ops_%d", os.Getpid())
	exec(t, admin, "create database "+name)
	db, err := pg.OpenPool(t.Context(), pgtest.URL(t), func(c *pgxpool.Config) { c.ConnConfig.Database = name })
	runtest.Must(t, err)
	t.Cleanup(func() {
		db.Close()
		if _, err := admin.Exec(runtest.Context(t), "drop database "+name); err != nil {
			t.Error(err)
		}
	})
	return db
}

func exec(t *testing.T, db *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestMigrate_ProcessesThatStartTogether(t *testing.T) {
	db := empty(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := ops.Migrate(t.Context(), db, uuid.Nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var files, owners, tables int
	runtest.Must(t, db.QueryRow(t.Context(), `select count(*), count(distinct split_part(file, '/', 1)),
		(select count(*) from pg_tables where schemaname = annals_schema_prefix() || 'ops' and tablename in ('leases', 'seen', 'embedding_model'))
		from ops.migrations`).Scan(&files, &owners, &tables))
	if want := len(ops.Owners()); owners != want || files < want || tables != 3 {
		t.Errorf("%d files of %d owners ran, want one or more of each of %d; %d of 3 tables", files, owners, want, tables)
	}
}

func TestMigrate_ThatFails(t *testing.T) {
	db := empty(t)
	exec(t, db, "create schema ops; create table ops.embedding_model (unknown text)")
	if err := ops.Migrate(t.Context(), db, uuid.Nil); err == nil {
		t.Fatal("a table of another program is taken for ours")
	}
	var tables int
	runtest.Must(t, db.QueryRow(t.Context(), `select count(*) from pg_tables where schemaname = annals_schema_prefix() || 'ops'`).Scan(&tables))
	if tables != 1 {
		t.Errorf("%d tables, want the one from before", tables)
	}
}

func TestMigrate_KeepsNoStatisticsOfSealedKeys(t *testing.T) {
	db := pgtest.Database(t)
	exec(t, db, `insert into ops.sealed_keys (key_id, seal_key, sealed)
		select gen_random_uuid(), 'one', decode('00', 'hex') from generate_series(1, 100)`)
	exec(t, db, "analyze ops.sealed_keys")
	var columns []string
	runtest.Must(t, db.QueryRow(t.Context(), `select array_agg(attname::text order by attname) from pg_stats
		where schemaname = annals_schema_prefix() || 'ops' and tablename = 'sealed_keys'`).Scan(&columns))
	if fmt.Sprint(columns) != "[kept_at key_id seal_key]" {
		t.Errorf("Postgres keeps statistics of %v", columns)
	}
}

// marked is a schema of a log.
func marked(schema string, logID uuid.UUID) string {
	return "create schema " + schema + ";" + ownership.MarkStatement(schema, logID) + ";"
}

func TestCheckOwner(t *testing.T) {
	log, other := uuid.New(), uuid.New()
	unmarked := func(rows string) string {
		return `create schema ops; create table ops.migrations (file text primary key, applied_at timestamptz);
			insert into ops.migrations values ('usage/1.sql'); create table ops.seen (n int);` + rows
	}
	const filled = `insert into ops.seen values (1);`
	checkpoint := `create schema usage; create table usage.checkpoint (log_id uuid);
		insert into usage.checkpoint values ('` + log.String() + `')`
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
		"a checkpoint, no mark":        {checkpoint, log, "usage", uuid.Nil},
		"an old schema's name":         {`create schema trace_old_7`, log, "trace_old_7", uuid.Nil},
		"of this log":                  {marked("ops", log), log, "", uuid.Nil},
		"ops of another log":           {marked("ops", other), log, "ops", other},
		"no event, ops of a log":       {marked("ops", other), uuid.Nil, "ops", other},
		"no event, rows of a log":      {marked("datapoints", other), uuid.Nil, "datapoints", other},
		"no mark, of this log":         {unmarked(filled) + marked("datapoints", log), log, "", uuid.Nil},
		"no mark, of another log":      {unmarked(filled) + marked("datapoints", other), log, "datapoints", other},
		"no mark, no projection":       {unmarked(filled), log, "ops", uuid.Nil},
		"no mark, without rows":        {unmarked(""), log, "", uuid.Nil},
		"no event, no mark, no rows":   {unmarked(""), uuid.Nil, "", uuid.Nil},
		"no event, no mark, with rows": {unmarked(filled), uuid.Nil, "ops", uuid.Nil},
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
			if c.refused == "" && !strings.HasPrefix(name, "no mark, ") && err != nil {
				t.Errorf("migrate: %v", err)
			}
		})
	}
}

// What was made while the log was not known gets its mark once it is.
func TestMigrate_MarksWhatHadNoLog(t *testing.T) {
	log, other := uuid.New(), uuid.New()
	db := empty(t)
	runtest.Must(t, ops.Migrate(t.Context(), db, uuid.Nil))
	exec(t, db, `insert into ops.embedding_model (name) values ('one')`)
	exec(t, db, marked("datapoints", log))
	for range 2 {
		runtest.Must(t, ops.Migrate(t.Context(), db, log))
	}
	s, ok, err := ownership.One(t.Context(), db, pg.SchemaPrefixOf(db).Name("ops"))
	if err != nil || !ok || s.LogID != log {
		t.Errorf("%+v, %t, %v", s, ok, err)
	}
	exec(t, db, `drop schema datapoints cascade`)
	runtest.Must(t, ops.CheckOwner(t.Context(), db, log))
	if err := ops.Migrate(t.Context(), db, other); err == nil || !strings.Contains(err.Error(), log.String()) {
		t.Errorf("a second log in the database: %v", err)
	}
}

var (
	made  = regexp.MustCompile(`(?m)^create (?:unlogged )?table ops\.([a-z_]+)`)
	named = regexp.MustCompile(`\bops\.([a-z_]+)`)
)

// readers are files outside the owner's package that read a table, such as in a join.
var readers = map[string][]string{}

// ownerOf returns the package that owns each table.
func ownerOf(t *testing.T, root fs.FS) map[string]string {
	t.Helper()
	folders, err := fs.Glob(root, "internal/ops/*/1.sql")
	runtest.Must(t, err)
	owners := map[string]string{"migrations": "internal/ops"}
	for _, o := range ops.Owners() {
		folder := path.Join("internal/ops", o.Folder)
		folders = slices.DeleteFunc(folders, func(file string) bool { return path.Dir(file) == folder })
		if _, err := fs.Stat(root, o.Package); err != nil {
			t.Errorf("owner %s: %v", o.Folder, err)
		}
		files, err := fs.Glob(root, folder+"/*.sql")
		runtest.Must(t, err)
		for _, file := range files {
			sql, err := fs.ReadFile(root, file)
			runtest.Must(t, err)
			for _, table := range made.FindAllSubmatch(sql, -1) {
				if other := owners[string(table[1])]; other != "" {
					t.Errorf("%s makes ops.%s, which is of %s", file, table[1], other)
				}
				owners[string(table[1])] = o.Package
			}
		}
	}
	for _, folder := range folders {
		t.Errorf("%s is of no owner", folder)
	}
	return owners
}

// texts returns the SQL and the string literals of a file.
func texts(t *testing.T, root fs.FS, file string) []string {
	t.Helper()
	src, err := fs.ReadFile(root, file)
	runtest.Must(t, err)
	if path.Ext(file) == ".sql" {
		return []string{string(src)}
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, src, parser.SkipObjectResolution)
	runtest.Must(t, err)
	var list []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		if lit, is := n.(*ast.BasicLit); is && lit.Kind == token.STRING {
			list = append(list, lit.Value)
		}
		return true
	})
	return list
}

// Another package that wrote a table would be left out when its owner changes the table.
func TestTables_AreNamedByTheirOwnerAlone(t *testing.T) {
	root := os.DirFS("../..")
	owners, users := ownerOf(t, root), map[string]bool{}
	runtest.Must(t, fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); file == "internal/ops" || name == "testdata" || file != "." && name[0] == '.' {
				return fs.SkipDir
			}
			return nil
		}
		if ext := path.Ext(file); ext != ".go" && ext != ".sql" || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		for _, text := range texts(t, root, file) {
			for _, m := range named.FindAllStringSubmatch(text, -1) {
				table := m[1]
				owner := owners[table]
				users[table] = true
				if owner == "" {
					t.Errorf("%s names ops.%s, which no owner makes", file, table)
				} else if !strings.HasPrefix(file, owner+"/") && !slices.Contains(readers[file], table) {
					t.Errorf("%s names ops.%s, which is of %s: call that", file, table, owner)
				}
			}
		}
		return nil
	}))
	for table := range owners {
		if !users[table] && table != "migrations" {
			t.Errorf("nobody names ops.%s", table)
		}
	}
}

// A schema that is gone or closed to the role is a problem, though the server answers.
func TestCheck(t *testing.T) {
	db := empty(t)
	if err := ops.Migrate(t.Context(), db, uuid.Nil); err != nil {
		t.Fatal(err)
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`create role ops_check_reader`)
	defer exec(`drop owned by ops_check_reader; drop role ops_check_reader`)
	limited := db.Config()
	limited.ConnConfig.RuntimeParams["role"] = "ops_check_reader"
	reader, err := pgxpool.NewWithConfig(t.Context(), limited)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	want := func(of *pgxpool.Pool, part string) {
		t.Helper()
		err := ops.Check(t.Context(), of)
		if part == "" && err == nil {
			return
		}
		if problem, is := errors.AsType[*ops.Problem](err); !is || part == "" || !strings.Contains(problem.Error(), part) {
			t.Errorf("%v, want %q", err, part)
		}
	}
	want(db, "")
	want(reader, "42501 (the role of ANNALS_POSTGRES lacks a right")
	exec(`grant usage on schema ops to ops_check_reader; grant select on all tables in schema ops to ops_check_reader`)
	want(reader, "may not read and write")
	exec(`grant insert, update, delete on all tables in schema ops to ops_check_reader`)
	want(reader, "")
	exec(`drop schema ops cascade`)
	want(db, "42P01 (something that this program made is missing")
}
