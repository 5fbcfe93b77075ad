package bleve

import (
	segment "github.com/blevesearch/scorch_segment_api/v2"

	"github.com/annals-project/annals/domain/recall"
)

// impactKey names a term in the text of one part.
type impactKey struct{ field, term string }

// Impacts of lists of at least minImpactList documents are cached, for at most maxImpacts terms.
const (
	minImpactList = 256
	maxImpacts    = 4096
)

// impactOf returns the greatest impact of a term in any document of the segment. For a short list
// it returns the upper bound.
func (c *column) impactOf(field, term string, list segment.PostingsList) (float64, error) {
	if list.Count() < minImpactList {
		return recall.MaxImpact, nil
	}
	key := impactKey{field, term}
	c.mu.Lock()
	impact, known := c.impacts[key]
	c.mu.Unlock()
	if known {
		return impact, nil
	}
	docs := list.Iterator(true, true, false, nil)
	for {
		current, err := docs.Next()
		if err != nil {
			return 0, err
		}
		if current == nil {
			break
		}
		impact = max(impact, recall.Impact(int(current.Frequency()), lengthOf(current)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.impacts == nil || len(c.impacts) >= maxImpacts {
		c.impacts = make(map[impactKey]float64)
	}
	c.impacts[key] = impact
	return impact, nil
}
