package schemas_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/pg/schemas"
	"github.com/annals-project/annals/internal/runtest"
)

func TestParse(t *testing.T) {
	longest := strings.Repeat("a", schemas.MaxPrefix)
	for _, good := range []string{"", "a", "acme_", "acme", "a1_b2_", "pg", longest} {
		if p, err := schemas.Parse(good); err != nil || string(p) != good {
			t.Errorf("%q: %q, %v", good, p, err)
		}
	}
	for _, bad := range []string{"_a", "1a", "Acme_", "ac me", "a-b", "a.b", `a"`, "a'", "ä", "pg_", "pg_a", longest + "a", "a\n"} {
		if _, err := schemas.Parse(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// The longest name fits into an identifier of Postgres.
func TestMaxPrefix(t *testing.T) {
	p := schemas.Prefix(strings.Repeat("a", schemas.MaxPrefix))
	for _, name := range schemas.Names() {
		if old := p.Name(name + schemas.OldSuffix + "9223372036854775807"); len(old) > 63 {
			t.Errorf("%s has %d bytes", old, len(old))
		}
	}
}

func TestPrefix_Name(t *testing.T) {
	for name, want := range map[string]string{
		"ops": "a_ops", "directory": "a_directory", "directory_next": "a_directory_next", "trace_old_7": "a_trace_old_7",
		"apples": "apples", "usages": "usages", "trace_old_": "trace_old_", "trace_old_x": "trace_old_x",
		"a_directory": "a_directory",
	} {
		if got := schemas.Prefix("a_").Name(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestPrefix_IsOfAnother(t *testing.T) {
	for name, want := range map[string][2]bool{ // without a prefix, with a_
		"usage_next": {false, true}, "usage": {false, true}, "a_usage_old_3": {true, false}, "a_ops": {true, false},
		"b_usage_next": {true, true}, "apples_next": {false, false}, "a_apples": {false, false},
	} {
		if got := [2]bool{schemas.Prefix("").IsOfAnother(name), schemas.Prefix("a_").IsOfAnother(name)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// A name with a prefix is never one of a service without a prefix, so nothing is changed twice.
func TestNames_NoneEndsWithAnother(t *testing.T) {
	for _, name := range schemas.Names() {
		for _, other := range schemas.Names() {
			if name != other && strings.HasSuffix(name, other) {
				t.Errorf("prefix %q makes the schema %s of %s", strings.TrimSuffix(name, other), name, other)
			}
		}
	}
}

func TestPrefix_Statement(t *testing.T) {
	for sql, want := range map[string]string{
		`select * from directory.identities d`:                                       `select * from p_directory.identities d`,
		`select 1 from "directory"."identities"`:                                     `select 1 from "p_directory"."identities"`,
		`select 1 from DIRECTORY.identities, ops.leases`:                             `select 1 from p_DIRECTORY.identities, p_ops.leases`,
		"select directory\n\t. identities":                                           "select p_directory\n\t. identities",
		`select usage, access from t`:                                                `select usage, access from t`,
		`select u.usage.x, u.usage`:                                                  `select u.usage.x, u.usage`,
		`grant usage on schema ops to usage`:                                         `grant usage on schema p_ops to usage`,
		`grant select on all tables in schema ops, "access" to x`:                    `grant select on all tables in schema p_ops, "p_access" to x`,
		`select trace_id, xusage.a, usage1.b, ops_.c from tracer.t`:                  `select trace_id, xusage.a, usage1.b, ops_.c from tracer.t`,
		`select from usage_next.a, usage_old_12.b, usage_old.c`:                      `select from p_usage_next.a, p_usage_old_12.b, usage_old.c`,
		`select from p_usage.a, "p_usage_next".b`:                                    `select from p_usage.a, "p_usage_next".b`,
		`create schema ops`:                                                          `create schema p_ops`,
		`create schema if not exists ops authorization access`:                       `create schema if not exists p_ops authorization access`,
		`drop schema if exists access, "usage_next", other, trace cascade`:           `drop schema if exists p_access, "p_usage_next", other, p_trace cascade`,
		`alter schema "trace_next" rename to "trace"; alter table t rename to trace`: `alter schema "p_trace_next" rename to "p_trace"; alter table t rename to trace`,
		`comment on schema "trace" is 'annals log trace.x'`:                          `comment on schema "p_trace" is 'annals log trace.x'`,
		`begin; set local search_path = "trace"`:                                     `begin; set local search_path = "p_trace"`,
		`set search_path to trace, public, usage; select usage`:                      `set search_path to p_trace, public, p_usage; select usage`,
		`select 'directory.identities', E'\'directory.x' , "a""directory.b" from t`:  `select 'directory.identities', E'\'directory.x' , "a""directory.b" from t`,
		`select 'it''s', directory.x`:                                                `select 'it''s', p_directory.x`,
		"select 1 -- usage.a is it's\n, usage.b":                                     "select 1 -- usage.a is it's\n, p_usage.b",
		`select /* usage.a /* ' */ " */ usage.b`:                                     `select /* usage.a /* ' */ " */ p_usage.b`,
		`select $1::usage.kind, $2, 1.5e3, usage.a`:                                  `select $1::p_usage.kind, $2, 1.5e3, p_usage.a`,
		`do $x$ begin delete from usage.a; end $x$`:                                  `do $x$ begin delete from p_usage.a; end $x$`,
		`select $$usage.a $1$$, usage.b`:                                             `select $$p_usage.a $1$$, p_usage.b`,
		`select $$usage.a`:                                                           `select $$usage.a`,
		`select 'usage.a`:                                                            `select 'usage.a`,
		`select to_regclass('ops.' || $1)`:                                           `select to_regclass('p_ops.' || $1)`,
		`select to_regclass('"ops".checkpoint'), to_regclass('ops')`:                 `select to_regclass('"p_ops".checkpoint'), to_regclass('ops')`,
		`select to_regnamespace('ops'), f('ops')`:                                    `select to_regnamespace('p_ops'), f('ops')`,
		`select 'ops.leases'::regclass, 'ops.x'::text`:                               `select 'p_ops.leases'::regclass, 'ops.x'::text`,
		`select annals_schema_prefix() || 'ops'`:                                     `select 'p_'::text || 'ops'`,
		`select 'annals_schema_prefix()'`:                                            `select 'annals_schema_prefix()'`,
		`copy "ops"."requests" ( "a" ) from stdin binary;`:                           `copy "p_ops"."requests" ( "a" ) from stdin binary;`,
		`vacuum (index_cleanup on) "memories"."memories"`:                            `vacuum (index_cleanup on) "p_memories"."memories"`,
		`select x'616e'::bigint, n'usage.x', b'0'`:                                   `select x'616e'::bigint, n'usage.x', b'0'`,
		``: ``, `;`: `;`, `/*`: `/*`, `"`: `"`, `$`: `$`, `'`: `'`, `--`: `--`, `usage.`: `p_usage.`,
	} {
		if got := schemas.Prefix("p_").Statement(sql); got != want {
			t.Errorf("%s\n got %s\nwant %s", sql, got, want)
		}
		if got := schemas.Prefix("p_").Statement(want); got != want {
			t.Errorf("%s is changed again: %s", want, got)
		}
	}
	const call = `select annals_schema_prefix() || 'ops' from ops.leases`
	if got := schemas.Prefix("").Statement(call); got != `select ''::text || 'ops' from ops.leases` {
		t.Errorf("without a prefix: %s", got)
	}
}

const root = "../../.."

// text is a text of the repository that may have statements.
type text struct{ at, sql string }

var statement = regexp.MustCompile(`(?i)\b(select|insert into|update|delete from|from|join|create|drop|alter|vacuum|truncate)\b`)

// texts returns every file of statements and every text of the program that looks like one.
func texts(t *testing.T) (all []text) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name := d.Name(); name == "testdata" || name == "node_modules" || path != root && strings.HasPrefix(name, ".") {
				return fs.SkipDir
			}
			return nil
		case strings.HasSuffix(path, ".sql"):
			content, err := os.ReadFile(path)
			all = append(all, text{path, string(content)})
			return err
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			e, is := n.(ast.Expr)
			if !is {
				return true
			}
			if sql, is := value(e); is {
				if statement.MatchString(sql) {
					all = append(all, text{files.Position(e.Pos()).String(), sql})
				}
				return false
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// value returns the text of an expression that is a text or a sum with texts. Any word stands for its other parts.
func value(e ast.Expr) (sql string, is bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		sql, err := strconv.Unquote(e.Value)
		return sql, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, isLeft := value(e.X)
		right, isRight := value(e.Y)
		return left + right, e.Op == token.ADD && (isLeft || isRight)
	}
	return "word", false
}

var created = regexp.MustCompile(`(?i)create (?:unlogged )?(?:table|type|function|sequence)(?: if not exists)?\s+([a-z_.]+)`)

// tables returns what the files of statements create, as schema and table.
func tables(all []text) map[string]bool {
	found := map[string]bool{}
	for _, name := range schemas.Names() {
		found[name+".checkpoint"], found[name+".follow_ups"] = true, true
	}
	for _, of := range all {
		schema := filepath.Base(filepath.Dir(of.at))
		for _, m := range created.FindAllStringSubmatch(of.sql, -1) {
			if name := strings.ToLower(m[1]); strings.Contains(name, ".") {
				found[name] = true
			} else if filepath.Base(of.at) == "schema.sql" {
				found[schema+"."+name] = true
			}
		}
	}
	return found
}

// In all statements of the program, a prefix is added to the name of a schema before a table of it, and to nothing
// else, such as an alias that is named as a schema.
func TestPrefix_StatementsOfTheProgram(t *testing.T) {
	all := texts(t)
	known := tables(all)
	name := `\b(` + strings.Join(schemas.Names(), "|") + `)\.([a-z_]+)`
	plain, prefixed := regexp.MustCompile(name), regexp.MustCompile(`p_`+strings.TrimPrefix(name, `\b`))
	var changed int
	for _, of := range all {
		got := schemas.Prefix("p_").Statement(of.sql)
		for _, m := range prefixed.FindAllStringSubmatch(got, -1) {
			changed++
			if !known[m[1]+"."+m[2]] {
				t.Errorf("%s: %s.%s is not a table, but gets a prefix", of.at, m[1], m[2])
			}
		}
		if strings.Contains(of.sql, "--") {
			continue // the comments of files name tables
		}
		for _, m := range plain.FindAllStringSubmatch(got, -1) {
			if known[m[1]+"."+m[2]] {
				t.Errorf("%s: table %s.%s gets no prefix", of.at, m[1], m[2])
			}
		}
		if back := strings.ReplaceAll(strings.ReplaceAll(got, "p_", ""), "''::text", schemas.Call); back !=
			strings.ReplaceAll(of.sql, "p_", "") {
			t.Errorf("%s: more than prefixes is changed:\n%s", of.at, got)
		}
		if again := schemas.Prefix("p_").Statement(got); again != got {
			t.Errorf("%s: is changed again:\n%s", of.at, again)
		}
	}
	if changed < 500 {
		t.Errorf("%d names of tables in %d texts", changed, len(all))
	}
}

func TestMain(m *testing.M) { pgtest.Main(m) }

// Every way to send a statement uses the schemas of the prefix, and a copy of the pool does too.
func TestPool(t *testing.T) {
	ctx, url := t.Context(), pgtest.URL(t)
	for _, mode := range []string{"", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			address := url
			if mode != "" {
				address += map[bool]string{true: "&", false: "?"}[strings.Contains(url, "?")] + "default_query_exec_mode=" + mode
			}
			db, err := pg.OpenPool(ctx, address, pg.SchemaPrefix("a_"))
			runtest.Must(t, err)
			defer db.Close()
			exec := func(sql string, args ...any) {
				t.Helper()
				_, err := db.Exec(ctx, sql, args...)
				runtest.Must(t, err)
			}
			exec("drop schema if exists trace cascade; create schema trace; create table trace.rows (name text)")
			exec("insert into trace.rows values ($1)", "trace.rows 'annals_schema_prefix()'")
			batch := new(pgx.Batch)
			for _, name := range []string{"one", "two"} {
				batch.Queue("insert into trace.rows values ($1)", name)
			}
			runtest.Must(t, db.SendBatch(ctx, batch).Close())
			_, err = db.CopyFrom(ctx, pgx.Identifier{"trace", "rows"}, []string{"name"}, pgx.CopyFromRows([][]any{{"copied"}}))
			runtest.Must(t, err)
			runtest.Must(t, pgx.BeginTxFunc(ctx, db, pgx.TxOptions{BeginQuery: "begin; set local search_path = trace"},
				func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "insert into rows values ('by the path')")
					return err
				}))
			copied, err := pgxpool.NewWithConfig(ctx, db.Config())
			runtest.Must(t, err)
			defer copied.Close()
			var names, where string
			runtest.Must(t, copied.QueryRow(ctx, `select string_agg(name, ',' order by name), (select string_agg(schemaname, ',')
				from pg_tables where tablename = 'rows') from trace.rows`).Scan(&names, &where))
			if want := "by the path,copied,one,trace.rows 'annals_schema_prefix()',two"; names != want || where != "a_trace" {
				t.Errorf("rows %q in schema %s", names, where)
			}
			if p := pg.SchemaPrefixOf(copied); p != "a_" {
				t.Errorf("prefix %q", p)
			}
		})
	}
}

// Services with different prefixes do not wait for each other, and one without has the keys of earlier versions.
func TestLockKey(t *testing.T) {
	url, keys := pgtest.URL(t), map[string]int64{}
	for _, prefix := range []string{"", "a_", "b_"} {
		db, err := pg.OpenPool(t.Context(), url, pg.SchemaPrefix(prefix))
		runtest.Must(t, err)
		defer db.Close()
		var key int64
		runtest.Must(t, db.QueryRow(t.Context(), `select 7::bigint # `+schemas.LockKey).Scan(&key))
		keys[prefix] = key
	}
	if keys["a_"] == keys["b_"] || keys["a_"] == 7 || keys["b_"] == 7 {
		t.Errorf("keys %v", keys)
	}
	if keys[""] != 7 && pgtest.SchemaPrefix() == "" {
		t.Errorf("without a prefix the key is %d, want 7", keys[""])
	}
}

func BenchmarkPrefix_Statement(b *testing.B) {
	sql := strings.Repeat("select d.id, d.body from datapoints.data_points d join directory.identities i on i.id = d.by\n", 20)
	b.SetBytes(int64(len(sql)))
	for b.Loop() {
		schemas.Prefix("acme_").Statement(sql)
	}
}
