package bleve

import (
	"container/heap"

	"github.com/annals-project/annals/domain/recall"
)

// candidate is a document that may be among the best.
type candidate struct {
	id     uint64
	score  float64
	counts []recall.Count
	length int
}

// best keeps the candidates with the highest scores; of equal ones the first in the index.
type best struct {
	size int
	list []candidate
}

func (b *best) Len() int           { return len(b.list) }
func (b *best) Less(i, j int) bool { return worse(b.list[i], b.list[j]) }
func (b *best) Swap(i, j int)      { b.list[i], b.list[j] = b.list[j], b.list[i] }
func (b *best) Push(c any)         { b.list = append(b.list, c.(candidate)) }
func (b *best) Pop() any           { panic("never called: the worst is replaced, not taken out") }

func worse(a, b candidate) bool {
	if a.score != b.score {
		return a.score < b.score
	}
	return a.id > b.id
}

func (b *best) takes(score float64) bool {
	return len(b.list) < b.size || b.size > 0 && score > b.list[0].score
}

func (b *best) add(c candidate) {
	if len(b.list) < b.size {
		heap.Push(b, c)
		return
	}
	b.list[0] = c
	heap.Fix(b, 0)
}
