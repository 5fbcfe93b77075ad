package bleve

import (
	"math"
	"math/bits"
	"sync"
)

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
