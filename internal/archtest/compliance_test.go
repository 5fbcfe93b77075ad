package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testOfRow     = regexp.MustCompile("`(Test[A-Za-z0-9_]+)` \\(([a-z0-9/_-]+)\\)")
	commandOfRow  = regexp.MustCompile("`annals ((?:audit )?[a-z-]+)[^`]*`")
	pageOfConsole = regexp.MustCompile(`page(?:s| of)? `)
)

// Each row of docs/compliance.md names a test that proves its mechanism, and a command or a page that shows it.
func TestCompliance_NamedTestsAndCommands(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	commands, rows := read("docs/commands.md"), 0
	for _, line := range strings.Split(read("docs/compliance.md"), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if !strings.HasPrefix(line, "| ") || strings.Contains(line, " proved by ") {
			continue
		}
		rows++
		if len(cells) != 5 {
			t.Errorf("%d cells instead of 5: %s", len(cells), line)
			continue
		}
		tests := testOfRow.FindAllStringSubmatch(cells[3], -1)
		if len(tests) == 0 || len(tests) != strings.Count(cells[3], "Test") {
			t.Errorf("no test, or one without its package: %s", cells[3])
		}
		for _, found := range tests {
			if !hasTest(t, found[2], found[1]) {
				t.Errorf("package %s has no %s", found[2], found[1])
			}
		}
		shown := commandOfRow.FindAllStringSubmatch(cells[4], -1)
		if len(shown) == 0 && !pageOfConsole.MatchString(cells[4]) {
			t.Errorf("no command and no page shows it: %s", cells[4])
		}
		for _, found := range shown {
			if !strings.Contains(commands, found[1]) {
				t.Errorf("docs/commands.md has no %s", found[0])
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d rows, want those of five rules", rows)
	}
}

// hasTest reports whether a package has a test of a name.
func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "func "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}
