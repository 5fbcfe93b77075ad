package embeddings

import (
	"math"
	"sync"
)

// unknown is the similarity of an entry that the query may not read, or that has no vector.
const unknown = float32(-2)

// distribution is what is usual for a similarity.
type distribution struct{ mean, deviation float64 }

// distributionOf ignores what is unknown.
func distributionOf(values []float32) (d distribution, count int) {
	var sum, squares float64
	for _, v := range values {
		if v != unknown {
			sum, squares, count = sum+float64(v), squares+float64(v)*float64(v), count+1
		}
	}
	if count == 0 {
		return distribution{0, 1}, 0
	}
	d.mean = sum / float64(count)
	d.deviation = math.Sqrt(max(0, squares/float64(count)-d.mean*d.mean))
	return d, count
}

// standard returns how many standard deviations a similarity exceeds the usual one.
func (d distribution) standard(similarity float32) float64 {
	return (float64(similarity) - d.mean) / d.deviation
}

// given holds lists of values by the order of a column that searches gave back: they are as long as a project is large.
// Who takes one writes all of it.
var given sync.Pool

// takeValues returns a list of a length. Its values are those of another search.
func takeValues(length int) *[]float32 {
	list, _ := given.Get().(*[]float32)
	if list == nil || cap(*list) < length {
		list = new(make([]float32, length))
	}
	*list = (*list)[:length]
	return list
}
