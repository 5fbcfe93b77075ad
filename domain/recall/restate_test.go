package recall_test

import (
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/recall"
)

func TestRestates(t *testing.T) {
	for _, test := range []struct {
		text, other string
		want        bool
	}{
		{"I play squash on Sundays now.", "I play tennis on Sundays.", true},
		{"My lawyer is Mr Osei.", "My lawyer is Ms Brandt.", true},
		{"I sold my Vespa.", "I own a Vespa.", true},
		{"I don't smoke any more.", "I smoke.", true},
		{"We had pasta for dinner.", "My lawyer is Ms Brandt.", false},
		{"a a a b", "a c d e", false}, // a word counts as often as both have it
		{"a b c d e", "a", true},
		{"a b c d e f", "a", false},
		{strings.Repeat("a ", 15), strings.Repeat("a ", 15), true},
		{strings.Repeat("a ", 16), strings.Repeat("a ", 16), false},
		{"", "", false},
		{"a", "", false},
	} {
		if got := recall.Restates(test.text, test.other); got != test.want {
			t.Errorf("Restates(%q, %q) = %v, want %v", test.text, test.other, got, test.want)
		}
		if got := recall.Restates(test.other, test.text); got != test.want {
			t.Errorf("Restates(%q, %q) = %v, want %v", test.other, test.text, got, test.want)
		}
	}
}
