package archtest_test

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/annals-project/annals/internal/archtest"
)

func TestTree_KeepsRules(t *testing.T) {
	found, err := archtest.Check(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
}

func TestCheck_PlantedViolation(t *testing.T) {
	const ours = archtest.Module + "/"
	machine := "/ho" + "me/ana/annals"
	for name, c := range map[string]struct {
		file, src, want string
	}{
		"domain imports us":            {"domain/a/a.go", imports(ours + "internal/auth"), "domain may not import internal/auth"},
		"domain does output":           {"domain/a/a.go", imports("github.com/jackc/pgx/v5"), "domain may import the standard library"},
		"event store imports commands": {"eventstore/a.go", imports(ours + "commands"), "eventstore may not import commands"},
		"internal imports projections": {"internal/a/a.go", imports(ours + "projections"), "internal may not import projections"},
		"commands import projections":  {"commands/a.go", imports(ours + "projections/access"), "commands may not import projections/access"},
		"projections import commands":  {"projections/a.go", imports(ours + "commands"), "projections may not import commands"},
		"write side reads":             {"writeapi/a.go", imports(ours + "projections"), "writeapi may not import projections"},
		"read side writes":             {"readapi/a.go", imports(ours + "commands"), "readapi may not import commands"},
		"client imports us":            {"client/a.go", imports(ours + "domain/limit"), "client may not import domain/limit"},
		"client imports a module":      {"client/a.go", imports("github.com/google/uuid"), "client may import the standard library alone"},
		"domain calls the API":         {"domain/a/a.go", imports(ours + "client"), "domain may not import client"},
		"unknown folder":               {"util/a.go", imports(ours + "domain"), "folder util is not in the table"},
		"client outside the adapter":   {"eventstore/feed/a.go", imports("github.com/EventStore/EventStore-Client-Go/v4/esdb"), "eventstore/esdb only"},
		"protos outside the node":      {"commands/a.go", imports("github.com/EventStore/EventStore-Client-Go/v4/protos/streams"), "eventstore/node only"},
		"echo in commands":             {"commands/a.go", imports("github.com/labstack/echo/v4"), "may be imported in writeapi"},
		"test module in the product":   {"commands/a.go", imports("github.com/google/go-cmp/cmp"), "is for tests"},
		"suite in the product":         {"commands/a.go", imports(ours + "eventstore/eventstoretest"), "is for tests"},
		"below a suite":                {"commands/a.go", imports(ours + "eventstore/eventstoretest/faults"), "is for tests"},
		"kit by another name":          {"commands/a.go", imports(ours + "internal/mailboxtest"), "is for tests"},
		"testing in the product":       {"internal/a/a.go", imports("testing/fstest"), "testing/fstest is for tests"},
		"server of tests":              {"console/a.go", imports("net/http/httptest"), "is for tests"},
		"testify":                      {"commands/a_test.go", imports("github.com/stretchr/testify/require"), "tests use the standard library"},
		"long file":                    {"commands/a.go", imports("fmt") + strings.Repeat("\n", archtest.MaxLines), "split the file"},
		"long function":                {"commands/a.go", imports("fmt") + "func f() {" + strings.Repeat("\n", 80) + "}\n", "81 lines are too many"},
		"init":                         {"commands/a.go", imports("fmt") + "func init() {}\n", "registers itself in init"},
		"no package comment":           {"commands/a.go", "package a\n", "has no package comment"},
		"sleeping test":                {"commands/a_test.go", imports("time") + "func f() { time.Sleep(1) }\n", "a test that sleeps"},
		"rapid without a seed":         {"commands/a_test.go", imports("pgregory.net/rapid"), "for a fixed seed"},
		"tombstone in a command":       {"commands/a.go", removal("w.store.Tombstone(ctx, name, at)"), "Tombstone takes events out of the log"},
		"truncation by a projection":   {"projections/a.go", removal("q.Store.Truncate(context.Background(), name, at)"), "Truncate takes events"},
		"deletion of a stream":         {"cmd/annals/a.go", removal("store.Delete(c.ctx, name, at)"), "Delete takes events"},
		"bound of a stream":            {"commands/a.go", removal("f(`{\"$maxCount\":1}`)"), "bounds a stream"},
		"file with a name":             {"console/a.go", removal("os.CreateTemp(dir, name)"), "CreateTemp makes a temporary file"},
		"form with files":              {"console/a.go", removal("r.ParseMultipartForm(1)"), "a temporary file with a name"},
		"unfinished":                   {"commands/a.go", imports("fmt") + "// TO" + "DO: later.\n", "unfinished work"},
		"avoided word in a comment":    {"internal/keylock/a.go", imports("fmt") + "// The lock stands anew.\n", "\"anew\""},
		"avoided word in a message":    {"internal/keylock/a.go", imports("fmt") + "var _ = fmt.Errorf(\"nobody was told\")\n", "\"told\""},
		"wide line":                    {"internal/keylock/a.go", imports("fmt") + "// " + strings.Repeat("a", 118) + "\n", "121 columns"},
		"SQL in the API":               {"readapi/a.go", imports("fmt") + "const q = `select id\n\tfrom access.keys`\n", "it has SQL"},
		"SQL with a clause":            {"writeapi/a.go", imports("fmt") + "const q = \"with old as (select 1) delete from t\"\n", "it has SQL"},
		"SQL in a command":             {"cmd/annals/a.go", imports("fmt") + "const q = \"update ops.requests set body = null\"\n", "it has SQL"},
		"database on the socket":       {"cmd/annals/internal/operatorapi/a.go", imports("github.com/jackc/pgx/v5/pgxpool"), "it imports github.com/jackc/pgx"},
		"HTTP for a verifier":          {"cmd/annals-verify/a.go", imports(ours + "internal/httpx"), "may import"},
		"database of a verifier":       {"internal/auditfiles/a.go", imports("github.com/jackc/pgx/v5"), "may import"},
		"service in the node":          {"eventstore/node/storage/a.go", imports(ours + "eventstore"), "eventstore/node may import"},
		"module in the node":           {"eventstore/node/a.go", imports("github.com/jackc/pgx/v5"), "eventstore/node may import"},
		"event in the extractor":       {"domain/comprehend/a.go", imports(ours + "domain/datapoint"), "domain/comprehend may import"},
		"more in what it is made of":   {"domain/memory/a.go", imports(ours + "domain/ingestion"), "domain/memory may import"},
		"audience in the file cutter":  {"domain/estimate/a.go", imports(ours + "domain/audience"), "domain/estimate may import"},
		"service in the small model":   {"internal/minilm/a.go", imports(ours + "internal/httpx"), "internal/minilm may import"},
		"event store in a command":     {"cmd/annals/a.go", imports(ours + "eventstore/esdb"), "it imports"},
		"type of the event store":      {"cmd/annals/a.go", imports(ours+"eventstore") + "var s eventstore.Store\n", "it uses eventstore.Store"},
		"stream read":                  {"writeapi/a.go", imports("fmt") + "func f() { s.ReadLast(c.Request().Context(), n) }\n", "it reads the log with ReadLast"},
		"subscription":                 {"cmd/annals/internal/transfer/a.go", imports("fmt") + "func f() { s.Subscribe(ctx, 0) }\n", "it reads the log with Subscribe"},
		"loop over pages":              {"readapi/a.go", imports("fmt") + "func f() { for { page := q.Page(ctx, after) } }\n", "it loops over pages"},
		"adapter that became one":      {"cmd/annals/node.go", imports("fmt"), "take it off"},
		"avoided word in a page":       {"docs/a.md", "It says so.\n", "\"says\""},
		"avoided word in a row":        {"docs/a.md", "| a | it says so |\n", "\"says\""},
		"avoided word in SQL":          {"projections/a/schema.sql", "-- Rows beside the others.\n", "\"beside\""},
		"avoided word in YAML":         {"readapi/a.yaml", "description: It is behind.\n", "\"behind\""},
		"wide line of a page":          {"docs/a.md", strings.Repeat("a", 121) + "\n", "121 columns"},
		"wide line of SQL":             {"projections/a/schema.sql", "-- " + strings.Repeat("a", 118) + "\n", "121 columns"},
		"wide line of YAML":            {"readapi/a.yml", "a: " + strings.Repeat("a", 118) + "\n", "121 columns"},
		"path of a machine in Go":      {"commands/a.go", imports("fmt") + "const dir = \"" + machine + "\"\n", "path of one machine"},
		"path of a machine in a doc":   {"README.md", "Look in `" + machine + "`.\n", "path of one machine"},
		"path of a machine in make":    {"Makefile", "DIR=" + machine + "\n", "path of one machine"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := archtest.Check(fstest.MapFS{c.file: &fstest.MapFile{Data: []byte(c.src)}})
			if err != nil {
				t.Fatal(err)
			}
			if len(found) != 1 || !strings.Contains(found[0].String(), c.want) ||
				!strings.HasPrefix(found[0].File, strings.Split(c.file, "/")[0]) {
				t.Fatalf("got %v, want one violation in %s with %q", found, c.file, c.want)
			}
		})
	}
}

