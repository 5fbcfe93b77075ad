package recall

import (
	"bytes"
	"cmp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Candidate is a data point that a response may show: its source, verbatim, and memories derived
// from it.
type Candidate struct {
	// ID and OccurredAt are the source's.
	ID         uuid.UUID
	OccurredAt time.Time
	// Score is the source's. A candidate is ordered by the best of that score and its memories'
	// scores.
	Score float64
	// Hidden reports that the source itself cannot be shown, for example because it is outside the
	// window.
	Hidden bool
	// Least is a lower bound of what the source costs, in tokens.
	Least int
	// Place orders candidates with equal scores.
	Place    int
	Memories []Derived
}

// Derived is a memory of a candidate. OccurredAt breaks ties of Score; memories with equal Content
// are duplicates.
type Derived struct {
	ID         uuid.UUID
	OccurredAt time.Time
	Score      float64
	Worth      Worth
	Content    string
}

// Worth ranks how much a memory adds to its source. Less is more.
type Worth int

// Superseded is a claim that a later one supersedes, which the source does not show; Distilled
// states what a source means; Repeated repeats part of it.
const (
	Superseded Worth = iota
	Distilled
	Repeated
)

// Entry is a document of a response: the source of a candidate, one of its memories, or a passage of the source. The
// Passage of other documents is 0.
type Entry struct{ Candidate, Memory, Passage int }

// Source is the Memory of an Entry that is the source itself, InPart of one that is a passage of it.
const (
	Source = -1
	InPart = -2
)

// Passage is a passage that may take the place of the source of a candidate.
type Passage struct {
	// N is its number in the text, the Passage of its Entry.
	N int
	// Share is what its score is of that of the candidate, from 0 to 1.
	Share float64
	// Repeats are memories of the candidate that show what the passage shows of the question.
	Repeats []int
}

// Passages returns passages of a candidate that cost no more than what is left, best first; of the best
// PassagesOfSource the response may show each. Next are the candidates whose turns come after it, in order, so that
// their texts may be read with the text of this one.
type Passages func(candidate int, left Cost, next []int) []Passage

// resultsPerMemory is how many results there are for each memory whose source is in the response.
const resultsPerMemory = 5

// pairedShare scales the score of a memory whose source is in the response: it repeats, so another
// source with half the score comes first.
const pairedShare = 0.5

// fewSources: with fewer sources than this, resultsPerMemory would never admit a memory.
const fewSources = resultsPerMemory

// Budget bounds a response: tokens of content and excerpts, and bytes of everything that its
// documents carry.
type Budget struct {
	Tokens int
	Bytes  int64
}

// Cost is what a document takes of a Budget.
type Cost struct {
	Tokens int
	Bytes  int64
}

// Compose makes a response: whole documents, best first, at most limit of them, within the budget. A smaller limit
// yields the first documents of a larger one.
// Cost returns what a document costs; ok is false if it cannot be shown after all.
//
// A document with too many tokens is left out. A document with too many bytes ends the response,
// unless it is the first: a response with candidates is never empty for its size.
//
// Memories never crowd out sources. Of any first n results at most a fifth are memories whose
// source is above them. A superseded claim, or in a response of few sources the best memory, may be
// right above its source, within the same fifth rounded up. If a source is not in the response,
// because it is too long or outside the window, its memories take its place and compete by their
// scores.
//
// Passages of a source that does not fit into what is left of the tokens take its place, too. They do not count as
// memories. The best one is where the source would have been, another one competes by its share of that score. A
// passage that repeats a memory of the response is left out.
func Compose(
	candidates []Candidate, limit int, budget Budget, cost func(Entry) (Cost, bool), passages Passages,
) Composed {
	c := composer{
		candidates: candidates, budget: budget, cost: cost, passagesOf: passages, passages: map[Entry]Passage{},
	}
	c.order()
	for len(c.entries) < limit && !c.ended {
		if !c.step() {
			break
		}
	}
	if len(c.entries) > limit { // a memory and its source were added at once
		c.remove(c.entries[limit])
	}
	return Composed{Entries: c.entries, Used: c.used, Ended: c.ended, Order: c.sorted, LeftOut: c.leftOut}
}

// Composed is the documents of a response and what they take of its budget. Ended reports whether
// the bytes ended it: further candidates change nothing then.
type Composed struct {
	Entries []Entry
	Used    Cost
	Ended   bool
	// Order are all candidates, best first. LeftOut are those whose turn came, but whose source did not
	// fit or could not be shown.
	Order   []int
	LeftOut []LeftOut
}

// LeftOut is a candidate whose source is not in a response, and what was used of the budget when its
// turn came.
type LeftOut struct {
	Candidate int
	Used      Cost
}

type composer struct {
	candidates []Candidate
	budget     Budget
	cost       func(Entry) (Cost, bool)
	passagesOf Passages

	// waiting are the remaining candidates of sorted, best first; scores orders all of them.
	waiting []int
	sorted  []int
	leftOut []LeftOut
	scores  []float64
	sources int
	// paired are memories of sources in the response, standIns memories and passages of sources that are not.
	paired, standIns []Entry
	passages         map[Entry]Passage
	entries          []Entry
	used             Cost
	// ended is set by the document whose bytes end the response.
	ended bool
	// pairedCount counts the memories in the response whose source is in it.
	pairedCount int
}

// Best is the score by which a candidate is ordered.
func (c *Candidate) Best() float64 {
	best := c.Score
	for _, m := range c.Memories {
		best = max(best, m.Score)
	}
	return best
}

func (c *composer) memory(e Entry) *Derived { return &c.candidates[e.Candidate].Memories[e.Memory] }

// order sorts the candidates.
func (c *composer) order() {
	c.scores = make([]float64, len(c.candidates))
	for i, candidate := range c.candidates {
		c.scores[i] = candidate.Best()
		c.waiting = append(c.waiting, i)
		if !candidate.Hidden {
			c.sources++
		}
	}
	slices.SortFunc(c.waiting, func(i, j int) int {
		a, b := &c.candidates[i], &c.candidates[j]
		return cmp.Or(cmp.Compare(c.scores[j], c.scores[i]), cmp.Compare(a.Place, b.Place),
			b.OccurredAt.Compare(a.OccurredAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
	c.sorted = c.waiting
}

// step adds the next document or leaves one out. It returns false at the end.
func (c *composer) step() bool {
	if c.used.Tokens >= c.budget.Tokens {
		return false
	}
	next := 0.0
	if len(c.waiting) > 0 {
		next = c.scores[c.waiting[0]]
	}
	if len(c.standIns) > 0 && (len(c.waiting) == 0 || c.score(c.standIns[0]) >= next) {
		if e := c.standIns[0]; !c.repeats(e) {
			c.admit(e)
		}
		c.standIns = c.standIns[1:]
		return true
	}
	if len(c.paired) > 0 && (c.pairedCount+1)*resultsPerMemory <= len(c.entries)+1 {
		if m := c.memory(c.paired[0]); len(c.waiting) == 0 || m.Worth < Repeated && m.Score*pairedShare >= next {
			if c.admit(c.paired[0]) {
				c.pairedCount++
			}
			c.paired = c.paired[1:]
			return true
		}
	}
	if len(c.waiting) == 0 {
		return false
	}
	i := c.waiting[0]
	c.waiting = c.waiting[1:]
	c.candidate(i)
	return true
}

// candidate adds a source and, if a memory belongs right above it, that memory first. The other
// memories compete later.
func (c *composer) candidate(i int) {
	candidate := &c.candidates[i]
	memories := c.ranked(i)
	source := Entry{Candidate: i, Memory: Source}
	cost, fits := c.fits(source)
	if !fits || !c.fitsBytes(cost) {
		c.leftOut = append(c.leftOut, LeftOut{i, c.used})
		c.standIns = append(c.standIns, memories...)
		if !c.ended && !candidate.Hidden {
			c.addPassages(i)
		}
		c.sort(c.standIns, false)
		return
	}
	if len(memories) > 0 && c.pairedCount*resultsPerMemory <= len(c.entries) {
		first := memories[0]
		if candidate.Memories[first.Memory].Worth == Superseded || c.sources < fewSources {
			if more, ok := c.cost(first); ok && c.used.Tokens+cost.Tokens+more.Tokens <= c.budget.Tokens &&
				c.used.Bytes+cost.Bytes+more.Bytes <= c.budget.Bytes && c.admit(first) {
				c.pairedCount++
				memories = memories[1:]
			}
		}
	}
	c.add(source, cost)
	c.paired = append(c.paired, memories...)
	c.sort(c.paired, true)
}

// addPassages adds the passages of a candidate to what takes the place of sources.
func (c *composer) addPassages(i int) {
	if c.passagesOf == nil {
		return
	}
	left := Cost{c.budget.Tokens - c.used.Tokens, c.budget.Bytes - c.used.Bytes}
	passages := c.passagesOf(i, left, c.waiting)
	for _, p := range passages[:min(len(passages), PassagesOfSource)] {
		e := Entry{i, InPart, p.N}
		c.passages[e] = p
		c.standIns = append(c.standIns, e)
	}
}

// repeats reports whether a passage repeats a memory of the response.
func (c *composer) repeats(e Entry) bool {
	return e.Memory == InPart && slices.ContainsFunc(c.passages[e].Repeats, func(m int) bool {
		return slices.Contains(c.entries, Entry{Candidate: e.Candidate, Memory: m})
	})
}

// fits returns what the source of a candidate costs, and whether it can be shown within the
// remaining budget.
func (c *composer) fits(source Entry) (cost Cost, ok bool) {
	candidate := &c.candidates[source.Candidate]
	if candidate.Hidden || c.used.Tokens+candidate.Least > c.budget.Tokens {
		return Cost{}, false
	}
	cost, ok = c.cost(source)
	return cost, ok && c.used.Tokens+cost.Tokens <= c.budget.Tokens
}

// fitsBytes reports whether the bytes of a document fit. If they do not, it ends the response.
func (c *composer) fitsBytes(cost Cost) bool {
	if len(c.entries) > 0 && c.used.Bytes+cost.Bytes > c.budget.Bytes {
		c.ended = true
	}
	return !c.ended
}

func (c *composer) admit(e Entry) bool {
	cost, ok := c.cost(e)
	if !ok || c.used.Tokens+cost.Tokens > c.budget.Tokens || !c.fitsBytes(cost) {
		return false
	}
	c.add(e, cost)
	return true
}

func (c *composer) add(e Entry, cost Cost) {
	c.entries = append(c.entries, e)
	c.used.Tokens, c.used.Bytes = c.used.Tokens+cost.Tokens, c.used.Bytes+cost.Bytes
}

// remove takes the last document out.
func (c *composer) remove(last Entry) {
	cost, _ := c.cost(last)
	c.entries = c.entries[:len(c.entries)-1]
	c.used.Tokens, c.used.Bytes = c.used.Tokens-cost.Tokens, c.used.Bytes-cost.Bytes
}

// ranked returns the memories of a candidate, worthiest first, without duplicates.
func (c *composer) ranked(i int) []Entry {
	var list []Entry
	for m := range c.candidates[i].Memories {
		list = append(list, Entry{Candidate: i, Memory: m})
	}
	c.sort(list, true)
	seen := make(map[string]struct{}, len(list))
	return slices.DeleteFunc(list, func(e Entry) bool {
		content := c.memory(e).Content
		_, twice := seen[content]
		seen[content] = struct{}{}
		return twice
	})
}

// sort orders memories and passages by score, or with byWorth memories by their worth first. Of equal scores memories
// are first, since they are shorter.
func (c *composer) sort(list []Entry, byWorth bool) {
	slices.SortStableFunc(list, func(x, y Entry) int {
		if byWorth && c.memory(x).Worth != c.memory(y).Worth {
			return cmp.Compare(c.memory(x).Worth, c.memory(y).Worth)
		}
		a, aID := c.origin(x)
		b, bID := c.origin(y)
		return cmp.Or(cmp.Compare(c.score(y), c.score(x)), cmp.Compare(min(y.Memory, 0), min(x.Memory, 0)), b.Compare(a),
			bytes.Compare(aID[:], bID[:]))
	})
}

// score is the score by which a memory or a passage competes.
func (c *composer) score(e Entry) float64 {
	if e.Memory == InPart {
		return c.scores[e.Candidate] * c.passages[e].Share
	}
	return c.memory(e).Score
}

// origin returns what orders documents of equal scores: a time and an id. Passages have those of their source.
func (c *composer) origin(e Entry) (time.Time, uuid.UUID) {
	if e.Memory == InPart {
		return c.candidates[e.Candidate].OccurredAt, c.candidates[e.Candidate].ID
	}
	return c.memory(e).OccurredAt, c.memory(e).ID
}

// Tokens returns what a document costs of the budget: a quarter of the code points of its content
// and excerpts, rounded up.
func Tokens(content string, excerpts ...string) int {
	points := utf8.RuneCountInString(content)
	for _, e := range excerpts {
		points += utf8.RuneCountInString(e)
	}
	return (points + 3) / 4
}

// LeastTokens returns the least that a text of so many bytes of UTF-8 can cost.
func LeastTokens(bytes int64) int64 { return ((bytes+3)/4 + 3) / 4 }
