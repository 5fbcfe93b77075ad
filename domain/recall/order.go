package recall

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Placed is a candidate whose place in a response is chosen.
type Placed struct {
	// Score is the best one of its source and its memories, ByWords that of its source without similarity.
	Score      float64
	ByWords    float64
	OccurredAt time.Time
	SourceID   string
	// Held are the words of the question that its text has, HeldAnywhere those that its text, label, author or a memory of
	// it has.
	Held, HeldAnywhere Words
	// Exactly reports that it, its label or a memory of it has a word of the question, Spelled that it has another
	// spelling of one.
	Exactly, Spelled bool
	// SupersededBy is the index of the candidate whose claim supersedes its best claim, None for none.
	SupersededBy int
	// States is what its text states, nil for a text that is not compared.
	States *Statement
	// WordForWord reports that its text is the question.
	WordForWord bool
	// Wording is that of a short text, nil for one that is not compared.
	Wording *Wording
	// ByAsker reports that the asker wrote it and the question refers to the asker. Negates and IsQuestion are traits of
	// its best passage.
	ByAsker, Negates, IsQuestion bool
	// NextTo are the candidates with a match that it is next to in a conversation, if it is here for nothing else.
	NextTo []int
}

// Statement is what a text states.
type Statement struct {
	States
	// Claim is the claim that was derived and matches the question, "" for none.
	Claim string
}

// Move is why a candidate is not where its score puts it.
type Move string

// The reasons, in the words of an explanation.
const (
	MoveNone           Move = ""
	MoveSuperseded     Move = "superseded"
	MovePeriod         Move = "outside the period"
	MoveEarlier        Move = "earlier"
	MoveNegates        Move = "negation"
	MoveLaterStatement Move = "later statement"
	MoveCorrected      Move = "corrected"
	MoveNeighbour      Move = "neighbour"
	MoveRestates       Move = "restates"
	MoveSpelling       Move = "other spelling"
	MoveWordForWord    Move = "word for word"
)

// Place is one place of an order: the candidate, its score, which is never above that of the place before, and why it
// moved.
type Place struct {
	Candidate int
	Score     float64
	// Share is Score as a share of the candidate's own.
	Share float64
	Move  Move
}

// Of returns what becomes of a score of the candidate, whose best one is own.
func (p Place) Of(own, score float64) float64 {
	if score == own { // a product of floats may be above the score of the candidate before
		return p.Score
	}
	return min(score*p.Share, p.Score)
}

// A candidate that goes above another one for its time has at least equalShare of its score, or as good as its score by
// words: similarity does not tell which of two equal texts was meant.
const (
	equalShare        = 0.8
	equalShareByWords = 0.98
)

// Order arranges candidates by their scores, the newer first if they are equal, then by source id. After that
//
//   - one whose best claim is superseded goes right below the one that supersedes it;
//   - if the question names a period, one outside goes right below an equal one inside;
//   - if it asks for what is current, an earlier one goes right below an equal later one;
//   - if it asks for what is not, texts that deny something go above others with the same words of the question;
//   - the later of two statements of one thing goes to the place of the earlier, and that right below it;
//   - what is only next to a match goes below that match, and below all that has its words of the question;
//   - restatements go below all others that have a word of the question, and below them what has only other spellings;
//   - a text that is the question goes first.
//
// Candidates are equal for the sake of their time if the one that goes up has all words of the question that the other
// has, and about its score. None moves twice.
func (q *Question) Order(list []Placed) []Place {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return list[a].Compare(&list[b]) })
	arranged := belowMatches(list, q.laterFirst(list, q.agreeing(list, q.byTime(list, order))))
	return places(list, last(list, first(list, arranged)))
}

// scoreDigits is to how many parts scores are compared: sums of floats in another order differ by less.
const scoreDigits = 1e9

// Compare orders candidates by their scores, the newer first if they are equal, then by source id.
func (p *Placed) Compare(other *Placed) int {
	if order := cmp.Compare(math.Round(other.Score*scoreDigits), math.Round(p.Score*scoreDigits)); order != 0 {
		return order
	}
	return cmp.Or(other.OccurredAt.Compare(p.OccurredAt), cmp.Compare(p.SourceID, other.SourceID))
}

// moved is a candidate with the reason for its place. If it went up, score is that of the place.
type moved struct {
	candidate int
	move      Move
	score     float64
}

// up reports whether a candidate went up.
func (m Move) up() bool { return m == MoveNegates || m == MoveLaterStatement }

// byTime lets candidates go right below others for their time.
func (q *Question) byTime(list []Placed, order []int) []moved {
	below, moves := make(map[int][]int), make(map[int]Move)
	ranks := make([]int, len(list))
	for rank, i := range order {
		ranks[i] = rank
	}
	for rank, i := range order {
		above, move := q.above(list, order, ranks, rank)
		if above != None {
			below[above] = append(below[above], i)
			moves[i] = move
		}
	}
	arranged := make([]moved, 0, len(list))
	var add func(i int)
	add = func(i int) {
		arranged = append(arranged, moved{candidate: i, move: moves[i]})
		slices.SortStableFunc(below[i], func(a, b int) int { return list[b].OccurredAt.Compare(list[a].OccurredAt) })
		for _, lower := range below[i] {
			add(lower)
		}
	}
	for _, i := range order {
		if moves[i] == MoveNone {
			add(i)
		}
	}
	return arranged
}

