package bleve

import (
	"context"
	"fmt"

	"github.com/blevesearch/bleve/v2/index/scorch"
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
	if x.used().analysis != q.Analysis {
		return found, recallindex.ErrOtherAnalysis
	}
	if err := x.checkComplete(q.Project); err != nil {
		return found, err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range q.Parts() {
		group.Go(func() error {
			return panics.Call(ctx, x.options.Log, "search of recall index panicked", func() (err error) {
				*found.Of(part.Part), err = x.searchPart(ctx, part)
				return err
			}, "part", part.Part)
		})
	}
	if err := group.Wait(); err != nil {
		return recallindex.Found{}, fmt.Errorf("search recall index: %w", err)
	}
	return found, nil
}

func (x *Index) searchPart(ctx context.Context, q recallindex.PartQuery) (recallindex.Result, error) {
	s := &search{query: q}
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
	s.activity, s.recoverPanics = &x.activity, x.recoverPanics
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
	query recallindex.PartQuery
	// activity counts what runs on the index, recoverPanics is for another goroutine.
	activity      *activity
	recoverPanics func(func() error) error
	segments      []*searchedSegment
	// documents are those of the segments.
	documents uint64
	languages languages
	found     recallindex.Result
}

// searchedSegment is one segment with the terms and lists of the query.
type searchedSegment struct {
	*scorch.SegmentSnapshot
	at partition
	// terms and languages are those of the query in the partition.
	terms, languages []string
	columns          *columns
	column           *column
	deleted          *deletions
	// base is the number of its first document in the snapshot.
	base  uint64
	lists []list
	// What scores the documents reads these.
	filter  segmentFilter
	orders  []uint64
	lengths *lengths
}

// list is the documents of a term in a field of a segment.
type list struct {
	*heldTerm
	docs  *docList
	term  int
	label bool
}

// add adds the segments of a partition.
func (s *search) add(at partition, h *handle, segments []*scorch.SegmentSnapshot) {
	if s.languages.of == nil {
		s.languages = languagesOf(s.query.Terms)
	}
	terms, prefixes := make([]string, len(s.query.Terms)), make([]string, len(s.languages.markers))
	for i, t := range s.query.Terms {
		terms[i] = at.prefix + t.Text
	}
	for i, marker := range s.languages.markers {
		prefixes[i] = at.prefix + marker
	}
	for i, column := range h.columns.of(segments) {
		s.segments = append(s.segments, &searchedSegment{
			SegmentSnapshot: segments[i], at: at, terms: terms, languages: prefixes, columns: &h.columns, column: column,
			deleted: column.deletionsOf(segments[i]), base: s.documents,
		})
		s.documents += segments[i].Segment().Count()
	}
}

func (s *search) run(ctx context.Context) error {
	s.found.Statistics.Frequencies = make([]recall.Count, len(s.query.Terms))
	if err := s.open(); err != nil || s.found.Statistics.Docs == 0 {
		return err
	}
	if err := s.prepare(); err != nil {
		return err
	}
	best, err := s.walk(ctx, s.found.Statistics.Weights(s.query.Terms).Shared(s.query.Terms))
	if err != nil {
		return err
	}
	defer best.release()
	return s.makeHits(best.candidates)
}

// prepare reads the columns of the segments. One without documents that pass the filter loses its lists.
func (s *search) prepare() (err error) {
	filter := newFilter(s.query.Audiences, s.query.From, s.query.To)
	for _, in := range s.segments {
		if len(in.lists) == 0 {
			continue
		}
		some := false
		if in.filter, some, err = filter.of(in); err != nil {
			return err
		}
		if !some {
			in.lists = nil
			continue
		}
		if in.orders, err = in.column.ordersOf(in.Segment()); err != nil {
			return err
		}
		if in.lengths, err = in.column.lengthsOf(in.Segment()); err != nil {
			return err
		}
	}
	return nil
}

// open opens the lists of all terms, and counts them.
func (s *search) open() error {
	frequencies := s.found.Statistics.Frequencies
	for _, in := range s.segments {
		reader := s.newReader(in, s.query.Part)
		docs, err := reader.ofPart()
		if err != nil {
			return err
		}
		n := docs.liveIn(in.deleted)
		if n == 0 {
			continue
		}
		s.found.Statistics.Docs += n
		terms, err := reader.terms(in.terms, in.languages, s.languages)
		if err != nil {
			return err
		}
		for i, t := range terms {
			if t == nil {
				continue
			}
			if n := t.texts.liveIn(in.deleted); n > 0 {
				frequencies[i].Text += n
				in.lists = append(in.lists, list{heldTerm: t, docs: t.texts, term: i})
			}
			if n := t.labels.liveIn(in.deleted); n > 0 {
				frequencies[i].Label += n
				in.lists = append(in.lists, list{heldTerm: t, docs: t.labels, term: i, label: true})
			}
		}
	}
	return nil
}
