package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSources looks at every file that the program is built of. The program is built by a process
// of its own, of which the cache of test results knows nothing: by this it knows that a result is
// old once one of them changes.
func TestSources(t *testing.T) {
	found := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (name == "bin" || name == "testdata" || strings.HasPrefix(name, ".") && name != "..") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "go.") ||
			strings.HasSuffix(name, ".sql") {
			found[filepath.ToSlash(path)] = true
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "cmd/annals/main.go", "domain/catalog.go", "projections/access/schema.sql"} {
		if !found["../../"+name] {
			t.Errorf("%s is not among the %d files", name, len(found))
		}
	}
}
