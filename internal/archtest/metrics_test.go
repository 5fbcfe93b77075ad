package archtest

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	nameOfMetric = regexp.MustCompile(`(?:Name:\s*|NewDesc\(\s*)"(annals_[a-z_]+)"`)
	rowOfMetric  = regexp.MustCompile("(?m)^\\| `(annals_[a-z_]+)` \\|")
)

// docs/metrics.md lists every metric that the source registers, and no other.
func TestMetricsTable_NamesEveryMetric(t *testing.T) {
	root := os.DirFS("../..")
	table, err := fs.ReadFile(root, "docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range rowOfMetric.FindAllStringSubmatch(string(table), -1) {
		listed = append(listed, row[1])
	}
	if len(listed) == 0 {
		t.Fatal("the table lists nothing")
	}
	var registered []string
	err = fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		src, err := fs.ReadFile(root, name)
		for _, found := range nameOfMetric.FindAllStringSubmatch(string(src), -1) {
			registered = append(registered, found[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range registered {
		if !slices.Contains(listed, name) {
			t.Errorf("%s is registered, but docs/metrics.md does not list it", name)
		}
	}
	for _, name := range listed {
		if !slices.Contains(registered, name) {
			t.Errorf("docs/metrics.md lists %s, but nothing registers it", name)
		}
	}
}
