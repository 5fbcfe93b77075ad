package recall_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/recall"
)

// passagesOf returns the passages of candidates that fit, as an implementation of recall.Passages does.
func passagesOf(all map[int][]recall.Passage, costs map[recall.Entry]int) recall.Passages {
	return func(candidate int, left recall.Cost, _ []int) []recall.Passage {
		return slices.DeleteFunc(slices.Clone(all[candidate]), func(p recall.Passage) bool {
			return costs[recall.Entry{Candidate: candidate, Memory: recall.InPart, Passage: p.N}] > left.Tokens
		})
	}
}

// TestCompose_Passages: "2/5" is passage 5 of candidate 2. The source of candidate 1 has 1,000 tokens; the other
// documents have 10.
func TestCompose_Passages(t *testing.T) {
	three := []recall.Passage{{N: 5, Share: 1}, {N: 2, Share: 0.5}, {N: 7, Share: 0.1}}
	cases := []struct {
		name          string
		passages      []recall.Passage
		memories      []recall.Derived
		limit, budget int
		want          string
	}{
		{"the best is in the place of the source, the others compete", three, nil, 100, 100, "0 1/5 2 3 1/2 4 5 1/7"},
		{"limit 1 has the best", three[:1], nil, 2, 100, "0 1/5"},
		{"at most three", append(three[:3:3], recall.Passage{N: 8, Share: 1}), nil, 100, 1000, "0 1/5 2 3 1/2 4 5 1/7"},
		{"no passage", nil, nil, 100, 100, "0 2 3 4 5"},
		{"the budget holds one more", three, nil, 100, 20, "0 1/5"},
		{"a memory is above a passage of equal score", three[:1], []recall.Derived{line(8, recall.Distilled)}, 100, 100, "0 1.0 1/5 2 3 4 5"},
		{"the memory of a source gives it its place", three[:1], []recall.Derived{line(9.5, recall.Distilled)}, 100, 100, "1.0 1/5 0 2 3 4 5"},
		{"a memory of less score comes later", three[:1], []recall.Derived{line(5.5, recall.Repeated)}, 100, 100, "0 1/5 2 3 1.0 4 5"},
		{"a passage does not repeat a memory", []recall.Passage{{N: 5, Share: 1, Repeats: []int{0}}, {N: 2, Share: 1}}, []recall.Derived{line(9.5, recall.Distilled)}, 100, 100, "1.0 1/2 0 2 3 4 5"},
		{"the memory that it would repeat is below it", []recall.Passage{{N: 5, Share: 1, Repeats: []int{0}}}, []recall.Derived{line(5.5, recall.Repeated)}, 100, 100, "0 1/5 2 3 1.0 4 5"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			candidates := []recall.Candidate{source(9), source(8, c.memories...), source(7), source(6), source(3), source(2)}
			cost := func(e recall.Entry) (recall.Cost, bool) {
				if e == (recall.Entry{Candidate: 1, Memory: recall.Source}) {
					return recall.Cost{Tokens: 1000, Bytes: 1}, true
				}
				return recall.Cost{Tokens: 10, Bytes: 1}, true
			}
			got := recall.Compose(candidates, c.limit, recall.Budget{Tokens: c.budget, Bytes: 1 << 20}, cost,
				passagesOf(map[int][]recall.Passage{1: c.passages}, nil))
			if diff := cmp.Diff(c.want, entries(got.Entries)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestCompose_PassagesAreNoMemories: a fifth of the documents may be memories, and passages count as documents.
func TestCompose_PassagesAreNoMemories(t *testing.T) {
	candidates := []recall.Candidate{
		source(9, line(9, recall.Distilled), line(8, recall.Distilled)), source(8.9), source(8.8), source(8.7), source(8.6),
	}
	all := map[int][]recall.Passage{}
	for i := range candidates[1:] {
		all[i+1] = []recall.Passage{{N: 0, Share: 1}, {N: 1, Share: 1}}
	}
	cost := func(e recall.Entry) (recall.Cost, bool) {
		if e.Memory == recall.Source && e.Candidate > 0 {
			return recall.Cost{Tokens: 1000}, true
		}
		return recall.Cost{Tokens: 1}, true
	}
	got := recall.Compose(candidates, 100, recall.Budget{Tokens: 100, Bytes: 1}, cost, passagesOf(all, nil))
	want := "0 1/0 1/1 2/0 2/1 3/0 3/1 4/0 4/1 0.0 0.1"
	if diff := cmp.Diff(want, entries(got.Entries)); diff != "" {
		t.Error(diff)
	}
}

// TestCompose_PassageLaws: over any candidates a response keeps to limit and budget with passages, too. They take
// the place of sources alone that may be shown and are not, at most three for each, in the order of their scores. A
// match of which a passage fits gives an answer.
func TestCompose_PassageLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		candidates, costs := drawCandidates(t)
		if rapid.Bool().Draw(t, "without memories") {
			for i := range candidates {
				candidates[i].Memories = nil
			}
		}
		all, smallest := map[int][]recall.Passage{}, 1<<20
		for i, c := range candidates {
			for n := range rapid.IntRange(0, 5).Draw(t, "passages") {
				p := recall.Passage{N: 7 * n, Share: 1 / float64(1+n)}
				if len(c.Memories) > 0 && rapid.Bool().Draw(t, "repeats") {
					p.Repeats = []int{0}
				}
				all[i] = append(all[i], p)
				tokens := rapid.IntRange(1, 20).Draw(t, "tokens")
				costs[recall.Entry{Candidate: i, Memory: recall.InPart, Passage: p.N}] = tokens
				if !c.Hidden {
					smallest = min(smallest, tokens)
				}
			}
		}
		limit, budget := rapid.IntRange(1, 40).Draw(t, "limit"), rapid.IntRange(0, 300).Draw(t, "budget")
		most := int64(rapid.SampledFrom([]int{100, 1000, 1 << 20}).Draw(t, "bytes"))
		cost := func(e recall.Entry) (recall.Cost, bool) {
			return recall.Cost{Tokens: costs[e], Bytes: int64(7 * costs[e])}, true
		}
		bounds := recall.Budget{Tokens: budget, Bytes: most}
		composed := recall.Compose(candidates, limit, bounds, cost, passagesOf(all, costs))
		page := composed.Entries
		if len(page) > limit || composed.Used.Tokens > budget || composed.Used.Bytes > most && len(page) > 1 {
			t.Fatalf("%d documents of %+v", len(page), composed.Used)
		}
		if len(page) == 0 && smallest <= budget {
			t.Fatalf("no document, though a passage of %d tokens fits %d", smallest, budget)
		}
		checkPassages(t, candidates, all, page)
		again := recall.Compose(candidates, limit, bounds, cost, passagesOf(all, costs))
		if diff := cmp.Diff(page, again.Entries); diff != "" {
			t.Fatal(diff)
		}
	})
}

func checkPassages(t *rapid.T, candidates []recall.Candidate, all map[int][]recall.Passage, page []recall.Entry) {
	count, seen, last, withMemories := map[int]int{}, map[recall.Entry]bool{}, 1e9, false
	for i := range candidates {
		withMemories = withMemories || len(candidates[i].Memories) > 0
	}
	for _, e := range page {
		if seen[e] {
			t.Fatalf("%v is there twice", e)
		}
		seen[e] = true
		score := candidates[e.Candidate].Score
		if e.Memory == recall.InPart {
			at := slices.IndexFunc(all[e.Candidate], func(p recall.Passage) bool { return p.N == e.Passage })
			p := all[e.Candidate][at]
			score *= p.Share
			if count[e.Candidate]++; count[e.Candidate] > recall.PassagesOfSource || candidates[e.Candidate].Hidden {
				t.Fatalf("%v is one of %d: %s", e, count[e.Candidate], entries(page))
			}
			for _, m := range p.Repeats {
				if seen[recall.Entry{Candidate: e.Candidate, Memory: m}] {
					t.Fatalf("%v repeats a memory: %s", e, entries(page))
				}
			}
		}
		if !withMemories && score > last {
			t.Fatalf("out of order: %s", entries(page))
		}
		last = score
	}
	for e := range seen {
		if e.Memory == recall.InPart && seen[recall.Entry{Candidate: e.Candidate, Memory: recall.Source}] {
			t.Fatalf("%v takes the place of a source that is there: %s", e, entries(page))
		}
	}
}

// TestCompose_PassageIsNotHidden: a source outside the window has no passages.
func TestCompose_PassageIsNotHidden(t *testing.T) {
	hidden := source(9, line(9, recall.Distilled))
	hidden.ID, hidden.Hidden = uuid.UUID{1}, true
	asked := false
	got := recall.Compose([]recall.Candidate{hidden}, 10, recall.Budget{Tokens: 100, Bytes: 100},
		func(recall.Entry) (recall.Cost, bool) { return recall.Cost{Tokens: 1, Bytes: 1}, true },
		func(int, recall.Cost, []int) []recall.Passage {
			asked = true
			return []recall.Passage{{Share: 1}}
		})
	if entries(got.Entries) != "0.0" || asked {
		t.Errorf("page %q, passages read: %t", entries(got.Entries), asked)
	}
}
