package bleve

import (
	"math"
	"sync"

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
	// counts is the memory for the counts of the candidates.
	counts []recall.Count
}

// topKPool keeps the memory of the best for later searches.
var topKPool = sync.Pool{New: func() any { return new(topK) }}

// pooledCounts is the most counts that the memory of one may hold in the pool: a wide search gives its own up.
const pooledCounts = 1 << 16

// newTopK returns an empty one of a size. Its user releases it.
func newTopK(size int) *topK {
	b, _ := topKPool.Get().(*topK)
	b.size, b.candidates, b.counts = size, b.candidates[:0], b.counts[:0]
	return b
}

// release gives the memory back. No candidate may be used after it.
func (b *topK) release() {
	if cap(b.counts) <= pooledCounts {
		topKPool.Put(b)
	}
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
		first := len(b.counts)
		b.counts = append(b.counts, c.counts...)
		c.counts = b.counts[first:]
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