// comparedByTime is the most candidates, best first, that are compared with each other for their time.
const comparedByTime = 256

// above returns the candidate below which another one goes, None for none: of several equal ones the last.
func (q *Question) above(list []Placed, order, ranks []int, rank int) (above int, move Move) {
	i := order[rank]
	if newer := list[i].SupersededBy; newer != None && !q.onlyIn(&list[i], &list[newer]) {
		if supersededFromBelow(list, ranks, i) {
			return newer, MoveSuperseded
		}
		return None, MoveNone
	}
	switch {
	case len(q.Periods) > 0:
		move = MovePeriod
	case q.AsksLatest:
		move = MoveEarlier
	default:
		return None, MoveNone
	}
	above = None
	for _, j := range order[min(rank+1, comparedByTime, len(order)):min(comparedByTime, len(order))] {
		better := list[i].OccurredAt.Before(list[j].OccurredAt)
		if move == MovePeriod {
			better = q.onlyIn(&list[j], &list[i])
		}
		if better && list[j].equals(&list[i]) {
			above = j
		}
	}
	if above == None {
		move = MoveNone
	}
	return above, move
}

// supersededFromBelow reports whether a candidate ranks above the one that supersedes it, or above one that supersedes
// that in turn: it will go below that, too.
func supersededFromBelow(list []Placed, ranks []int, i int) bool {
	newer := list[i].SupersededBy
	for range list { // claims that supersede each other are no chain
		if newer == None {
			return false
		}
		if ranks[newer] > ranks[i] {
			return true
		}
		newer = list[newer].SupersededBy
	}
	return false
}

// equals reports whether a candidate matches at least as well as another one, for the sake of their time.
func (p *Placed) equals(other *Placed) bool {
	return other.Held != 0 && p.Held.Contains(other.Held) &&
		(p.Score >= equalShare*other.Score || p.ByWords >= equalShareByWords*other.ByWords)
}

// onlyIn reports whether of two candidates only the first occurred in a period that the question names.
func (q *Question) onlyIn(a, b *Placed) bool { return q.names(a.OccurredAt) && !q.names(b.OccurredAt) }

// names reports whether the question names a period that an instant is in.
func (q *Question) names(at time.Time) bool {
	for _, p := range q.Periods {
		if !at.Before(p.Start) && at.Before(p.End) {
			return true
		}
	}
	return false
}

// first moves texts that are the question to the front.
func first(list []Placed, order []moved) []moved {
	slices.SortStableFunc(order, func(a, b moved) int {
		switch is, other := list[a.candidate].WordForWord, list[b.candidate].WordForWord; {
		case is && !other:
			return -1
		case other && !is:
			return 1
		}
		return 0
	})
	for i := range order {
		if list[order[i].candidate].WordForWord {
			order[i].move = MoveWordForWord
		}
	}
	return order
}

// last moves restatements, and then what has only other spellings of the question's words, below all others that have a
// word of it. None of them goes up.
func last(list []Placed, order []moved) []moved {
	kept := make([]moved, 0, len(order))
	var restating, spelled []moved
	after := 0
	var said statements
	for _, m := range order {
		switch p := &list[m.candidate]; {
		case said.restates(p.States) && !p.WordForWord:
			restating, after = append(restating, moved{candidate: m.candidate, move: MoveRestates}), len(kept)
		case p.Spelled && !p.Exactly:
			spelled, after = append(spelled, moved{candidate: m.candidate, move: MoveSpelling}), len(kept)
		default:
			kept = append(kept, m)
			if p.Exactly {
				after = len(kept)
			}
		}
	}
	return slices.Concat(kept[:after], restating, spelled, kept[after:])
}

// statements are those of the texts before one in an order.
type statements struct {
	byStems map[uint64]struct{}
	byClaim map[Statement]struct{}
}

// restates reports whether a text states what one before it does: it has the same stems, or the same claim and the same
// names, numbers, ids and negations. If it does not, later ones are compared with it.
func (s *statements) restates(text *Statement) bool {
	if text == nil {
		return false
	}
	if s.byStems == nil {
		s.byStems, s.byClaim = make(map[uint64]struct{}), make(map[Statement]struct{})
	}
	claim := Statement{States: States{Exact: text.Exact}, Claim: text.Claim}
	_, same := s.byStems[text.Stems]
	_, sameClaim := s.byClaim[claim]
	if same || sameClaim && text.Claim != "" {
		return true
	}
	s.byStems[text.Stems], s.byClaim[claim] = struct{}{}, struct{}{}
	return false
}

