package recall_test

import (
	"testing"

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
