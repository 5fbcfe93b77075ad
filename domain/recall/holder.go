package recall

import (
	"cmp"
	"slices"
)

// onlyHolder is the name of raise as a signal.
const onlyHolder = "only holder"

// raised is what a turn that is raised scores, in scores of the turn above which it goes.
const raised = 1.0001

// raise lets the order obey the question: context and similarity put no turn above the only one that holds what was
// asked for.
//
//   - A turn that alone holds a word of the question goes above each turn that holds some of its words and no other;
//     one that alone holds all words of the question that any turn holds goes above all. A turn that asks a
//     question does not.
//   - A turn that alone holds an id or a number of the question goes above each turn that only similarity puts above
//     it.
func (s *scene) raise(scores, byWords []float64, explained []ExplainedTurn) {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.plain[a], s.plain[b]) })
	once, all := s.heldOnce()
	ids := s.identifiers()
	for _, x := range order {
		held := s.held[x]
		if held == 0 || held&once == 0 && held != all {
			continue
		}
		best := scores[x]
		for y, score := range scores {
			if score <= best || s.held[y].Contains(held) {
				continue
			}
			fewer := (s.held[y] != 0 || held == all) && held.Contains(s.held[y]) && s.plain[x] > s.plain[y] &&
				!s.turns[x].Traits.Has(IsQuestion)
			if fewer || held&once&ids != 0 && byWords[y] <= byWords[x] {
				best = raised * score
			}
		}
		if explained != nil && best > scores[x] && scores[x] > 0 {
			explained[x].addFactor(onlyHolder, best/scores[x])
		}
		scores[x] = best
	}
}

// heldOnce returns the words that one turn alone holds, and the words that any turn holds if one turn alone holds them
// all, else none.
func (s *scene) heldOnce() (once, all Words) {
	var several Words
	for _, held := range s.held {
		several |= all & held
		all |= held
	}
	once = all &^ several
	holders := 0
	for _, held := range s.held {
		if held == all {
			holders++
		}
	}
	if holders != 1 {
		all = 0
	}
	return once, all
}

// identifiers returns the words of the question that are numbers or ids.
func (s *scene) identifiers() (ids Words) {
	for i, t := range s.question.Terms[:s.own] {
		if t.IsIdentifier() {
			ids |= 1 << i
		}
	}
	return ids
}
