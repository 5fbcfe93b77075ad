package bleve

import (
	"context"
	"fmt"
	"sort"

	"github.com/blevesearch/bleve/v2/index/scorch"
	segment "github.com/blevesearch/scorch_segment_api/v2"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections/recallindex"
)

// Search implements recallindex.Index. It searches the parts at once. It scores with the function that ranks, so
// that what it cuts off would rank below what it keeps.
func (x *Index) Search(ctx context.Context, q recallindex.Query) (found recallindex.Found, err error) {
	if err := x.beginCall(ctx); err != nil {
		return found, err
	}
	defer x.endCall()
	used := x.used()
	if used.analysis != q.Analysis {
		return found, recallindex.ErrOtherAnalysis
	}
	if err := x.checkComplete(q.Project); err != nil {
		return found, err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range q.Parts() {
		group.Go(func() error {
			return panics.Call(ctx, x.options.Log, "search of recall index panicked", func() (err error) {
				*found.Of(part.Part), err = x.searchPart(ctx, used, part)
				return err
			}, "part", part.Part)
		})
	}
	if err := group.Wait(); err != nil {
		return recallindex.Found{}, fmt.Errorf("search recall index: %w", err)
	}
	return found, nil
}

func (x *Index) searchPart(ctx context.Context, used generation, q recallindex.PartQuery) (recallindex.Result, error) {
	s := &search{query: q, format: used.format}
	s.found.Statistics.Frequencies = make([]recall.Count, len(q.Terms))
	if len(q.Terms) == 0 {
		return s.found, nil
	}
	err := x.searchIn(ctx, s, x.partitions(q.Project), s.run)
	return s.found, err
}

// partitions returns where documents of a project are.
func (x *Index) partitions(project uuid.UUID) []partition {
	if x.hasOwn(project) {
		return []partition{shared(project), own(project)}
	}
	return []partition{shared(project)}
}

// searchIn opens the partitions one after the other, and calls run with all of them open.
func (x *Index) searchIn(ctx context.Context, s *search, places []partition, run func(context.Context) error) error {
	if len(places) == 0 {
		return run(ctx)
	}
	at := places[0]
	return x.with(at.slot, false, func(h *handle) error {
		if h.index == nil {
			return x.searchIn(ctx, s, places[1:], run)
		}
		return h.withSegments(func(segments []*scorch.SegmentSnapshot) error {
			s.add(at, h, segments)
			return x.searchIn(ctx, s, places[1:], run)
		})
	})
}

// search runs one query on one snapshot of each partition.
type search struct {
	query    recallindex.PartQuery
	format   format
	segments []*searchedSegment
	found    recallindex.Result
}

// searchedSegment is one segment with the terms and lists of the query.
type searchedSegment struct {
	*scorch.SegmentSnapshot
	at      partition
	terms   []string
	columns *columns
	column  *column
	lists   []list
}

// add adds the segments of a partition.
func (s *search) add(at partition, h *handle, segments []*scorch.SegmentSnapshot) {
	terms := make([]string, len(s.query.Terms))
	for i, t := range s.query.Terms {
		terms[i] = at.prefix + t.Text
	}
	for i, column := range h.columns.of(segments) {
		s.segments = append(s.segments,
			&searchedSegment{SegmentSnapshot: segments[i], at: at, terms: terms, columns: &h.columns, column: column})
	}
}

// list is the documents of a term in a field of a segment.
type list struct {
	postings segment.PostingsList
	// repeated are those of them that contain the term several times, nil if there are none.
	repeated segment.PostingsList
	term     int
	label    bool
}

func (s *search) run(ctx context.Context) error {
	s.found.Statistics.Frequencies = make([]recall.Count, len(s.query.Terms))
	if err := s.open(); err != nil || s.found.Statistics.Docs == 0 {
		return err
	}
	filter, best := newFilter(s.query.Audiences, s.query.From, s.query.To), &topK{size: s.query.Size}
	window, _ := windowPool.Get().(*window)
	defer windowPool.Put(window)
	walk := maxScore{
		window: window, weights: s.found.Statistics.Weights(s.query.Terms).Shared(s.query.Terms), top: best,
		counts: make([]recall.Count, len(s.query.Terms)),
	}
	for _, in := range s.segments {
		if len(in.lists) > 0 {
			passing, some, err := filter.of(in.Segment(), in.columns, in.column)
			if err != nil {
				return err
			}
			if some {
				walk.filter, walk.postings, walk.documents = passing, walk.postings[:0], in.Segment().Count()
				if err := s.prepare(&walk, in); err != nil {
					return err
				}
				if err := walk.run(ctx); err != nil {
					return err
				}
			}
		}
		walk.base += in.Segment().Count()
	}
	return s.makeHits(best.candidates)
}

// prepare gives a walk the lists and columns of a segment.
func (s *search) prepare(walk *maxScore, in *searchedSegment) (err error) {
	if s.format != formerFormat {
		if walk.orders, err = in.column.ordersOf(in.Segment()); err != nil {
			return err
		}
		if walk.lengths, err = in.column.lengthsOf(in.Segment()); err != nil {
			return err
		}
	}
	for _, l := range in.lists {
		p, err := s.newPosting(in, l, walk.weights, walk.lengths)
		if err != nil {
			return err
		}
		walk.postings = append(walk.postings, p)
	}
	return nil
}

// open opens the lists of all terms, and counts them.
func (s *search) open() error {
	for _, in := range s.segments {
		parts, err := in.Segment().Dictionary(partField)
		if err != nil {
			return err
		}
		docs, err := parts.PostingsList(in.at.marker(s.query.Part), in.Deleted(), nil)
		if err != nil {
			return err
		}
		if docs.Count() == 0 {
			continue
		}
		s.found.Statistics.Docs += int(docs.Count())
		if err := s.openField(in, textOf(s.query.Part), false); err != nil {
			return err
		}
		if s.query.Part != recallindex.Sources {
			continue
		}
		if err := s.openField(in, labelField, true); err != nil {
			return err
		}
	}
	return nil
}

// openField opens the lists of one field of a segment.
func (s *search) openField(in *searchedSegment, field string, label bool) error {
	dict, err := in.Segment().Dictionary(field)
	if err != nil || dict.Cardinality() == 0 {
		return err
	}
	var repeated segment.TermDictionary
	if !label && s.format != formerFormat {
		if repeated, err = in.Segment().Dictionary(repeatedOf(s.query.Part)); err != nil {
			return err
		}
	}
	for term, text := range in.terms {
		if absent, err := in.lacks(s.query.Terms[term].Text, field, dict); absent || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		l := list{term: term, label: label}
		if l.postings, err = dict.PostingsList([]byte(text), in.Deleted(), nil); err != nil {
			return err
		}
		n := int(l.postings.Count())
		if n == 0 {
			continue
		}
		if repeated != nil && repeated.Cardinality() > 0 {
			if l.repeated, err = repeated.PostingsList([]byte(text), in.Deleted(), nil); err != nil {
				return err
			}
			if l.repeated.Count() == 0 {
				l.repeated = nil
			}
		}
		in.lists = append(in.lists, l)
		if f := &s.found.Statistics.Frequencies[term]; label {
			f.Label += n
		} else {
			f.Text += n
		}
	}
	return nil
}

// lacks reports whether a term is a stem of a language of which the project has none in a field of the segment: a
// question asks for stems of several languages, and most projects have one.
func (in *searchedSegment) lacks(term, field string, dict segment.TermDictionary) (bool, error) {
	marker, is := recall.LanguageMarker(term)
	if !is || marker == term {
		return false, nil
	}
	return in.column.lacks(languageKey{field, in.at.prefix + marker}, dict)
}

// newPosting makes the iterator of a list.
func (s *search) newPosting(in *searchedSegment, l list, weights recall.Weights, lengths *lengths) (*posting, error) {
	if l.label {
		p := &posting{term: l.term, label: true, weight: weights.Label(l.term), documents: l.postings.Count()}
		p.docs.docs, p.bound = l.postings.Iterator(false, false, false, nil), p.weight
		return p, nil
	}
	documents := l.postings.Count()
	open := func() *posting {
		p := &posting{term: l.term, lengths: lengths, weight: weights.Text(l.term), documents: documents}
		p.docs.docs = l.postings.Iterator(lengths == nil, lengths == nil, false, nil)
		if l.repeated != nil {
			p.repeated.docs = l.repeated.Iterator(true, false, false, nil)
		}
		return p
	}
	found, err := in.column.impactsOf(textOf(s.query.Part), in.terms[l.term], documents, lengths, open)
	p := open()
	p.bound, p.repeats = p.weight*found.greatest, found.repeated
	return p, err
}

// makeHits makes hits of the candidates.
func (s *search) makeHits(candidates []candidate) error {
	ends := make([]uint64, len(s.segments))
	end := uint64(0)
	for i, in := range s.segments {
		end += in.Segment().Count()
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
		if hit.Key, err = s.segments[i].at.key(id); err != nil {
			return err
		}
		traits, err := s.segments[i].column.traitsOf(in)
		if err != nil {
			return err
		}
		if hit.Traits, err = parseTraits(traits.name(doc)); err != nil {
			return err
		}
		if s.query.Part == recallindex.Sources {
			stems, exact, err := s.segments[i].column.statesOf(in)
			if err != nil {
				return err
			}
			hit.States = recall.States{Stems: stems[doc], Exact: exact[doc]}
		}
		s.found.Hits = append(s.found.Hits, hit)
	}
	return nil
}
