package needles

import (
	"reflect"
	"strings"
	"testing"

	client "github.com/annals-project/annals/client"
)

func TestNew_EveryKindAndArrangement(t *testing.T) {
	if n := len(Kinds()); n < 16 {
		t.Errorf("%d kinds, want at least 16", n)
	}
	for _, kind := range Kinds() {
		for arrangement := range Arrangements {
			sizes := Sizes{Texts: 50, Others: 20, Arrangement: arrangement}
			if arrangement < templatesCount {
				sizes.Texts, sizes.Others = MaxTexts, 500
			}
			p := New(kind, sizes)
			if len(p.Texts) != sizes.Texts+sizes.Others || len(p.Questions) != sizes.Texts {
				t.Fatalf("%s: %d texts and %d questions", kind.Name, len(p.Texts), len(p.Questions))
			}
			if !reflect.DeepEqual(p, New(kind, sizes)) {
				t.Errorf("%s: two projects of the same seed differ", kind.Name)
			}
			seen := map[string]string{}
			for _, text := range p.Texts {
				if other, known := seen[text.Content]; known {
					t.Errorf("%s: %s and %s have the text %q", kind.Name, other, text.ID, text.Content)
				}
				seen[text.Content] = text.ID
				if strings.ContainsAny(text.Content+text.Author, "{}") || text.Author == "" || text.At.IsZero() {
					t.Errorf("%s: %+v", kind.Name, text)
				}
			}
		}
	}
}

func TestReport_Figures(t *testing.T) {
	p := Project{Kind: "k", Texts: []Text{{ID: "a", Content: "A"}}, Questions: []Question{{"q1", "a"}, {"q2", "a"}, {"q3", "a"}}}
	result := func(id string) client.RecallResult {
		return client.RecallResult{Content: "of " + id, Sources: []client.RecallSource{{SourceID: id}}}
	}
	var r Report
	r.Add(p, [][]client.RecallResult{{result("a")}, {result("b"), result("a")}, nil})
	want := Figures{Questions: 3, At1: 1. / 3, At10: 2. / 3, Reciprocal: 0.5}
	if r.Total != want || r.Kinds[0].Figures != want {
		t.Errorf("got %+v", r)
	}
	if len(r.Misses) != 2 || r.Misses[0].Rank != 2 || r.Misses[0].Got != "of b" || r.Misses[1].Got != "" {
		t.Errorf("misses %+v", r.Misses)
	}
	if r.Check(0.33) != nil || r.Check(0.34) == nil {
		t.Error("the bound is not that of R@1")
	}
}