func TestCheck_AllowedSource(t *testing.T) {
	const ours = archtest.Module + "/"
	tree := fstest.MapFS{}
	for file, src := range map[string]string{
		"domain/a/a.go":                      imports("github.com/google/uuid", "github.com/clipperhouse/uax29/v2/words", ours+"domain/event"),
		"domain/a/a_test.go":                 imports("pgregory.net/rapid", ours+"internal/seedtest"),
		"eventstore/esdb/a.go":               imports("github.com/EventStore/EventStore-Client-Go/v4/esdb", ours+"eventstore"),
		"eventstore/node/a.go":               imports("github.com/EventStore/EventStore-Client-Go/v4/protos/streams", "github.com/cockroachdb/pebble/v2"),
		"eventstore/node/a_test.go":          imports("github.com/EventStore/EventStore-Client-Go/v4/esdb"),
		"eventstore/eventstoretest/suite.go": imports("github.com/google/go-cmp/cmp") + strings.Repeat("\n", archtest.MaxLines),
		"commands/a_test.go":                 imports(ours + "projections"),
		"internal/httpx/a.go":                imports("github.com/labstack/echo/v4"),
		"client/a.go":                        imports("net/http"),
		"bench/a.go":                         imports(ours+"internal/bench/load", ours+"internal/scrapetest"),
		"internal/bench/hostile/a.go":        imports(ours + "internal/hostiletest"),
		"cmd/annals/internal/transfer/a.go":  imports(ours+"eventstore") + "func f() { for p := range c.Projects(ctx) { if errors.Is(err, eventstore.ErrDeleted) { return } } }\n",
		"writeapi/a.go":                      imports("io") + "func f() { for { io.ReadAll(r); context.Cause(ctx) } }\nvar help = \"with --identity: delete from now on, select what is, update it\"\n",
		"cmd/annals/internal/server/a.go":    imports("github.com/jackc/pgx/v5", ours+"eventstore/esdb") + "func f() { for { s.ReadLast(ctx, n) } }\n",
		"internal/importer/a.go":             imports(ours + "client"),
		"eventstore/node/nodetest/a.go":      imports(ours+"eventstore/esdb", ours+"internal/runtest", "testing"),
		"eventstore/node/storage/a.go":       imports("github.com/cockroachdb/pebble/v2/vfs", ours+"eventstore/backoff"),
		"cmd/annals/a.go":                    imports(ours+"commands", ours+"projections", ours+"readapi", "github.com/alecthomas/kong"),
		"docs/a.md": "It is `behind`, see [there](" + strings.Repeat("a", 120) + ") and https://" + strings.Repeat("a", 120) +
			".\n\n| " + strings.Repeat("a", 120) + " |\n",
		"readapi/a.yaml":     "    \"answer\": \"It says so." + strings.Repeat("a", 120) + "\"\n    | what the answer says |\n",
		"testdata/broken.go": "not Go at all",
		".cache/a.go":        "not Go at all",
	} {
		tree[file] = &fstest.MapFile{Data: []byte(src)}
	}
	found, err := archtest.Check(tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
}

func TestCheck_KitWithAnotherName(t *testing.T) {
	tree := fstest.MapFS{
		"internal/fakes/a.go":     {Data: []byte(imports("fmt"))},
		"commands/a_test.go":      {Data: []byte(imports(archtest.Module + "/internal/fakes"))},
		"internal/apitest/api.go": {Data: []byte(imports(archtest.Module + "/internal/fakes"))},
	}
	found, err := archtest.Check(tree)
	if err != nil || len(found) != 1 || !strings.Contains(found[0].String(), "internal/fakes:0: only tests import it") {
		t.Fatalf("got %v, %v, want that only tests import internal/fakes", found, err)
	}
	tree["commands/a.go"] = &fstest.MapFile{Data: []byte(imports(archtest.Module + "/internal/fakes"))}
	if found, err := archtest.Check(tree); err != nil || len(found) > 0 {
		t.Fatalf("got %v, %v of a package that the product imports", found, err)
	}
}

// removal writes a Go file with one call.
func removal(call string) string { return imports("fmt") + "func f() { " + call + " }\n" }

// imports writes a Go file that imports the paths.
func imports(paths ...string) string {
	src := "// Package a is planted.\npackage a\n\nimport (\n"
	for _, p := range paths {
		src += "\t_ \"" + p + "\"\n"
	}
	return src + ")\n\n"
}
