package archtest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// apart are the packages that know nothing of the service and could serve elsewhere, without it.
var apart = []string{"eventstore/node", "domain/comprehend", "domain/estimate", "internal/minilm"}

// A package apart is described for strangers, and each package of ours that it is made of has a row of narrow, so that
// narrow lists all that it would take along.
func TestApart_DescribedAndClosed(t *testing.T) {
	root := os.DirFS("../..")
	for _, folder := range apart {
		doc, err := parser.ParseFile(token.NewFileSet(), path.Join("../..", folder, "doc.go"), nil, parser.ParseComments)
		if err != nil || doc.Doc == nil {
			t.Errorf("%s has no doc.go with the comment of the package: %v", folder, err)
			continue
		}
		for _, heading := range []string{"# Promises", "# What it does not do", "# Use", "# Formats", "# Figures"} {
			if !strings.Contains(doc.Doc.Text(), "\n"+heading+"\n") {
				t.Errorf("the comment of %s has no heading %q", folder, heading)
			}
		}
		for made := []string{folder}; len(made) > 0; made = made[1:] {
			row, ok := narrow[made[0]]
			if !ok {
				t.Errorf("%s is made of %s, which narrow does not list", folder, made[0])
			}
			for _, p := range row {
				if ours, is := strings.CutPrefix(p, Module+"/"); is && ours != made[0] {
					made = append(made, ours)
				}
			}
		}
	}
	for folder, row := range narrow {
		imported := importsBelow(t, root, folder)
		for _, p := range row {
			if !slices.ContainsFunc(imported, func(i string) bool { return below(i, p) }) {
				t.Errorf("nothing in %s imports %s: take it off", folder, p)
			}
		}
	}
}

// importsBelow are the imports of the product files in a folder and those below it.
func importsBelow(t *testing.T, root fs.FS, folder string) (imported []string) {
	t.Helper()
	err := fs.WalkDir(root, folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
			forTests(path.Dir(name)) || strings.Contains(name, "/testdata/") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path.Join("../..", name), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imported = append(imported, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return imported
}
