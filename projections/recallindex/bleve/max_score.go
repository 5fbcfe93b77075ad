package bleve

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/annals-project/annals/domain/recall"
)

// maxScore scores the documents of spans, the lists of a query in the segment of one all at once in the order of
// documents, and keeps the best. See doc.go.
type maxScore struct {
	weights recall.Weights
	top     *topK
	// shared is the bound of all that score for the query, nil if nobody else does.
	shared *sharedBound
	window *window
	counts []recall.Count

	// The rest is of the segment of a span. postings are in store.
	store    []posting
	postings []*posting
	// sums[i] is the most that postings 0 to i add to a score together.
	sums   []float64
	filter segmentFilter
	// orders and lengths are those of its documents.
	orders  []uint64
	lengths *lengths
	// documents is how many documents the segment has, base the number of the first in the snapshot.
	documents, base uint64
}

// slack covers rounding: sums and scores add in different orders.
const slack = 1 + 1e-9

// run scores the documents of a span.
func (w *maxScore) run(ctx context.Context, of span) error {
	w.begin(of)
	first, from := w.essential(0), of.from
	filters := w.filter.isWorthFirst(documents(w.postings), w.documents)
	for ; from < of.to && w.isDense(first); from += windowSize {
		if err := ctx.Err(); err != nil {
			return err
		}
		w.runWindow(from, min(from+windowSize, of.to), filters)
		first = w.essential(first)
	}
	for _, p := range w.postings[first:] {
		p.docs.seek(from)
	}
	return w.iterate(ctx, first, of.to)
}

// begin takes the lists and columns of the segment of a span.
func (w *maxScore) begin(of span) {
	in := of.in
	w.filter, w.orders, w.lengths = in.filter, in.orders, in.lengths
	w.documents, w.base = in.Segment().Count(), in.base
	w.store, w.postings, w.sums = w.store[:0], w.postings[:0], w.sums[:0]
	for _, l := range in.lists {
		w.store = append(w.store, newPosting(l, w.weights, of.from))
	}
	for i := range w.store {
		w.postings = append(w.postings, &w.store[i])
	}
	slices.SortStableFunc(w.postings, func(a, b *posting) int { return cmp.Compare(a.bound, b.bound) })
	sum := 0.0
	for _, p := range w.postings {
		sum += p.bound * slack
		w.sums = append(w.sums, sum)
	}
}

// essential returns the first list that with those before it can reach the bound. Lists before it are
// non-essential: they are only looked up. It only rises.
func (w *maxScore) essential(first int) int {
	for bound := w.bound(); first < len(w.postings) && w.sums[first] <= bound; {
		first++
	}
	return first
}

// iterate scores the documents of the lists from first on, from where these are up to an end.
func (w *maxScore) iterate(ctx context.Context, first int, end uint64) error {
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		first = w.essential(first)
		doc := uint64(math.MaxUint64)
		for _, p := range w.postings[first:] {
			doc = min(doc, p.docs.at)
		}
		if doc >= end {
			return nil
		}
		if w.filter.passes(doc) {
			w.score(doc, first)
		}
		for _, p := range w.postings[first:] {
			if p.docs.at == doc {
				p.docs.next()
			}
		}
	}
}

// score scores a document, and stops as soon as it cannot reach the bound. Since sums exceed what they
// bound by the slack, one that could only reach it is not skipped.
func (w *maxScore) score(doc uint64, first int) {
	clear(w.counts)
	length, reached, bound := 0, 0.0, w.bound()
	take := func(p *posting) {
		if p.label {
			w.counts[p.term].Label = 1
			reached += p.weight * slack
			return
		}
		n := p.count(doc)
		length = w.lengths.number(doc)
		w.counts[p.term].Text = n
		if first > 0 {
			reached += p.weight * recall.Impact(n, length) * slack
		}
	}
	for _, p := range w.postings[first:] {
		if p.docs.at == doc {
			take(p)
		}
	}
	for i := first - 1; i >= 0; i-- {
		if reached+w.sums[i] <= bound {
			return
		}
		if p := w.postings[i]; p.docs.has(doc) {
			take(p)
		}
	}
	w.keep(doc, length)
}

// bound is the score that a document must reach.
func (w *maxScore) bound() float64 { return max(w.top.bound(), w.shared.bound()) }

// keep adds a document, whose text has the counts, to the best if it is one of them.
func (w *maxScore) keep(doc uint64, length int) {
	score := w.weights.Score(w.counts, length)
	if score < w.bound() {
		return
	}
	c := candidate{id: w.base + doc, score: score, order: w.orders[doc], counts: w.counts, length: length}
	if w.top.add(c) {
		w.shared.raise(w.top.bound())
	}
}
