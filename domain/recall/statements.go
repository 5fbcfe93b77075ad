package recall

import (
	"cmp"
	"slices"
)

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
