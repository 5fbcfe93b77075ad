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
	// documents is how many documents the segment has, base the number of the first in the snapshot.
	documents, base uint64
	// lengths are those of the texts of the segment, nil in the former format. window is for its sums.
	lengths *lengths
	window  *window
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
	first := w.essential(0)
	from := uint64(0)
	for ; from < w.documents && w.isDense(first); from += windowSize {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.runWindow(from); err != nil {
			return err
		}
		first = w.essential(first)
	}
	for _, p := range w.postings[first:] {
		if err := p.docs.seek(from); err != nil {
			return err
		}
	}
	return w.iterate(ctx, first)
}

// essential returns the first list that with those before it can reach the bound. Lists before it are
// non-essential: they are only looked up. It only rises.
func (w *maxScore) essential(first int) int {
	for bound := w.top.bound(); first < len(w.postings) && w.sums[first] <= bound; {
		first++
	}
	return first
}

// iterate scores the documents of the lists from first on, from where these are.
func (w *maxScore) iterate(ctx context.Context, first int) error {
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		first = w.essential(first)
		doc := uint64(math.MaxUint64)
		for _, p := range w.postings[first:] {
			doc = min(doc, p.docs.at)
		}
		if doc == math.MaxUint64 {
			return nil
		}
		if w.filter.passes(doc) {
			if err := w.score(doc, first, w.top.bound()); err != nil {
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
	w.keep(doc, length)
	return nil
}

// keep adds a document, whose text has the counts, to the best if it is one of them.
func (w *maxScore) keep(doc uint64, length int) {
	score := w.weights.Score(w.counts, length)
	if score < w.top.bound() {
		return
	}
	c := candidate{id: w.base + doc, score: score, counts: w.counts, length: length}
	if w.orders != nil {
		c.order = w.orders[doc]
	}
	w.top.add(c)
}
