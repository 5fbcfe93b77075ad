package recall_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/recall"
)

// entries names documents: 2 is the source of candidate 2, 2.0 its first memory, 2/5 passage 5 of the source.
func entries(page []recall.Entry) string {
	var names []string
	for _, e := range page {
		name := fmt.Sprint(e.Candidate)
		switch e.Memory {
		case recall.Source:
		case recall.InPart:
			name += fmt.Sprint("/", e.Passage)
		default:
			name += fmt.Sprint(".", e.Memory)
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func source(score float64, memories ...recall.Derived) recall.Candidate {
	for i := range memories {
		memories[i].ID = uuid.UUID{byte(i + 1)}
		if memories[i].Content == "" {
			memories[i].Content = fmt.Sprint("line ", i)
		}
	}
	return recall.Candidate{Score: score, Memories: memories}
}

func line(score float64, worth recall.Worth) recall.Derived {
	return recall.Derived{Score: score, Worth: worth}
}

func TestCompose(t *testing.T) {
	plain := []recall.Candidate{
		source(9), source(8), source(7), source(6), source(5), source(4), source(3), source(2),
		source(1),
	}
	with := func(i int, memories ...recall.Derived) []recall.Candidate {
		list := append([]recall.Candidate(nil), plain...)
		list[i] = source(plain[i].Score, memories...)
		return list
	}
	hidden := with(0, line(9, recall.Distilled), line(5.5, recall.Repeated))
	hidden[0].Hidden = true
	long := with(0, line(9, recall.Distilled), line(5.5, recall.Repeated))
	long[0].Least = 10_000
	equal := with(0, recall.Derived{Score: 8, Worth: recall.Distilled, Content: "same"},
		recall.Derived{Score: 9, Worth: recall.Distilled, Content: "same"})
	ties := []recall.Candidate{source(1), source(1), source(1)}
	for i := range ties {
		ties[i].ID = uuid.UUID{byte(9 - i)}
		ties[i].OccurredAt = time.Unix(int64(i/2), 0)
	}
	cases := []struct {
		name          string
		candidates    []recall.Candidate
		limit, budget int
		want          string
	}{
		{"sources by score", plain, 100, 100, "0 1 2 3 4 5 6 7 8"},
		{"limit", plain, 4, 100, "0 1 2 3"},
		{"budget", plain, 100, 3, "0 1 2"},
		{"nothing fits", plain, 100, 0, ""},
		{"no candidate", nil, 100, 100, ""},
		{"ties by time, then id", ties, 100, 100, "2 1 0"},
		{"a memory keeps to its share", with(0, line(9, recall.Distilled), line(8.5, recall.Distilled)), 100, 100, "0 1 2 3 4 0.0 5 6 7 0.1 8"},
		{"a superseded claim is above its source", with(2, line(1, recall.Superseded)), 100, 100, "0 1 2.0 2 3 4 5 6 7 8"},
		{"what only repeats comes last", with(0, line(9, recall.Repeated)), 100, 100, "0 1 2 3 4 5 6 7 8 0.0"},
		{"a memory of little score waits", with(0, line(3.5, recall.Distilled)), 100, 100, "0 1 2 3 4 5 6 7 0.0 8"},
		{"a memory is a key to its source", with(8, line(8.5, recall.Distilled)), 100, 100, "0 8 1 2 3 4 8.0 5 6 7"},
		{"equal memories are one", equal, 100, 100, "0 1 2 3 4 0.1 5 6 7 8"},
		{"memories take the place of a hidden source", hidden, 100, 100, "0.0 1 2 3 0.1 4 5 6 7 8"},
		{"memories take the place of a long source", long, 100, 100, "0.0 1 2 3 0.1 4 5 6 7 8"},
		{"few sources show a memory", []recall.Candidate{source(2, line(1, recall.Distilled), line(1, recall.Distilled)), source(1, line(1, recall.Distilled))}, 100, 100, "0.0 0 1"},
		{"a limit changes no order", []recall.Candidate{source(2, line(1, recall.Distilled))}, 1, 100, "0.0"},
		{"nor where only the source fits", []recall.Candidate{source(2, line(1, recall.Distilled))}, 100, 1, "0"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := recall.Compose(c.candidates, c.limit, recall.Budget{Tokens: c.budget, Bytes: 1 << 20},
				func(recall.Entry) (recall.Cost, bool) { return recall.Cost{Tokens: 1, Bytes: 1}, true }, nil)
			if diff := cmp.Diff(c.want, entries(got.Entries)); diff != "" {
				t.Error(diff)
			}
			if got.Used.Tokens != len(got.Entries) || got.Ended {
				t.Errorf("%d documents used %+v, ended by bytes: %t", len(got.Entries), got.Used, got.Ended)
			}
		})
	}
}

func TestCompose_BytesEndThePage(t *testing.T) {
	plain := []recall.Candidate{source(9), source(8), source(7, line(1, recall.Superseded)), source(6)}
	for _, c := range []struct {
		name  string
		bytes []int64 // of the sources; a memory has one
		most  int64
		want  string
		ended bool
	}{
		{"all fit", []int64{10, 10, 10, 10}, 41, "0 1 2.0 2 3", false},
		{"the last byte", []int64{10, 10, 10, 10}, 40, "0 1 2.0 2", true},
		{"nothing comes after a document that is too large", []int64{10, 31, 1, 1}, 40, "0", true},
		{"the first is shown whatever it takes", []int64{99, 1, 1, 1}, 40, "0", true},
		{"a memory above its source does not push it out", []int64{10, 10, 20, 1}, 40, "0 1 2", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			budget := recall.Budget{Tokens: 100, Bytes: c.most}
			got := recall.Compose(plain, 100, budget, func(e recall.Entry) (recall.Cost, bool) {
				if e.Memory != recall.Source {
					return recall.Cost{Tokens: 1, Bytes: 1}, true
				}
				return recall.Cost{Tokens: 1, Bytes: c.bytes[e.Candidate]}, true
			}, nil)
			if entries(got.Entries) != c.want || got.Ended != c.ended {
				t.Errorf("page %q, ended %t", entries(got.Entries), got.Ended)
			}
		})
	}
}

// drawCandidates draws candidates, and what their documents cost in tokens.
func drawCandidates(t *rapid.T) (candidates []recall.Candidate, costs map[recall.Entry]int) {
	scores := rapid.SampledFrom([]float64{0.5, 1, 2, 3, 5, 8})
	costs = map[recall.Entry]int{}
	for i := range rapid.IntRange(0, 30).Draw(t, "candidates") {
		c := recall.Candidate{
			ID: uuid.UUID{byte(i)}, OccurredAt: time.Unix(int64(rapid.IntRange(0, 3).Draw(t, "time")), 0),
			Score:  scores.Draw(t, "score"),
			Hidden: rapid.IntRange(0, 9).Draw(t, "hidden") == 0,
		}
		source := recall.Entry{Candidate: i, Memory: recall.Source}
		costs[source] = rapid.IntRange(1, 40).Draw(t, "tokens")
		c.Least = costs[source] / 4
		for m := range rapid.IntRange(0, 4).Draw(t, "memories") {
			c.Memories = append(c.Memories, recall.Derived{
				ID: uuid.UUID{byte(i), byte(m)}, OccurredAt: c.OccurredAt, Score: scores.Draw(t, "score"),
				Worth:   recall.Worth(rapid.IntRange(0, 2).Draw(t, "worth")),
				Content: fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "content")),
			})
			costs[recall.Entry{Candidate: i, Memory: m}] = rapid.IntRange(1, 20).Draw(t, "tokens")
		}
		candidates = append(candidates, c)
	}
	return candidates, costs
}

