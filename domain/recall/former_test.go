package recall_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/recall"
)

// TestFormerAnalyzer compares terms with those of the version of the analysis that existing indexes have: each line of
// former.txt is a text, the same line of former.golden has its terms, and after a bar those of a query.
func TestFormerAnalyzer(t *testing.T) {
	texts, want := linesOf(t, "testdata/former.txt"), linesOf(t, "testdata/former.golden")
	a := recall.NewFormerAnalyzer()
	if a.Version() != 1 {
		t.Errorf("version %d, want 1", a.Version())
	}
	for i, text := range texts {
		var query []string
		for j, term := range a.Query(text) {
			query = append(query, term.Text)
			if term.Kind != recall.Whole || term.For != j || term.Share != 1 {
				t.Errorf("%q: %+v", text, term)
			}
		}
		got := strings.Join(a.Terms(text), " ") + " | " + strings.Join(query, " ")
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func linesOf(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}
