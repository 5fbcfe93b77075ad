package recall

import (
	"cmp"
	"slices"
	"time"
)

// Turn is a data point as it is ranked, by its best passage: a candidate or a neighbour of one. The
// viewer may read all of them.
type Turn struct {
	// Counts are the occurrences of each term of the question; nil if there are none.
	Counts []Count
	// Length is the number of terms of its text, Size the bytes of the content that would be shown.
	Length int
	Size   int64
	Traits Traits
	// Key is the score of its best memory, on the scale of word scores; 0 for none.
	Key float64
	// Similarity is how much nearer its embedding is to the question's than usual, in standard deviations, negative for
	// less; 0 if unknown. Window is the same of the mean of it and its neighbours in the conversation.
	Similarity, Window float64
	Author             string
	OccurredAt         time.Time
	// Before and After are the indexes of its neighbours in the conversation, or None.
	Before, After int
}

// None is no index.
const None = -1

// threadGap is the longest pause within a conversation.
const threadGap = time.Hour

// SameThread reports whether the later of two successive data points may belong to the conversation
// of the earlier.
func SameThread(earlier, later time.Time) bool { return later.Sub(earlier) <= threadGap }

// scene is the input of all signals.
type scene struct {
	question Question
	turns    []Turn
	weights  Weights
	// content are the indexes of the question's own terms, without those that only name an author.
	content []int
	// usual is the mean weight of these terms, the unit of signals without terms.
	usual float64
	// named is the one author that the question names, or if it names none, the asker; "" for none or
	// several.
	named string
	// other is an author whose turns do not count as written by the author asked for: that of a question that addresses
	// "you" and names no author; "" for none.
	other string
	// base is the score of each turn by its own words, threads that of its conversation.
	base, threads []float64
	// threadOf is the number of the conversation of each turn.
	threadOf []int
	// literal leaves out related words.
	literal bool
	// related is a buffer for the related words of one turn.
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
	if len(s.content) == 0 { // the question is only a name
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
	s.threadOf = make([]int, len(turns))
	s.threads = s.scoreThreads()
	return s
}

// findNamed finds the author that the question names, and returns the terms that name authors.
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
	case authors == 0 && s.question.Addressed != "":
		s.other = s.question.Addressed
	case authors == 0:
		s.named = s.question.Asker
	case authors > 1:
		s.named = ""
	}
	return names
}

// nameOf returns the index of the question's term that is the first name of an author, or None.
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

// scoreThreads scores the known turns of each conversation as one text, and returns that score for
// each turn.
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
	for from, thread := 0, 0; from < len(order); thread++ {
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
			scores[i], s.threadOf[i] = score, thread
		}
		from = to
	}
	return scores
}

// threadK1 is how soon repetitions of a word in a conversation stop adding to its score.
const threadK1 = 1.2

// count is how often a term occurs in the text of a turn.
func (s *scene) count(turn, term int) int {
	if counts := s.turns[turn].Counts; counts != nil {
		return counts[term].Text
	}
	return 0
}

// at returns a score of the turn some steps before (negative) or after another, 0 if there is no
// such turn.
func (s *scene) at(scores []float64, turn, steps int) float64 {
	turn = s.neighbour(turn, steps)
	if turn == None {
		return 0
	}
	return scores[turn]
}

func (s *scene) neighbour(turn, steps int) int {
	for ; steps < 0 && turn != None; steps++ {
		turn = s.turns[turn].Before
	}
	for ; steps > 0 && turn != None; steps-- {
		turn = s.turns[turn].After
	}
	return turn
}
