package bleve

import (
	"math"

	"github.com/annals-project/annals/domain/recall"
)

// candidate is a document that may be among the best. id is its number in the snapshot.
type candidate struct {
	id     uint64
	score  float64
	order  uint64
	counts []recall.Count
	length int
}

// topK keeps the candidates with the highest scores; of equal ones the first by order, then in the index.
// It is a heap with the worst on top.
type topK struct {
	size       int
	candidates []candidate
	// countsBuffer is memory for copies of counts, allocated for several candidates at a time.
	countsBuffer []recall.Count
}

func (a *candidate) worse(b *candidate) bool {
	if a.score != b.score {
		return a.score < b.score
	}
	if a.order != b.order {
		return a.order > b.order
	}
	return a.id > b.id
}

// bound is the score that a later document must reach.
func (b *topK) bound() float64 {
	switch {
	case b.size <= 0:
		return math.Inf(1)
	case len(b.candidates) < b.size:
		return math.Inf(-1)
	default:
		return b.candidates[0].score
	}
}

// add adds a document whose score reaches the bound, if it is better than the worst. It copies the counts. full
// reports that the bound may be higher now.
func (b *topK) add(c candidate) (full bool) {
	if b.size <= 0 {
		return false
	}
	if len(b.candidates) < b.size {
		if len(b.countsBuffer) < len(c.counts) {
			b.countsBuffer = make([]recall.Count, min(64, b.size-len(b.candidates))*len(c.counts))
		}
		own := b.countsBuffer[:len(c.counts):len(c.counts)]
		b.countsBuffer = b.countsBuffer[len(c.counts):]
		copy(own, c.counts)
		c.counts = own
		b.candidates = append(b.candidates, c)
		b.up(len(b.candidates) - 1)
		return len(b.candidates) == b.size
	}
	worst := &b.candidates[0]
	if !worst.worse(&c) {
		return false
	}
	copy(worst.counts, c.counts)
	c.counts = worst.counts
	*worst = c
	b.down()
	return true
}

func (b *topK) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !b.candidates[i].worse(&b.candidates[parent]) {
			return
		}
		b.candidates[i], b.candidates[parent] = b.candidates[parent], b.candidates[i]
		i = parent
	}
}

func (b *topK) down() {
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(b.candidates) && b.candidates[child].worse(&b.candidates[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		b.candidates[i], b.candidates[least] = b.candidates[least], b.candidates[i]
		i = least
	}
}
