package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Violation is one breach of a rule.
type Violation struct {
	// File is the path below the root, with slashes.
	File string
	Line int
	// What describes the broken rule to the person who broke it.
	What string
}

func (v Violation) String() string { return fmt.Sprintf("%s:%d: %s", v.File, v.Line, v.What) }

// skipped are directories of the root that hold no source, skippedAnywhere those of any level.
var (
	skipped         = []string{"data", "bin"}
	skippedAnywhere = []string{"testdata", "node_modules"}
)

var pathOfAMachine = regexp.MustCompile(forbidden)

// Check reads every file of a source tree and returns the breaches, in the order of the files.
// It skips hidden folders, testdata and folders without source.
func Check(tree fs.FS) ([]Violation, error) {
	var found []Violation
	seen := packages{
		documented: map[string]bool{}, seeded: map[string]bool{}, product: map[string]bool{}, tests: map[string]bool{},
	}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && isSkipped(name) {
				return fs.SkipDir
			}
			return nil
		}
		if !isText(entry.Name()) {
			return nil
		}
		src, err := fs.ReadFile(tree, name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		found = append(found, checkText(name, src)...)
		found = append(found, checkPlainText(name, src)...)
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		more, err := checkGo(name, src, seen)
		if err != nil {
			return err
		}
		found = append(found, more...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("walk the source tree: %w", err)
	}
	found = append(found, seen.check()...)
	slices.SortFunc(found, func(a, b Violation) int { return strings.Compare(a.String(), b.String()) })
	return found, nil
}

// packages is what the files of each folder have together.
type packages struct {
	// documented reports whether a package has a comment, seeded whether one whose tests use rapid has a fixed seed.
	documented, seeded map[string]bool
	// product are the folders that the product imports, tests those that a test or a kit imports.
	product, tests map[string]bool
}

func (s packages) check() (found []Violation) {
	for dir, ok := range s.documented {
		if !ok {
			found = append(found, Violation{dir, 0, "the package has no package comment"})
		}
		if s.tests[dir] && !s.product[dir] && !forTests(dir) {
			found = append(found, Violation{dir, 0, "only tests import it: let its name end with test"})
		}
	}
	for dir, ok := range s.seeded {
		if !ok {
			found = append(found, Violation{dir, 0, "its tests use rapid: one file imports " + seeds + ", for a fixed seed"})
		}
	}
	return found
}

func (s packages) addImport(dir, imported string, test bool) {
	if ours, is := strings.CutPrefix(imported, Module+"/"); is && ours != dir {
		if test || forTests(dir) {
			s.tests[ours] = true
		} else {
			s.product[ours] = true
		}
	}
	if imported == rapid || imported == Module+"/"+seeds {
		s.seeded[dir] = s.seeded[dir] || imported != rapid || dir == seeds
	}
}

func isSkipped(dir string) bool {
	base := path.Base(dir)
	return strings.HasPrefix(base, ".") || slices.Contains(skipped, dir) || slices.Contains(skippedAnywhere, base)
}

func isText(base string) bool {
	switch path.Ext(base) {
	case ".go", ".md", ".sql", ".yml", ".yaml", ".sh", ".mod":
		return true
	default:
		return base == "Makefile" || base == "Dockerfile"
	}
}

func checkText(name string, src []byte) []Violation {
	var found []Violation
	for i, line := range bytes.Split(src, []byte("\n")) {
		if m := pathOfAMachine.Find(line); m != nil {
			what := fmt.Sprintf("%q is a path of one machine", strings.TrimSpace(string(m)))
			found = append(found, Violation{name, i + 1, what})
		}
	}
	return found
}

// checkGo checks one Go file and adds to seen what it knows of its package.
func checkGo(name string, src []byte, seen packages) ([]Violation, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	line := func(p token.Pos) int { return files.Position(p).Line }
	test := strings.HasSuffix(name, "_test.go")
	var found []Violation
	add := func(p token.Pos, format string, args ...any) {
		found = append(found, Violation{name, line(p), fmt.Sprintf(format, args...)})
	}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, fmt.Errorf("import of %s: %w", name, err)
		}
		if what := checkImport(path.Dir(name), imported, test); what != "" {
			add(spec.Pos(), "%s", what)
		}
		seen.addImport(path.Dir(name), imported, test)
	}
	if !test {
		seen.documented[path.Dir(name)] = seen.documented[path.Dir(name)] || file.Doc != nil
		if n := bytes.Count(src, []byte("\n")); n > MaxLines && !ast.IsGenerated(file) && !forTests(path.Dir(name)) {
			add(file.End(), "%d lines are too many for one concept: split the file (at most %d)", n, MaxLines)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if lines := line(n.End()) - line(n.Pos()) + 1; !test && lines > MaxFuncLines {
				add(n.Pos(), "%d lines are too many for one function (at most %d)", lines, MaxFuncLines)
			}
			if !test && !forTests(path.Dir(name)) && n.Recv == nil && n.Name.Name == "init" {
				add(n.Pos(), "no package registers itself in init: construct it in cmd")
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && test && x.Name == "time" && n.Sel.Name == "Sleep" {
				add(n.Pos(), "a test that sleeps is slow or flaky: wait for what it waits for, or use testing/synctest")
			}
		}
		return true
	})
	if !test && !forTests(path.Dir(name)) {
		found = append(found, checkRemovers(name, files, file)...)
		found = append(found, checkTemporary(name, files, file)...)
	}
	found = append(found, checkPlain(name, src, files, file)...)
	if !test {
		found = append(found, checkAdapter(name, path.Dir(name), files, file)...)
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if unfinished.MatchString(c.Text) {
				add(c.Pos(), "unfinished work belongs in an issue, not in a comment")
			}
		}
	}
	return found, nil
}

var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
