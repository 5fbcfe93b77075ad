package bleve

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/blevesearch/bleve/v2/index/scorch"
	segment "github.com/blevesearch/scorch_segment_api/v2"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// Search implements recallindex.Index. It walks the postings of the terms itself, and scores with the very function that
// ranks: what it cuts off would have been ranked below what it keeps.
func (x *Index) Search(ctx context.Context, q recallindex.Query) (recallindex.Found, error) {
	if err := x.enter(ctx); err != nil {
		return recallindex.Found{}, err
	}
	defer x.leave()
	found := recallindex.Found{Statistics: recall.Statistics{Frequencies: make([]recall.Count, len(q.Terms))}}
	err := x.with(q.Project, false, func(h *handle) error {
		if h.index == nil || len(q.Terms) == 0 {
			return nil
		}
		engine, err := h.index.Advanced()
		if err != nil {
			return err
		}
		reader, err := engine.Reader()
		if err != nil {
			return err
		}
		snapshot, ok := reader.(*scorch.IndexSnapshot)
		if !ok {
			return errors.Join(fmt.Errorf("the index is of another kind: %T", reader), reader.Close())
		}
		s := &search{query: q, segments: snapshot.Segments(), columns: h.columns.in(snapshot.Segments()), found: &found}
		return errors.Join(s.run(ctx), reader.Close())
	})
	if err != nil {
		return recallindex.Found{}, fmt.Errorf("search recall index: %w", err)
	}
	return found, nil
}

// search answers one query from one snapshot of the index.
type search struct {
	query    recallindex.Query
	segments []*scorch.SegmentSnapshot
	columns  []*column
	lists    [][]list
	found    *recallindex.Found
}

// list is the documents of a term in a field of a segment.
type list struct {
	postings segment.PostingsList
	term     int
	label    bool
}

func (s *search) run(ctx context.Context) error {
	if err := s.open(); err != nil || s.found.Statistics.Docs == 0 {
		return err
	}
	filter, best := newFilter(s.query), &best{size: s.query.Size}
	walk := walk{weights: s.found.Statistics.Weights().Lessened(s.query.Own), best: best, counts: make([]recall.Count, len(s.query.Terms))}
	for i, snapshot := range s.segments {
		if len(s.lists[i]) > 0 {
			passing, some, err := filter.of(snapshot.Segment(), s.columns[i])
			if err != nil {
				return err
			}
			if some {
				walk.filter, walk.postings = passing, walk.postings[:0]
				for _, l := range s.lists[i] {
					p, err := s.posting(l, s.columns[i], walk.weights)
					if err != nil {
						return err
					}
					walk.postings = append(walk.postings, p)
				}
				if err := walk.run(ctx); err != nil {
					return err
				}
			}
		}
		walk.base += snapshot.Segment().Count()
	}
	return s.name(best.list)
}

// open opens the lists of all terms, and counts.
func (s *search) open() error {
	s.lists = make([][]list, len(s.segments))
	for i, snapshot := range s.segments {
		parts, err := snapshot.Segment().Dictionary(partField)
		if err != nil {
			return err
		}
		docs, err := parts.PostingsList([]byte(s.query.Part), snapshot.Deleted(), nil)
		if err != nil {
			return err
		}
		if docs.Count() == 0 {
			continue
		}
		s.found.Statistics.Docs += int(docs.Count())
		if err := s.openField(i, textOf(s.query.Part), false); err != nil {
			return err
		}
		if s.query.Part != recallindex.Sources {
			continue
		}
		if err := s.openField(i, labelField, true); err != nil {
			return err
		}
	}
	return nil
}

// openField opens the lists of one field of a segment.
func (s *search) openField(i int, field string, label bool) error {
	dict, err := s.segments[i].Segment().Dictionary(field)
	if err != nil || dict.Cardinality() == 0 {
		return err
	}
	for term, text := range s.query.Terms {
		postings, err := dict.PostingsList([]byte(text), s.segments[i].Deleted(), nil)
		if err != nil {
			return err
		}
		n := int(postings.Count())
		if n == 0 {
			continue
		}
		s.lists[i] = append(s.lists[i], list{postings, term, label})
		if f := &s.found.Statistics.Frequencies[term]; label {
			f.Label += n
		} else {
			f.Text += n
		}
	}
	return nil
}

// posting readies a list to be walked.
func (s *search) posting(l list, c *column, weights recall.Weights) (*posting, error) {
	p := &posting{docs: l.postings.Iterator(!l.label, !l.label, false, nil), term: l.term, label: l.label}
	if l.label {
		p.weight = weights.Label(l.term)
		p.bound = p.weight
		return p, nil
	}
	impact, err := c.impactOf(textOf(s.query.Part), s.query.Terms[l.term], l.postings)
	p.weight = weights.Text(l.term)
	p.bound = p.weight * impact
	return p, err
}

// name makes hits of the candidates.
func (s *search) name(candidates []candidate) error {
	ends := make([]uint64, len(s.segments))
	end := uint64(0)
	for i, snapshot := range s.segments {
		end += snapshot.Segment().Count()
		ends[i] = end
	}
	s.found.Hits = make([]recallindex.Hit, 0, len(candidates))
	for _, c := range candidates {
		i := sort.Search(len(ends), func(i int) bool { return ends[i] > c.id })
		in := s.segments[i].Segment()
		doc := c.id - (ends[i] - in.Count())
		hit := recallindex.Hit{Counts: c.counts, Length: c.length}
		id, err := in.DocID(doc)
		if err != nil {
			return err
		}
		if hit.Key, err = key(id); err != nil {
			return err
		}
		traits, err := s.columns[i].traitsOf(in)
		if err != nil {
			return err
		}
		if hit.Traits, err = parseTraits(traits.name(doc)); err != nil {
			return err
		}
		s.found.Hits = append(s.found.Hits, hit)
	}
	return nil
}
