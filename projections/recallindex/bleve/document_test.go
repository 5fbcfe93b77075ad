package bleve

import (
	"strings"
	"testing"

	"github.com/blevesearch/bleve/v2/document"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
)

func TestKeys(t *testing.T) {
	for _, at := range []partition{shared(uuid.New()), own(uuid.New())} {
		for _, k := range []recallindex.Key{
			{DataPoint: uuid.New(), Revision: 1},
			{DataPoint: uuid.New(), Revision: 123456, N: 4321},
			{DataPoint: uuid.New(), Revision: 2, Memory: uuid.New()},
			{},
		} {
			got, err := at.key([]byte(at.identifier(k)))
			if err != nil || got != k {
				t.Errorf("%+v is read as %+v, %v", k, got, err)
			}
		}
		point := at.prefix + encode(uuid.New())
		for _, id := range []string{
			"", fillerID, point, point + "p", point + "p1", point + "p1:", point + "p1:x",
			point + "px:1", point + "z1:1", point + "m1:1", "!" + point[1:] + "p1:1", point[1:] + "p1:1",
		} {
			if k, err := at.key([]byte(id)); err == nil {
				t.Errorf("%q is read as %+v", id, k)
			}
		}
	}
}

// A text has each of its terms once, without a frequency, and those that it repeats in another field with theirs.
func TestAddText(t *testing.T) {
	at, doc := shared(uuid.New()), document.NewDocument("d")
	addText(doc, columnFields{}, at, recallindex.Sources, strings.Fields("a b a c b a d"))
	got := map[string]map[string]int{}
	for _, f := range doc.Fields {
		f.Analyze()
		got[f.Name()] = map[string]int{}
		for term, frequency := range f.AnalyzedTokenFrequencies() {
			got[f.Name()][strings.TrimPrefix(term, at.prefix)] = frequency.Frequency()
		}
		if want := map[string]int{textField: 7, repeatedTextField: 5, lengthField: 1}[f.Name()]; f.AnalyzedLength() != want {
			t.Errorf("field %s has %d terms, want %d", f.Name(), f.AnalyzedLength(), want)
		}
	}
	if diff := cmp.Diff(map[string]map[string]int{
		textField: {"a": 0, "b": 0, "c": 0, "d": 0}, repeatedTextField: {"a": 3, "b": 2}, lengthField: {"7": 0},
	}, got); diff != "" {
		t.Error(diff)
	}
}
