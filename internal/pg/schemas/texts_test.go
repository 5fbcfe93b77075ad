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

	"github.com/annals-project/annals/internal/pg/schemas"
)

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