// places gives each candidate a score that is not above that of the one before it.
func places(list []Placed, order []moved) []Place {
	placed := make([]Place, len(order))
	best := 0.0
	for _, p := range list {
		best = max(best, p.Score)
	}
	for i, m := range order {
		switch {
		case m.move.up():
			best = min(best, m.score)
		case m.move != MoveWordForWord:
			best = min(best, list[m.candidate].Score)
		}
		placed[i] = Place{Candidate: m.candidate, Score: best, Share: 1, Move: m.move}
		if own := list[m.candidate].Score; own > 0 {
			placed[i].Share = best / own
		}
	}
	return placed
}

// agreeing lets, of texts with the same words of a question that asks for what is not, those that deny something take
// the places of the first.
func (q *Question) agreeing(list []Placed, order []moved) []moved {
	if !q.Negates {
		return order
	}
	type group struct{ places, deny, others []int }
	groups := make(map[Words]*group)
	for place := range order[:min(len(order), comparedByTime)] {
		p := &list[order[place].candidate]
		held := p.Held &^ q.Denials
		if held&q.Content == 0 {
			continue
		}
		g := groups[held]
		if g == nil {
			g = new(group)
			groups[held] = g
		}
		g.places = append(g.places, place)
		if p.Negates {
			g.deny = append(g.deny, place)
		} else {
			g.others = append(g.others, place)
		}
	}
	arranged := slices.Clone(order)
	for _, g := range groups {
		for n, from := range slices.Concat(g.deny, g.others) {
			to := g.places[n]
			arranged[to] = order[from]
			if to < from {
				arranged[to].move, arranged[to].score = MoveNegates, list[order[to].candidate].Score
			}
		}
	}
	return arranged
}

// laterFirst lets the later of two statements of one thing take the place of the earlier, which goes right below it. If
// the later one has more words of the question, or less to do with it than the earlier's place demands, only the
// earlier goes down. The first MostWordings candidates are compared.
func (q *Question) laterFirst(list []Placed, order []moved) []moved {
	if q.AsksHistory {
		return order
	}
	compared := order[:min(len(order), MostWordings)]
	// above are the places of the later statements of each place that take its place, below is the place below which it
	// goes otherwise.
	above, below := make([][]int, len(compared)), make(map[int][]int)
	lowered := make([]bool, len(order))
	for place := range compared {
		earlier := &list[compared[place].candidate]
		last := None
		for other := place + 1; other < len(compared); other++ {
			later := &list[compared[other].candidate]
			if !later.OccurredAt.After(earlier.OccurredAt) || q.onlyIn(earlier, later) {
				continue
			}
			switch q.relation(later, earlier) {
			case replaces:
				above[place] = append(above[place], other)
			case corrects:
				last = other
			case unrelated:
			}
		}
		if len(above[place]) == 0 && last != None {
			below[last], lowered[place] = append(below[last], place), true
		}
	}
	arranged, done := make([]moved, 0, len(order)), make([]bool, len(order))
	var add func(place int, m moved)
	add = func(place int, m moved) {
		if done[place] {
			return
		}
		done[place] = true
		if place < len(above) {
			slices.SortStableFunc(above[place], func(a, b int) int {
				return cmp.Or(list[order[b].candidate].OccurredAt.Compare(list[order[a].candidate].OccurredAt), cmp.Compare(a, b))
			})
			for _, other := range above[place] {
				score := list[order[place].candidate].Score
				if m.move.up() {
					score = m.score
				}
				add(other, moved{candidate: order[other].candidate, move: MoveLaterStatement, score: score})
			}
		}
		arranged = append(arranged, m)
		for _, lower := range below[place] {
			add(lower, moved{candidate: order[lower].candidate, move: MoveCorrected})
		}
	}
	for place, m := range order {
		if !lowered[place] {
			add(place, m)
		}
	}
	return arranged
}

// belowMatches lets what is here only for a match next to it go below that match, unless that ends in a question, and
// below all that has every word of the question which the match has. Of several matches that counts which leaves it
// highest.
func belowMatches(list []Placed, order []moved) []moved {
	after := make(map[int][]moved) // by place
	above := make(map[int]int)     // lowestAbove, by match
	for i, m := range order {
		next := list[m.candidate].NextTo
		if len(next) == 0 {
			continue
		}
		lowest := len(order)
		for _, match := range next {
			place, known := above[match]
			if !known {
				place = lowestAbove(list, order, match)
				above[match] = place
			}
			lowest = min(lowest, place)
		}
		if lowest > i {
			m.move = MoveNeighbour
		}
		after[max(lowest, i)] = append(after[max(lowest, i)], m)
	}
	if len(after) == 0 {
		return order
	}
	kept := make([]moved, 0, len(order))
	for i, m := range order {
		if len(list[m.candidate].NextTo) == 0 {
			kept = append(kept, m)
		}
		kept = append(kept, after[i]...)
	}
	return kept
}

// lowestAbove returns the last place above what is here only for a match, None for none.
func lowestAbove(list []Placed, order []moved, match int) int {
	held := list[match].HeldAnywhere
	for place := len(order) - 1; place >= 0; place-- {
		candidate := order[place].candidate
		switch other := &list[candidate]; {
		case len(other.NextTo) > 0:
		case candidate == match && !other.IsQuestion, candidate != match && held != 0 && other.HeldAnywhere.Contains(held):
			return place
		}
	}
	return None
}
