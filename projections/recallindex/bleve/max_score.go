package bleve

import (
	"cmp"
	"context"
	"math"
	"math/bits"
	"slices"
	"sync"

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

// posting goes through the documents of one term in one field of one segment.
type posting struct {
	docs cursor
	// repeated are the documents that contain the term several times; none in a label.
	repeated cursor
	term     int
	// label reports that the field is the label, which has no frequencies.
	label bool
	// weight is the weight of the term in the field, bound the most that it adds to the score of a
	// document. repeats is by how much more a repeated term adds at most than one that occurs once.
	weight, bound, repeats float64
	// added and addedRepeated are the places in the numbers of both lists up to which windows have them.
	added, addedRepeated int
}

// newPosting returns a posting of a list from a document on.
func newPosting(l list, weights recall.Weights, from uint64) posting {
	if l.label {
		p := posting{term: l.term, label: true, weight: weights.Label(l.term), docs: newCursor(l.docs, from)}
		p.bound = p.weight
		return p
	}
	p := posting{
		term: l.term, weight: weights.Text(l.term), repeats: l.impacts.repeated,
		docs: newCursor(l.docs, from), repeated: newCursor(l.repeated, from),
	}
	p.bound = p.weight * l.impacts.greatest
	p.added, p.addedRepeated = p.docs.place, p.repeated.place
	return p
}

// count returns how often a document of the list contains the term. Documents are asked for in order.
func (p *posting) count(doc uint64) int {
	if !p.repeated.has(doc) {
		return 1
	}
	return int(p.repeated.list.frequencies[p.repeated.place])
}

const (
	// windowSize is how many documents have their sums at a time. The sums of a window stay in the cache of
	// a core.
	windowSize = 1 << 14
	// denseShare is the least share of a segment's documents, as one in so many, that the essential lists hold
	// together where windows cost less than iterators.
	denseShare = 64
	// sumSlack covers the rounding of the sums, of which each adds a few hundred numbers of 24 bits.
	sumSlack = 1 + 1e-4
)

// window holds what the terms of each of some neighbouring documents can add to its score at most: the weights
// of those in its text, to be multiplied by the impact of one occurrence, and the weights of those in its label.
type window struct {
	texts, labels [windowSize]float32
	// considered are the documents that may have a sum, touched those that have one.
	considered, touched [windowSize / 64]uint64
}

// windowPool keeps windows for later searches.
var windowPool = sync.Pool{New: func() any { return new(window) }}

// begin begins the window of the documents from one up to another, with those that are considered.
func (w *window) begin(from, end uint64, filter *segmentFilter, first bool) {
	clear(w.texts[:])
	clear(w.labels[:])
	clear(w.touched[:])
	for i := range w.considered {
		w.considered[i] = math.MaxUint64
	}
	if filter.deleted != nil {
		for i, deleted := range filter.deleted[from/64 : (end+63)/64] {
			w.considered[i] = ^deleted
		}
	}
	if !first {
		return
	}
	filter.keep(w.considered[:], from, end)
}

// add adds a weight to the sums of the documents of a list, and returns the place of the next one in its numbers.
func (w *window) add(sums *[windowSize]float32, l *docList, place int, weight float32, from, end uint64) int {
	if l.bits != nil {
		for i, word := range l.bits[from/64 : (end+63)/64] {
			word &= w.considered[i%len(w.considered)]
			w.touched[i%len(w.touched)] |= word
			for ; word != 0; word &= word - 1 {
				sums[(i*64+bits.TrailingZeros64(word))%windowSize] += weight
			}
		}
		return 0
	}
	for ; place < len(l.numbers) && uint64(l.numbers[place]) < end; place++ {
		doc := l.numbers[place] % windowSize
		bit := uint64(1) << (doc % 64) & w.considered[doc/64]
		if bit != 0 {
			w.touched[doc/64] |= bit
			sums[doc] += weight
		}
	}
	return place
}

// addTo adds what the posting can add to the documents of a window.
func (p *posting) addTo(w *window, from, end uint64) {
	sums := &w.texts
	if p.label {
		sums = &w.labels
	}
	p.added = w.add(sums, p.docs.list, p.added, rounded(p.weight), from, end)
	if p.repeated.list != nil {
		p.addedRepeated = w.add(sums, p.repeated.list, p.addedRepeated, rounded(p.weight*(p.repeats-1)), from, end)
	}
}

// rounded rounds a weight up for the sums.
func rounded(weight float64) float32 {
	return max(float32(weight*sumSlack), math.SmallestNonzeroFloat32)
}

// documents returns how many documents lists have together.
func documents(postings []*posting) (n int) {
	for _, p := range postings {
		n += p.docs.list.count
	}
	return n
}

// isDense reports whether windows cost less than iterators for the lists from first on.
func (w *maxScore) isDense(first int) bool {
	return documents(w.postings[first:])*denseShare > int(w.documents)
}

// runWindow scores the documents of the window that begins at a document, up to another: it adds up what all lists can
// add to each, and scores those that can reach the bound. With filters, the filter comes before the sums.
func (w *maxScore) runWindow(from, end uint64, filters bool) {
	sums := w.window
	sums.begin(from, end, &w.filter, filters)
	for _, p := range w.postings {
		p.addTo(sums, from, end)
	}
	bound := w.bound()
	need := float32(bound / sumSlack)
	for i, word := range sums.touched {
		for ; word != 0; word &= word - 1 {
			at := i*64 + bits.TrailingZeros64(word)
			text, label := sums.texts[at], sums.labels[at]
			if text*w.lengths.mostImpact+label < need {
				continue
			}
			doc := from + uint64(at)
			if text*w.lengths.impact(doc)+label < need || !filters && !w.filter.passes(doc) {
				continue
			}
			w.scoreIn(doc)
			if now := w.bound(); now != bound {
				bound, need = now, float32(now/sumSlack)
			}
		}
	}
}

// scoreIn scores a document of a window.
func (w *maxScore) scoreIn(doc uint64) {
	clear(w.counts)
	length := 0
	for _, p := range w.postings {
		switch {
		case !p.docs.has(doc):
		case p.label:
			w.counts[p.term].Label = 1
		default:
			w.counts[p.term].Text = p.count(doc)
			length = w.lengths.number(doc)
		}
	}
	w.keep(doc, length)
}

// impacts is what a term adds in the documents of a segment, in parts of its weight.
type impacts struct {
	// greatest is the greatest impact. repeated is the greatest ratio of an impact to that of one occurrence in
	// the same document.
	greatest, repeated float64
}

// impactsOf returns the impacts of a term, and those of it where it is repeated. lengths are those of the segment, of
// which first are the first documents by their length.
func impactsOf(docs, repeated *docList, lengths *lengths, first []uint32) (found impacts) {
	if docs == nil {
		return found
	}
	shortest := docs.shortest(lengths, first)
	found.greatest = recall.Impact(1, shortest)
	if repeated == nil {
		return found
	}
	for i, doc := range repeated.numbers {
		length := lengths.number(uint64(doc))
		impact := recall.Impact(int(repeated.frequencies[i]), length)
		found.greatest = max(found.greatest, impact)
		found.repeated = max(found.repeated, impact/recall.Impact(1, length))
	}
	return found
}

// shortest returns the length of the shortest document of the list. Of a list with bits it is most often among the
// first by their length, so that not all are looked at.
func (l *docList) shortest(lengths *lengths, first []uint32) int {
	shortest := math.MaxInt
	for _, doc := range l.numbers {
		shortest = min(shortest, lengths.number(uint64(doc)))
	}
	if l.bits == nil {
		return shortest
	}
	for _, doc := range first {
		if l.bits[doc/64]>>(doc%64)&1 != 0 {
			return lengths.number(uint64(doc))
		}
	}
	for i, word := range l.bits {
		for ; word != 0; word &= word - 1 {
			shortest = min(shortest, lengths.number(uint64(i*64+bits.TrailingZeros64(word))))
		}
	}
	return shortest
}
