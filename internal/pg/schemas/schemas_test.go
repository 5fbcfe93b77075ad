package schemas_test

import (
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/pg/schemas"
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