// TestCompose_Laws: over any candidates a response keeps to limit, budget and the share of memories,
// shows nothing twice or hidden, keeps sources in order, and leaves out nothing that fits.
func TestCompose_Laws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		candidates, costs := drawCandidates(t)
		limit, budget := rapid.IntRange(1, 40).Draw(t, "limit"), rapid.IntRange(0, 300).Draw(t, "budget")
		most := int64(rapid.SampledFrom([]int{100, 1000, 1 << 20}).Draw(t, "bytes"))
		cost := func(e recall.Entry) (recall.Cost, bool) {
			return recall.Cost{Tokens: costs[e], Bytes: int64(7 * costs[e])}, true
		}
		composed := recall.Compose(candidates, limit, recall.Budget{Tokens: budget, Bytes: most}, cost, nil)
		page, used := composed.Entries, composed.Used.Tokens
		if composed.Used.Bytes > most && len(page) > 1 || composed.Used.Bytes != int64(7*used) {
			t.Fatalf("%d documents of %d bytes, limit %d", len(page), composed.Used.Bytes, most)
		}

		if len(page) > limit || used > budget {
			t.Fatalf("%d documents of %d tokens, limits %d and %d", len(page), used, limit, budget)
		}
		seen, sum, crowding := map[recall.Entry]bool{}, 0, 0
		lines := map[string]bool{}
		for n, e := range page {
			if seen[e] {
				t.Fatalf("%v is there twice", e)
			}
			sum += costs[e]
			above := seen[recall.Entry{Candidate: e.Candidate, Memory: recall.Source}]
			seen[e] = true
			if e.Memory == recall.Source {
				if candidates[e.Candidate].Hidden {
					t.Fatalf("%v is hidden", e)
				}
				continue
			}
			text := fmt.Sprint(e.Candidate, " ", candidates[e.Candidate].Memories[e.Memory].Content)
			if lines[text] {
				t.Fatalf("two equal memories of %d", e.Candidate)
			}
			lines[text] = true
			if above {
				crowding++
			}
			if crowding*5 > n+1 {
				t.Fatalf("%d of the first %d are memories below their sources: %s", crowding, n+1, entries(page))
			}
		}
		if sum != used {
			t.Fatalf("used %d, want %d", used, sum)
		}
		left, without := 0, true
		for i, c := range candidates {
			e := recall.Entry{Candidate: i, Memory: recall.Source}
			if !c.Hidden && !seen[e] {
				left++
				if len(page) < limit && used+costs[e] <= budget && !composed.Ended {
					t.Fatalf("source %d of %d tokens would have fitted after %d of %d", i, costs[e], used, budget)
				}
			}
			without = without && len(c.Memories) == 0
		}
		if without {
			for n := 1; n < len(page); n++ {
				a, b := candidates[page[n-1].Candidate], candidates[page[n].Candidate]
				if a.Score < b.Score || a.Score == b.Score && a.OccurredAt.Before(b.OccurredAt) {
					t.Fatalf("out of order: %s", entries(page))
				}
			}
		}
		again := recall.Compose(candidates, limit, recall.Budget{Tokens: budget, Bytes: most}, cost, nil)
		if diff := cmp.Diff(page, again.Entries); diff != "" {
			t.Fatal(diff)
		}
		fewer := recall.Compose(candidates, (limit+1)/2, recall.Budget{Tokens: budget, Bytes: most}, cost, nil)
		if diff := cmp.Diff(page[:min(len(page), (limit+1)/2)], fewer.Entries); diff != "" {
			t.Fatalf("a limit of %d is no beginning of that of %d: %s", (limit+1)/2, limit, diff)
		}
	})
}

func TestTokens(t *testing.T) {
	cases := []struct {
		content  string
		excerpts []string
		want     int
	}{
		{"", nil, 0}, {"a", nil, 1}, {"abcd", nil, 1}, {"abcde", nil, 2}, {"日本語👍", nil, 1}, {"abc", []string{"d"}, 1}, {"abcd", []string{"e", "fgh"}, 2},
	}
	for _, c := range cases {
		if got := recall.Tokens(c.content, c.excerpts...); got != c.want {
			t.Errorf("%q %q cost %d, want %d", c.content, c.excerpts, got, c.want)
		}
		if least := recall.LeastTokens(int64(len(c.content))); least > int64(recall.Tokens(c.content)) {
			t.Errorf("%q costs less than the least %d", c.content, least)
		}
	}
}

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
