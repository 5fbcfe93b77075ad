package bleve

import (
	"sort"

	"github.com/annals-project/annals/projections/recallindex"
)

// makeHits makes hits of the candidates.
func (s *search) makeHits(candidates []candidate) error {
	s.found.Hits = make([]recallindex.Hit, len(candidates))
	for n, c := range candidates {
		i := sort.Search(len(s.segments), func(i int) bool { return s.segments[i].base > c.id }) - 1
		in := s.segments[i]
		segment, doc, hit := in.Segment(), c.id-in.base, &s.found.Hits[n]
		hit.Counts, hit.Length = c.counts, c.length
		id, err := segment.DocID(doc)
		if err != nil {
			return err
		}
		if hit.Key, err = in.at.key(id); err != nil {
			return err
		}
		traits, err := in.column.traitsOf(segment)
		if err != nil {
			return err
		}
		hit.Traits = traits[doc]
	}
	return nil
}
