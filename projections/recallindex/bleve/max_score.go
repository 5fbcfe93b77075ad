package bleve

import (
	"context"
	"math"
	"slices"

	"github.com/annals-project/annals/domain/recall"
)

// maxScore scores the postings of a query in one segment, all lists at once in the order of
// documents, and keeps the best. See doc.go.
type maxScore struct {
	postings []*posting
	// sums[i] is the most that postings 0 to i add to a score together.
	sums   []float64
	filter segmentFilter
	// orders are those of the documents of the segment, nil in the former format.
	orders []uint64
	// base is the number of the segment's first document in the snapshot.
	base    uint64
	weights recall.Weights
	top     *topK
	counts  []recall.Count
}

// slack covers rounding: sums and scores add in different orders.
const slack = 1 + 1e-9

// run scores the whole segment.
func (w *maxScore) run(ctx context.Context) error {
	slices.SortStableFunc(w.postings, func(a, b *posting) int {
		switch {
		case a.bound < b.bound:
			return -1
		case a.bound > b.bound:
			return 1
		}
		return 0
	})
	sum := 0.0
	w.sums = w.sums[:0]
	for _, p := range w.postings {
		sum += p.bound * slack
		w.sums = append(w.sums, sum)
		if err := p.begin(); err != nil {
			return err
		}
	}
	// Lists before first are non-essential: they are only looked up.
	first := 0
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		bound := w.top.bound()
		for first < len(w.postings) && w.sums[first] <= bound {
			first++
		}
		doc := uint64(math.MaxUint64)
		for _, p := range w.postings[first:] {
			doc = min(doc, p.docs.at)
		}
		if doc == math.MaxUint64 {
			return nil
		}
		if w.filter.passes(doc) {
			if err := w.score(doc, first, bound); err != nil {
				return err
			}
		}
		for _, p := range w.postings[first:] {
			if p.docs.at == doc {
				if err := p.docs.next(); err != nil {
					return err
				}
			}
		}
	}
}

// score scores a document, and stops as soon as it cannot reach the bound. Since sums exceed what they
// bound by the slack, one that could only reach it is not skipped.
func (w *maxScore) score(doc uint64, first int, bound float64) error {
	clear(w.counts)
	length, reached := 0, 0.0
	take := func(p *posting) (err error) {
		if p.label {
			w.counts[p.term].Label = 1
			reached += p.weight * slack
			return nil
		}
		var n int
		n, length, err = p.count()
		w.counts[p.term].Text = n
		if first > 0 {
			reached += p.weight * recall.Impact(n, length) * slack
		}
		return err
	}
	for _, p := range w.postings[first:] {
		if p.docs.at == doc {
			if err := take(p); err != nil {
				return err
			}
		}
	}
	for i := first - 1; i >= 0; i-- {
		if reached+w.sums[i] <= bound {
			return nil
		}
		p := w.postings[i]
		if err := p.docs.seek(doc); err != nil {
			return err
		}
		if p.docs.at == doc {
			if err := take(p); err != nil {
				return err
			}
		}
	}
	score := w.weights.Score(w.counts, length)
	if score < bound {
		return nil
	}
	c := candidate{id: w.base + doc, score: score, counts: w.counts, length: length}
	if w.orders != nil {
		c.order = w.orders[doc]
	}
	w.top.add(c)
	return nil
}
