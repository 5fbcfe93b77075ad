package bleve

import (
	"sort"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// makeHits makes hits of the candidates, with copies of their counts.
func (s *search) makeHits(candidates []candidate) error {
	s.found.Hits = make([]recallindex.Hit, len(candidates))
	counts := make([]recall.Count, 0, len(candidates)*len(s.query.Terms))
	for n, c := range candidates {
		i := sort.Search(len(s.segments), func(i int) bool { return s.segments[i].base > c.id }) - 1
		in := s.segments[i]
		segment, doc, hit := in.Segment(), c.id-in.base, &s.found.Hits[n]
		first := len(counts)
		counts = append(counts, c.counts...)
		hit.Counts, hit.Length = counts[first:len(counts):len(counts)], c.length
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
