package recall

import (
	"cmp"
	"slices"
	"time"
)

// Turn is a data point as it is ranked, by that of its passages whose words fit best: a candidate, or a neighbour of one. All of
// them are such that the reader may read them.
type Turn struct {
	// Counts say how often each term of the question stands in it; nil where none does.
	Counts []Count
	// Length is the number of terms of its text, Size the bytes of the whole that would be shown for it.
	Length int
	Size   int64
	Traits Traits
	// Key is what the best memory of it says of the question, measured as words are; 0 for none.
	Key float64
	// Meaning is how much nearer to the question in meaning it is than what is ordinary, in standard deviations; 0 for no more, or unknown.
	Meaning    float64
	Author     string
	OccurredAt time.Time
	// Before and After are the places of the data points right before and after it in its conversation, None for none or unknown.
	Before, After int
}

// None is no place.
const None = -1

// threadGap is the longest pause within a conversation: what comes later begins another one.
const threadGap = time.Hour

// SameThread says whether of two passages that follow each other the later may belong to the conversation of the earlier.
func SameThread(earlier, later time.Time) bool { return later.Sub(earlier) <= threadGap }

// scene is what all signals look at.
type scene struct {
	question Question
	turns    []Turn
	weights  Weights
	// content is the places of the terms that ask for a content; those that only name an author are left out.
	content []int
	// usual is the mean weight of these terms: what a signal without terms of its own is measured in.
	usual float64
	// named is the one author whom the question names or, naming none, calls "I"; "" for none or several.
	named string
	// base is what each turn scores by its own words, threads what the conversation of each does.
	base, threads []float64
	// literal leaves out related words.
	literal bool
	// related is room for what related words say of one turn.
	related []float64
}

func newScene(a *Analyzer, q Question, weights Weights, turns []Turn, literal bool) *scene {
	s := &scene{question: q, turns: turns, weights: weights, literal: literal}
	names := s.findNamed(a)
	own := q.Own()
	for i := range own {
		if !slices.Contains(names, i) {
			s.content = append(s.content, i)
		}
	}
	if len(s.content) == 0 { // nothing but a name is asked for
		for i := range own {
			s.content = append(s.content, i)
		}
	}
	met := 0
	for _, i := range s.content {
		if w := weights[i].text; w > 0 {
			s.usual += w
			met++
		}
	}
	s.usual /= float64(max(met, 1))
	s.related = make([]float64, own)
	s.base = make([]float64, len(turns))
	for i := range turns {
		s.base[i] = ownWords(s, i)
	}
	s.threads = s.scoreThreads()
	return s
}

// findNamed finds the author whom the question names, and the terms that name authors.
func (s *scene) findNamed(a *Analyzer) (names []int) {
	seen := make(map[string]struct{})
	authors := 0
	for i := range s.turns {
		author := s.turns[i].Author
		if _, twice := seen[author]; twice || author == "" {
			continue
		}
		seen[author] = struct{}{}
		place := s.nameOf(a, author)
		if place == None {
			continue
		}
		authors++
		s.named = author
		names = append(names, place)
	}
	switch {
	case authors == 0:
		s.named = s.question.Asker
	case authors > 1:
		s.named = ""
	}
	return names
}

// nameOf is the term of the question that is the first name of an author.
func (s *scene) nameOf(a *Analyzer, author string) int {
	terms := a.Terms(cut(author, termBytes))
	if len(terms) == 0 {
		return None
	}
	for i := range s.question.Own() {
		if s.question.Terms[i].Text == terms[0] {
			return i
		}
	}
	return None
}

// scoreThreads scores each conversation as one text, as far as its turns are known, and gives every turn the score of its own.
func (s *scene) scoreThreads() []float64 {
	order := make([]int, len(s.turns))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(s.turns[a].OccurredAt.Compare(s.turns[b].OccurredAt), cmp.Compare(a, b))
	})
	scores := make([]float64, len(s.turns))
	counts := make([]int, len(s.content))
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && SameThread(s.turns[order[to-1]].OccurredAt, s.turns[order[to]].OccurredAt) {
			to++
		}
		clear(counts)
		for _, i := range order[from:to] {
			for c, term := range s.content {
				counts[c] += s.count(i, term)
			}
		}
		score := 0.0
		for c, term := range s.content {
			if tf := float64(counts[c]); tf > 0 {
				score += s.weights[term].text * tf * (threadK1 + 1) / (tf + threadK1)
			}
		}
		for _, i := range order[from:to] {
			scores[i] = score
		}
		from = to
	}
	return scores
}

// threadK1 is how soon a word that a conversation repeats adds nothing.
const threadK1 = 1.2

// count is how often a term stands in the text of a turn.
func (s *scene) count(turn, term int) int {
	if counts := s.turns[turn].Counts; counts != nil {
		return counts[term].Text
	}
	return 0
}

// at is a score of the turn that lies some steps before (negative) or after another, 0 where none is known.
func (s *scene) at(scores []float64, turn, steps int) float64 {
	turn = s.walk(turn, steps)
	if turn == None {
		return 0
	}
	return scores[turn]
}

func (s *scene) walk(turn, steps int) int {
	for ; steps < 0 && turn != None; steps++ {
		turn = s.turns[turn].Before
	}
	for ; steps > 0 && turn != None; steps-- {
		turn = s.turns[turn].After
	}
	return turn
}
