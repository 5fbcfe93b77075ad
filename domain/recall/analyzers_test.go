package recall_test

import (
	"slices"
	"testing"

	"github.com/annals-project/annals/domain/recall"
)

// An index is asked with the analysis of its own version, and with the newest if nobody knows that.
func TestAnalyzers(t *testing.T) {
	a := recall.NewAnalyzers(recall.Analysis{Version: 1, Word: func(word string) string { return "x" + word }})
	for version, want := range map[int][]string{
		a.Newest().Version(): {"teapot", "~en:teapot", "~en"}, 1: {"xteapot", "~en:xteapot", "~en"},
		99: {"teapot", "~en:teapot", "~en"},
	} {
		terms := a.Of(version).Terms("the Teapot")
		asked := a.Of(version).Query("the Teapot")
		for _, term := range want {
			if !slices.Contains(terms, term) {
				t.Errorf("version %d: a text has %q, want %q", version, terms, term)
			}
		}
		if len(asked) == 0 || asked[0].Text != want[0] {
			t.Errorf("version %d: a query asks for %+v, want %q", version, asked, want[0])
		}
	}
	if got := a.Of(1).Version(); got != 1 {
		t.Errorf("version %d, want 1", got)
	}
	if got := a.Of(99); got != a.Newest() {
		t.Errorf("version %d, want the newest", got.Version())
	}
}
