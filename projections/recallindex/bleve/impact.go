package bleve

import (
	segment "github.com/blevesearch/scorch_segment_api/v2"

	"github.com/annals-project/annals/domain/recall"
)

// impactKey names a term in the text of one part.
type impactKey struct{ field, term string }

// Impacts are worth remembering of long lists only, and of so many terms.
const (
	longList    = 256
	impactsKept = 4096
)

// impactOf is the most that a term counts for in any document of the segment. Of a short list it is what it may be at most.
func (c *column) impactOf(field, term string, list segment.PostingsList) (float64, error) {
	if list.Count() < longList {
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
		said, err := docs.Next()
		if err != nil {
			return 0, err
		}
		if said == nil {
			break
		}
		impact = max(impact, recall.Impact(int(said.Frequency()), lengthOf(said)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.impacts == nil || len(c.impacts) >= impactsKept {
		c.impacts = make(map[impactKey]float64)
	}
	c.impacts[key] = impact
	return impact, nil
}
