package ops_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/runtest"
)

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
