package archtest

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	codeOfLimit    = regexp.MustCompile("[45][0-9][0-9] `([a-z-]+)`")
	settingOfLimit = regexp.MustCompile("`(ANNALS_[A-Z_]+)`")
)

// Every constant, code and setting that docs/limits.md names is in the source. A change of one corrects its row.
func TestLimitsTable_NamesExist(t *testing.T) {
	root := os.DirFS("../..")
	table, err := fs.ReadFile(root, "docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	codes, settings := readAll(t, root, "domain/fault"), readAll(t, root, "cmd/annals")
	declared := map[string][]string{}
	rows := 0
	for line := range strings.Lines(string(table)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 || strings.HasPrefix(cells[0], "-") || strings.TrimSpace(cells[0]) == "limit" {
			continue
		}
		rows++
		for _, code := range codeOfLimit.FindAllStringSubmatch(cells[3], -1) {
			if !strings.Contains(codes, `"`+code[1]+`"`) {
				t.Errorf("%s: no code is %q", strings.TrimSpace(cells[0]), code[1])
			}
		}
		for _, setting := range settingOfLimit.FindAllStringSubmatch(cells[2], -1) {
			if !strings.Contains(settings, `"`+setting[1]+`"`) {
				t.Errorf("%s: no setting is %s", strings.TrimSpace(cells[0]), setting[1])
			}
		}
		constant := strings.Trim(strings.TrimSpace(cells[4]), "`")
		folder, name, ok := cutLast(constant)
		if !ok {
			t.Errorf("%s: %q names no constant: want folder.Name", strings.TrimSpace(cells[0]), constant)
			continue
		}
		if declared[folder] == nil {
			declared[folder] = declarations(t, root, folder)
		}
		if !slices.Contains(declared[folder], name) {
			t.Errorf("%s: %s declares no %s", strings.TrimSpace(cells[0]), folder, name)
		}
	}
	if rows < 40 {
		t.Errorf("the table has %d rows: it was not read", rows)
	}
}

func cutLast(text string) (before, after string, ok bool) {
	at := strings.LastIndexByte(text, '.')
	if at < 1 {
		return "", "", false
	}
	return text[:at], text[at+1:], true
}

// sources are the files of a package without its tests.
func sources(t *testing.T, root fs.FS, folder string) []string {
	t.Helper()
	files, err := fs.Glob(root, path.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}

func readAll(t *testing.T, root fs.FS, folder string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range sources(t, root, folder) {
		src, err := fs.ReadFile(root, name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(src)
	}
	return all.String()
}

// declarations are the names that a package declares outside of functions; a package that is not there declares none.
func declarations(t *testing.T, root fs.FS, folder string) []string {
	t.Helper()
	names := []string{}
	for _, name := range sources(t, root, folder) {
		src, err := fs.ReadFile(root, name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, ident := range spec.Names {
						names = append(names, ident.Name)
					}
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				}
			}
		}
	}
	return names
}

// The default of each row that names a constant of domain/limit is its value, and each constant has a row.
func TestLimitsTable_ContractValues(t *testing.T) {
	const folder = "domain/limit"
	root := os.DirFS("../..")
	table, err := fs.ReadFile(root, "docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	values, seen := constants(t, root, folder), map[string]bool{}
	for line := range strings.Lines(string(table)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 {
			continue
		}
		name, ok := strings.CutPrefix(strings.Trim(strings.TrimSpace(cells[4]), "`"), folder+".")
		if !ok {
			continue
		}
		value, known := values[name]
		if !known {
			t.Errorf("%s: %s declares no %s", strings.TrimSpace(cells[0]), folder, name)
			continue
		}
		seen[name] = true
		if most := mostOf(t, cells[1]); most != value {
			t.Errorf("%s: the table names %d, %s is %d", strings.TrimSpace(cells[0]), most, name, value)
		}
	}
	for name := range values {
		if !seen[name] && !strings.HasPrefix(name, "Min") { // in the row of the most
			t.Errorf("%s.%s has no row", folder, name)
		}
	}
}

var mostOfLimit = regexp.MustCompile(`^(?:[0-9]+ to )?([0-9,]+)( MiB| KiB)?(?:, default [0-9,]+)?$`)

// mostOf reads the most that a cell such as "1 to 1,000" or "16 MiB" allows.
func mostOf(t *testing.T, cell string) int64 {
	t.Helper()
	found := mostOfLimit.FindStringSubmatch(strings.TrimSpace(cell))
	if found == nil {
		t.Fatalf("%q is no limit", cell)
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(found[1], ",", ""), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n * map[string]int64{"": 1, " KiB": 1 << 10, " MiB": 1 << 20}[found[2]]
}

// constants returns the integer constants of a package, which do not refer to each other.
func constants(t *testing.T, root fs.FS, folder string) map[string]int64 {
	t.Helper()
	values := map[string]int64{}
	for _, name := range sources(t, root, folder) {
		src, err := fs.ReadFile(root, name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, ident := range spec.Names {
				value, err := types.Eval(token.NewFileSet(), nil, token.NoPos, types.ExprString(spec.Values[i]))
				if err != nil {
					t.Fatalf("%s: %v", ident.Name, err)
				}
				values[ident.Name], _ = constant.Int64Val(value.Value)
			}
			return false
		})
	}
	return values
}
