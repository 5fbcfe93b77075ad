package bleve

import (
	"math"
	"math/bits"

	"github.com/annals-project/annals/domain/recall"
)

// impacts is what a term adds in the documents of a segment, in parts of its weight.
type impacts struct {
	// greatest is the greatest impact. repeated is the greatest ratio of an impact to that of one occurrence in
	// the same document.
	greatest, repeated float64
}

// impactsOf returns the impacts of a term, and those of it where it is repeated. lengths are those of the segment.
func impactsOf(docs, repeated *docList, lengths *lengths) (found impacts) {
	if docs == nil {
		return found
	}
	shortest := math.MaxInt
	for _, doc := range docs.numbers {
		shortest = min(shortest, lengths.number(uint64(doc)))
	}
	for i, word := range docs.bits {
		for ; word != 0; word &= word - 1 {
			shortest = min(shortest, lengths.number(uint64(i*64+bits.TrailingZeros64(word))))
		}
	}
	found.greatest = recall.Impact(1, shortest)
	if repeated == nil {
		return found
	}
	for i, doc := range repeated.numbers {
		length := lengths.number(uint64(doc))
		impact := recall.Impact(int(repeated.frequencies[i]), length)
		found.greatest = max(found.greatest, impact)
		found.repeated = max(found.repeated, impact/recall.Impact(1, length))
	}
	return found
}
