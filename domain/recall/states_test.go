package recall_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/recall"
)

// The hashes stay the same in every process, and differ with a name, a number or a negation.
func TestStates(t *testing.T) {
	statesOf := func(text string) recall.States {
		states, _ := recall.NewAnalyzer().States(text)
		return states
	}
	first := statesOf("Ana moved the launch to Rome.")
	if first != (recall.States{Stems: 0xabe08b96342869, Exact: 0x38d02d1052da98}) {
		t.Errorf("states %#v", first)
	}
	if same := statesOf("the launch: to Rome moved Ana"); same.Stems != first.Stems {
		t.Error("other words between the same stems state something else")
	}
	for _, other := range []string{
		"Ana did not move the launch to Rome.", "Ana moved the launch to Oslo.", "Ana moved the 2nd launch to Rome.",
	} {
		if got := statesOf(other); got.Stems == first.Stems || got.Exact == first.Exact {
			t.Errorf("%q states the same", other)
		}
	}
	for _, s := range []recall.States{first, statesOf(""), statesOf("!")} {
		if s.Stems == 0 || s.Exact == 0 || max(s.Stems, s.Exact) >= 1<<56 {
			t.Errorf("hashes %#v are not within 1 and 2^56", s)
		}
	}
}

func TestWordsOfTexts(t *testing.T) {
	for _, c := range []struct {
		what string
		of   func(text string) []string
		want map[string][]string
	}{
		{"negations", recall.Negations, map[string][]string{
			"":                               nil,
			"The valve leaks":                nil,
			"It does not leak, not a bit":    {"not", "not"},
			"It DOESN'T, doesn’t and cannot": {"not", "not", "not"},
			"No, never without a knot":       {"no", "never", "without"},
			"Das ist nicht kein Knoten":      {"nicht", "kein"},
			"Он не нет":                      {"не"},
			"nothing, another, notable, n't": {"not"},
			"\xff not \xfe":                  {"not"},
		}},
		{"exact", recall.Exact, map[string][]string{
			"":                                     nil,
			"Ana met nobody":                       nil,
			"Ana met Ben. On 12 May AB-12 and Ben": {"12", "ab", "ben", "may"},
			"It leaks! Then? So\nAna: Ben [Cem] “Dee": nil,
			"p40 and 3.5":          {"3", "5", "p40"},
			"they saw Éva and Ανα": {"éva", "ανα"},
			"die grüne Tür":        {"tür"},
		}},
		{"words", recall.WordsOf, map[string][]string{
			"":                           nil,
			"?! …":                       nil,
			"Hello,  it's Ana's\n3.5 km": {"hello", "it's", "ana's", "3", "5", "km"},
			"ΑΝΑ–Éva":                    {"ανα", "éva"},
			"a\xffb":                     {"a", "b"},
		}},
	} {
		for text, want := range c.want {
			if diff := cmp.Diff(want, c.of(text)); diff != "" {
				t.Errorf("%s of %q: %s", c.what, text, diff)
			}
		}
	}
}

// A question in another normal form is the same text.
func TestWordsOf_NormalForms(t *testing.T) {
	const text = "Café Ångström 한강 ﬁne"
	want := recall.WordsOf(text)
	for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
		if diff := cmp.Diff(want, recall.WordsOf(form.String(text))); diff != "" {
			t.Error(diff)
		}
	}
}

// A text is read once for what it states and for its passages, and both are as without the other.
func TestStates_SharesReading(t *testing.T) {
	shared := recall.NewAnalyzer()
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(anyText(), 1, 4).Draw(t, "texts")
		author := rapid.SampledFrom([]string{"", "ana"}).Draw(t, "author")
		for _, text := range texts {
			shared.States(text)
			shared.States(text)
		}
		for _, text := range texts {
			d := recall.Document{Content: text, Author: author}
			want := recall.NewAnalyzer().Passages(d)
			for range 2 { // with the reading that was kept, and without
				if diff := cmp.Diff(want, shared.Passages(d)); diff != "" {
					t.Fatalf("%+q: %s", text, diff)
				}
			}
		}
	})
}

// Readings that nobody takes make room for later ones.
func TestStates_KeepsFewReadings(t *testing.T) {
	a := recall.NewAnalyzer()
	text := func(n int) string { return fmt.Sprintf("Ana moved launch %d of Helix.", n) }
	const texts = 5000
	for n := range texts {
		a.States(text(n))
	}
	if n := a.Kept(); n == 0 || n >= texts/2 {
		t.Errorf("%d readings are kept of %d", n, texts)
	}
	for _, n := range []int{0, texts - 1} {
		d := recall.Document{Content: text(n)}
		if diff := cmp.Diff(recall.NewAnalyzer().Passages(d), a.Passages(d)); diff != "" {
			t.Errorf("text %d: %s", n, diff)
		}
	}
}
