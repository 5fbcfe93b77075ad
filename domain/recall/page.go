package recall

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Candidate is a data point that a page may show: its source, verbatim, and memories that were derived from it.
type Candidate struct {
	// ID and OccurredAt are the source's.
	ID         uuid.UUID
	OccurredAt time.Time
	// Score is the source's own; its place is by the best of that and its memories', which are keys to it too.
	Score float64
	// Hidden says that the source itself cannot be shown, as where it lies outside of the window.
	Hidden bool
	// Least is the least that the source costs, in tokens.
	Least    int
	Memories []Derived
}

// Derived is a memory of a candidate. OccurredAt orders it; Content tells which memories are equal.
type Derived struct {
	ID         uuid.UUID
	OccurredAt time.Time
	Score      float64
	Worth      Worth
	Content    string
}

// Worth says how much a memory adds for one who has read its source. Less is more.
type Worth int

// The worths: a statement that was replaced later, which the source cannot say; what a source means; what it repeats.
const (
	Replaced Worth = iota
	Distilled
	Repeated
)

// Entry is a document of a page: the source of a candidate, or the memory of it where Memory is not Source.
type Entry struct{ Candidate, Memory int }

// Source is the Memory of an Entry that is the source itself.
const Source = -1

// share is how many results there are for each memory whose source stands in the page.
const share = 5

// besideShare is what a memory counts whose source stands in the page: it says again, so another source comes first that says half as much.
const besideShare = 0.5

// fewSources is below how many sources a page would never show a memory, if it kept to the share.
const fewSources = share

// Budget bounds a page: tokens of content and excerpts, and bytes of everything that its documents carry.
type Budget struct {
	Tokens int
	Bytes  int64
}

// Cost is what a document takes of a Budget.
type Cost struct {
	Tokens int
	Bytes  int64
}

// Compose makes a page: whole documents, best first, at most limit of them, within the budget.
// Cost returns what a document costs; ok is false where it cannot be shown after all.
//
// A document that takes too many tokens is left out. One that takes too many bytes ends the page, unless it is the first: a page
// always shows something.
//
// Memories never crowd out sources. Of any first n results at most a fifth are memories whose source stands above them. A
// replaced statement, or in a page of few sources the best memory, may stand right above its source, within the same
// fifth rounded up. The memories of a source that is not in the page, because it is too long or out of the window,
// stand in for it, and take part by their scores.
func Compose(candidates []Candidate, limit int, budget Budget, cost func(Entry) (Cost, bool)) Composed {
	c := composer{candidates: candidates, limit: limit, budget: budget, cost: cost}
	c.order()
	for len(c.page) < limit && !c.ended {
		if !c.step() {
			break
		}
	}
	return Composed{Page: c.page, Used: c.used, Ended: c.ended}
}

// Composed is a page with what it takes of its budget. Ended reports whether its bytes ended it: further candidates change nothing.
type Composed struct {
	Page  []Entry
	Used  Cost
	Ended bool
}

type composer struct {
	candidates []Candidate
	limit      int
	budget     Budget
	cost       func(Entry) (Cost, bool)

	// waiting are the candidates to come, best first; places their scores.
	waiting []int
	places  []float64
	sources int
	// beside are memories of sources in the page, standIns of sources that are not.
	beside, standIns []Entry
	page             []Entry
	used             Cost
	// ended is set by the document whose bytes end the page.
	ended bool
	// paired counts the memories in the page whose source is in it.
	paired int
}

func (c *composer) memory(e Entry) *Derived { return &c.candidates[e.Candidate].Memories[e.Memory] }

