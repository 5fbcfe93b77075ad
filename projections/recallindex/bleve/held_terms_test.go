package bleve

import (
	"fmt"
	"testing"
)

// A segment keeps what is asked for again, and no more than its bound, however many terms searches read.
func TestHeldTerms_Bound(t *testing.T) {
	const documents = 1000
	h, often, list := new(heldTerms), &heldTerm{}, &docList{numbers: make([]uint32, 100)}
	if h.isAskedAgain("often") || !h.isAskedAgain("often") {
		t.Error("the first question for a term counts, or the second does not")
	}
	h.put("often", often, documents)
	one := 0
	for n := range 5000 {
		term := fmt.Sprint("term", n)
		h.put(term, &heldTerm{texts: list}, documents)
		one = heldTermBytes + len(term) + list.size()
		if h.get("often", documents) != often {
			t.Fatalf("after %d terms, one that is asked for each time is gone", n)
		}
	}
	if h.get("term0", documents) != nil {
		t.Error("the first of thousands of terms is held")
	}
	if most := 2 * (heldBytes + heldDocumentBytes*documents + one) / list.size(); len(h.recent)+len(h.earlier) > most {
		t.Errorf("%d terms are held, want at most %d", len(h.recent)+len(h.earlier), most)
	}
}
