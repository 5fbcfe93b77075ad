package recall

import (
	"cmp"
	"slices"
)

// The floor drops what has little in common with the question: a recall on something that was never stored returns
// little. A turn stays if its score without embeddings is a share of what a turn with each word of the question would
// score by these words: floorShare if it has one of them, floorShareNear if only its conversation speaks for it. It
// also stays if embeddings add floorMeaning usual weights. At most floorWords words count, the rarest, so that a long
// question does not drop everything; and the best floorKeeps turns stay, since a question may have many words that
// nobody used. A question for an order of events has no floor: it asks for more than its words.
const (
	floorShare     = 0.12
	floorShareNear = 0.1
	floorMeaning   = 1.6
	floorWords     = 8
	floorKeeps     = 16
)

// Floor is the name of the floor as a signal, by which a service leaves it out.
const Floor = "floor"

// floor sets the scores below the floor to 0. byWords are the scores without similarity, meanings are what similarity
// added to them, before the factors.
func (s *scene) floor(scores, byWords, meanings []float64, explained []ExplainedTurn) {
	if len(scores) <= floorKeeps {
		return
	}
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	most := s.most()
	for _, i := range order[floorKeeps:] {
		share := floorShare
		if s.base[i] <= 0 {
			share = floorShareNear
		}
		if byWords[i] >= share*most || meanings[i] >= s.inUsual(floorMeaning) {
			continue
		}
		if explained != nil && scores[i] != 0 {
			explained[i].addFactor(Floor, 0)
		}
		scores[i] = 0
	}
}

// most is the sum of the weights of the question's own words that any turn has, at most floorWords of them.
func (s *scene) most() (sum float64) {
	var met Words
	for _, held := range s.held {
		met |= held
	}
	weights := make([]float64, 0, s.own)
	for i := range s.own {
		if met.Has(i) {
			weights = append(weights, s.weights[i].text)
		}
	}
	slices.SortFunc(weights, func(a, b float64) int { return cmp.Compare(b, a) })
	for _, w := range weights[:min(len(weights), floorWords)] {
		sum += w
	}
	return sum
}
