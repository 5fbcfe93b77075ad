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

// impactOf returns the greatest impact of a term in any document of the segment, of which open returns a
// new iterator. For a short list it returns the upper bound.
func (c *column) impactOf(field, term string, documents uint64, open func() *posting) (float64, error) {
	if documents < minImpactList {
		return recall.MaxImpact, nil
	}
	key := impactKey{field, term}
	c.mu.Lock()
	impact, known := c.impacts[key]
	c.mu.Unlock()
	if known {
		return impact, nil
	}
	p := open()
	err := p.begin()
	for ; err == nil && p.docs.at != math.MaxUint64; err = p.docs.next() {
		n, length, err := p.count()
		if err != nil {
			return 0, err
		}
		impact = max(impact, recall.Impact(n, length))
	}
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.impacts == nil || len(c.impacts) >= maxImpacts {
		c.impacts = make(map[impactKey]float64)
	}
	c.impacts[key] = impact
	return impact, nil
}
