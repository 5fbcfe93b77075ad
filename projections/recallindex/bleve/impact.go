package bleve

import (
	"math"

	"github.com/annals-project/annals/domain/recall"
)

// impactKey names a term in the text of one part.
type impactKey struct{ field, term string }

// Impacts of lists of at least minImpactList documents are cached, for at most maxImpacts terms.
const (
	minImpactList = 256
	maxImpacts    = 4096
)

// impacts is what a term adds in the documents of a segment, in parts of its weight.
type impacts struct {
	// greatest is the greatest impact. repeated is the greatest ratio of an impact to that of one occurrence in
	// the same document.
	greatest, repeated float64
}

// impactsOf returns the impacts of a term in the documents of the segment, of which open returns a new iterator.
// For a short list it returns upper bounds. lengths are those of the segment, nil in the former format.
func (c *column) impactsOf(
	field, term string, documents uint64, lengths *lengths, open func() *posting,
) (impacts, error) {
	if documents < minImpactList {
		bounds := impacts{greatest: recall.MaxImpact}
		if lengths != nil {
			bounds.repeated = recall.MaxImpact / float64(lengths.leastImpact)
		}
		return bounds, nil
	}
	key := impactKey{field, term}
	c.mu.Lock()
	found, known := c.impacts[key]
	c.mu.Unlock()
	if known {
		return found, nil
	}
	p := open()
	err := p.begin()
	for ; err == nil && p.docs.at != math.MaxUint64; err = p.docs.next() {
		n, length, err := p.count()
		if err != nil {
			return impacts{}, err
		}
		impact := recall.Impact(n, length)
		found.greatest = max(found.greatest, impact)
		if n > 1 {
			found.repeated = max(found.repeated, impact/recall.Impact(1, length))
		}
	}
	if err != nil {
		return impacts{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.impacts == nil || len(c.impacts) >= maxImpacts {
		c.impacts = make(map[impactKey]impacts)
	}
	c.impacts[key] = found
	return found, nil
}
