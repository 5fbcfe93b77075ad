package recall_test

import (
	"os"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/recall"
)

// What a passage states is what its text states, if it is all of a short text. The label changes nothing.
func TestPassages_States(t *testing.T) {
	a := recall.NewAnalyzer()
	for _, text := range append(linesOf(t, "testdata/texts.txt"),
		"The tea is in the red tin.", "the TEA is in the red tin", "Der Tee ist nicht in der Dose.", "the", "  \n tea \n ",
		strings.Repeat("tea in tins ", 80), "お茶は缶の中です。",
	) {
		for _, label := range []string{"", "standup", text} {
			passages := a.Passages(recall.Document{Content: text, Label: label})
			if len(passages) != 1 || len(passages[0].Text) == 0 {
				continue
			}
			want := a.States(text)
			if len(text) > 1024 {
				want = recall.States{}
			}
			if got := passages[0].States; got != want {
				t.Errorf("%q with the label %q states %x, want %x", text, label, got, want)
			}
		}
	}
	long := a.Passages(recall.Document{Content: strings.Repeat("The tea is in the red tin. ", 400)})
	if len(long) < 2 {
		t.Fatalf("%d passages", len(long))
	}
	for _, p := range long {
		if p.States != (recall.States{}) {
			t.Errorf("a part of a text states %x", p.States)
		}
	}
	if labels := a.Passages(recall.Document{Label: "standup"}); labels[0].States != (recall.States{}) {
		t.Errorf("a text without words states %x", labels[0].States)
	}
}

// The hashes stay the same in every process, and differ with a name, a number or a negation.
func TestStates(t *testing.T) {
	a := recall.NewAnalyzer()
	first := a.States("Ana moved the launch to Rome.")
	if first != (recall.States{Stems: 0xabe08b96342869, Exact: 0x38d02d1052da98}) {
		t.Errorf("states %#v", first)
	}
	if same := a.States("the launch: to Rome moved Ana"); same.Stems != first.Stems {
		t.Error("other words between the same stems state something else")
	}
	for _, other := range []string{
		"Ana did not move the launch to Rome.", "Ana moved the launch to Oslo.", "Ana moved the 2nd launch to Rome.",
	} {
		if got := a.States(other); got.Stems == first.Stems || got.Exact == first.Exact {
			t.Errorf("%q states the same", other)
		}
	}
	for _, s := range []recall.States{first, a.States(""), a.States("!")} {
		if s.Stems == 0 || s.Exact == 0 || max(s.Stems, s.Exact) >= 1<<56 {
			t.Errorf("hashes %#v are not within 1 and 2^56", s)
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