// order puts the candidates into their order.
func (c *composer) order() {
	c.places = make([]float64, len(c.candidates))
	for i, candidate := range c.candidates {
		c.places[i] = candidate.Score
		for _, m := range candidate.Memories {
			c.places[i] = max(c.places[i], m.Score)
		}
		c.waiting = append(c.waiting, i)
		if !candidate.Hidden {
			c.sources++
		}
	}
	slices.SortFunc(c.waiting, func(i, j int) int {
		a, b := &c.candidates[i], &c.candidates[j]
		return cmp.Or(cmp.Compare(c.places[j], c.places[i]), a.OccurredAt.Compare(b.OccurredAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
}

// step places the next document, or leaves one out. It is false at the end.
func (c *composer) step() bool {
	if c.used.Tokens >= c.budget.Tokens {
		return false
	}
	next := 0.0
	if len(c.waiting) > 0 {
		next = c.places[c.waiting[0]]
	}
	if len(c.standIns) > 0 && (len(c.waiting) == 0 || c.memory(c.standIns[0]).Score >= next) {
		c.admit(c.standIns[0])
		c.standIns = c.standIns[1:]
		return true
	}
	if len(c.beside) > 0 && (c.paired+1)*share <= len(c.page)+1 {
		if m := c.memory(c.beside[0]); len(c.waiting) == 0 || m.Worth < Repeated && m.Score*besideShare >= next {
			if c.admit(c.beside[0]) {
				c.paired++
			}
			c.beside = c.beside[1:]
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

// candidate places a source and, where there is cause, a memory right above it; the other memories wait for their turn.
func (c *composer) candidate(i int) {
	candidate := &c.candidates[i]
	memories := c.ranked(i)
	source := Entry{i, Source}
	cost, fits := c.fits(source)
	if !fits || !c.carries(cost) {
		c.standIns = append(c.standIns, memories...)
		c.sort(c.standIns, false)
		return
	}
	if len(memories) > 0 && c.paired*share <= len(c.page) && len(c.page)+2 <= c.limit {
		first := memories[0]
		if candidate.Memories[first.Memory].Worth == Replaced || c.sources < fewSources {
			if more, ok := c.cost(first); ok && c.used.Tokens+cost.Tokens+more.Tokens <= c.budget.Tokens &&
				c.used.Bytes+cost.Bytes+more.Bytes <= c.budget.Bytes && c.admit(first) {
				c.paired++
				memories = memories[1:]
			}
		}
	}
	c.place(source, cost)
	c.beside = append(c.beside, memories...)
	c.sort(c.beside, true)
}

// fits says what the source of a candidate costs, and whether it can be shown within what is left.
func (c *composer) fits(source Entry) (cost Cost, ok bool) {
	candidate := &c.candidates[source.Candidate]
	if candidate.Hidden || c.used.Tokens+candidate.Least > c.budget.Tokens {
		return Cost{}, false
	}
	cost, ok = c.cost(source)
	return cost, ok && c.used.Tokens+cost.Tokens <= c.budget.Tokens
}

// carries reports whether the page takes the bytes of a document. One that it does not take ends it.
func (c *composer) carries(cost Cost) bool {
	if len(c.page) > 0 && c.used.Bytes+cost.Bytes > c.budget.Bytes {
		c.ended = true
	}
	return !c.ended
}

func (c *composer) admit(e Entry) bool {
	cost, ok := c.cost(e)
	if !ok || c.used.Tokens+cost.Tokens > c.budget.Tokens || !c.carries(cost) {
		return false
	}
	c.place(e, cost)
	return true
}

func (c *composer) place(e Entry, cost Cost) {
	c.page = append(c.page, e)
	c.used.Tokens, c.used.Bytes = c.used.Tokens+cost.Tokens, c.used.Bytes+cost.Bytes
}

// ranked is the memories of a candidate, the worthiest first; of equal ones only the first.
func (c *composer) ranked(i int) []Entry {
	var list []Entry
	for m := range c.candidates[i].Memories {
		list = append(list, Entry{i, m})
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

// sort orders memories by score, or first by their worth.
func (c *composer) sort(list []Entry, byWorth bool) {
	slices.SortStableFunc(list, func(x, y Entry) int {
		a, b := c.memory(x), c.memory(y)
		if byWorth && a.Worth != b.Worth {
			return cmp.Compare(a.Worth, b.Worth)
		}
		return cmp.Or(cmp.Compare(b.Score, a.Score), a.OccurredAt.Compare(b.OccurredAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
}
