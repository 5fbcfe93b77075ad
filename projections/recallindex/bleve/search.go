package bleve

import (
	"context"
	"errors"
	"fmt"

	index "github.com/blevesearch/bleve_index_api"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// Search implements recallindex.Index. It walks the postings of the terms itself, all at once in the order of documents,
// and scores with the very function that ranks: what it cuts off would have been ranked below what it keeps.
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
		err = search(ctx, reader, q, &found)
		return errors.Join(err, reader.Close())
	})
	if err != nil {
		return recallindex.Found{}, fmt.Errorf("search recall index: %w", err)
	}
	return found, nil
}

// search fills found from one snapshot of the index.
func search(ctx context.Context, reader index.IndexReader, q recallindex.Query, found *recallindex.Found) (err error) {
	docs, err := count(ctx, reader, partField, string(q.Part))
	if err != nil || docs == 0 {
		return err
	}
	found.Statistics.Docs = docs
	walk := &walk{counts: make([]recall.Count, len(q.Terms))}
	defer func() { err = errors.Join(err, walk.close()) }()
	for i, term := range q.Terms {
		n, err := walk.add(ctx, reader, term, textOf(q.Part), i, false)
		if err != nil {
			return err
		}
		found.Statistics.Frequencies[i].Text = n
		if q.Part != recallindex.Sources {
			continue
		}
		if n, err = walk.add(ctx, reader, term, labelField, i, true); err != nil {
			return err
		}
		found.Statistics.Frequencies[i].Label = n
	}
	filter, err := newFilter(ctx, reader, q)
	if err != nil {
		return err
	}
	best := &best{size: q.Size}
	weights := found.Statistics.Weights()
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		id, ok := walk.next()
		if walk.err != nil {
			return walk.err
		}
		if !ok {
			break
		}
		score := weights.Score(walk.counts, walk.length)
		if !best.takes(score) {
			continue
		}
		passes, err := filter.passes(id)
		if err != nil {
			return err
		}
		if passes {
			best.add(candidate{id: id, score: score, counts: append([]recall.Count(nil), walk.counts...), length: walk.length})
		}
	}
	found.Hits = make([]recallindex.Hit, 0, len(best.list))
	for _, c := range best.list {
		external, err := reader.ExternalID(index.NewIndexInternalID(nil, c.id))
		if err != nil {
			return err
		}
		k, err := key(external)
		if err != nil {
			return err
		}
		found.Hits = append(found.Hits, recallindex.Hit{Key: k, Counts: c.counts, Length: c.length})
	}
	return nil
}

// count is how many documents hold a term.
func count(ctx context.Context, reader index.IndexReader, field, term string) (int, error) {
	postings, err := reader.TermFieldReader(ctx, []byte(term), field, false, false, false)
	if err != nil {
		return 0, err
	}
	return int(postings.Count()), postings.Close()
}
