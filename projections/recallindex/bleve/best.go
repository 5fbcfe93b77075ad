package bleve

import (
	"math"

	"github.com/annals-project/annals/domain/recall"
)

// candidate is a document that may be among the best. id is its number in the whole snapshot.
type candidate struct {
	id     uint64
	score  float64
	counts []recall.Count
	length int
}

// best keeps the candidates with the highest scores; of equal ones the first in the index. It is a heap with the worst on top.
type best struct {
	size int
	list []candidate
	// room is what counts are copied to, made for some candidates at a time.
	room []recall.Count
}

func (a *candidate) worse(b *candidate) bool {
	if a.score != b.score {
		return a.score < b.score
	}
	return a.id > b.id
}

// bound is the score that a later document has to exceed.
func (b *best) bound() float64 {
	switch {
	case b.size <= 0:
		return math.Inf(1)
	case len(b.list) < b.size:
		return math.Inf(-1)
	default:
		return b.list[0].score
	}
}

// add takes a document whose score exceeds the bound. It keeps a copy of the counts.
func (b *best) add(id uint64, score float64, counts []recall.Count, length int) {
	if len(b.list) < b.size {
		if len(b.room) < len(counts) {
			b.room = make([]recall.Count, min(64, b.size-len(b.list))*len(counts))
		}
		own := b.room[:len(counts):len(counts)]
		b.room = b.room[len(counts):]
		copy(own, counts)
		b.list = append(b.list, candidate{id, score, own, length})
		b.up(len(b.list) - 1)
		return
	}
	worst := &b.list[0]
	copy(worst.counts, counts)
	worst.id, worst.score, worst.length = id, score, length
	b.down()
}

func (b *best) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !b.list[i].worse(&b.list[parent]) {
			return
		}
		b.list[i], b.list[parent] = b.list[parent], b.list[i]
		i = parent
	}
}

func (b *best) down() {
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(b.list) && b.list[child].worse(&b.list[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		b.list[i], b.list[least] = b.list[least], b.list[i]
		i = least
	}
}
