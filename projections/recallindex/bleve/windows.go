package bleve

import (
	"math"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"
	segment "github.com/blevesearch/scorch_segment_api/v2"
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
}

// windowPool keeps windows for later searches.
var windowPool = sync.Pool{New: func() any { return new(window) }}

// run is a list whose weight is added to the documents of one window after the other.
type run struct {
	list   *roaring.Bitmap
	docs   roaring.ManyIntIterable // nil after the last
	read   []uint32                // from docs, not added yet
	buffer [128]uint32
	weight float32
}

// newRun makes a run of what an iterator goes through.
func newRun(docs segment.PostingsIterator, weight float64) *run {
	r := &run{weight: max(float32(weight*sumSlack), math.SmallestNonzeroFloat32), list: new(roaring.Bitmap)}
	if of, is := docs.(segment.OptimizablePostingsIterator); is {
		if list := of.ActualBitmap(); list != nil {
			r.list = list
		} else if doc, one := of.DocNum1Hit(); one {
			r.list.Add(uint32(doc))
		}
	}
	r.docs = r.list.ManyIterator()
	return r
}

// add adds the weight to the documents before end of a window, which begins at a multiple of its size.
func (r *run) add(sums *[windowSize]float32, end uint64) {
	for {
		if len(r.read) == 0 {
			if r.docs == nil {
				return
			}
			n := r.docs.NextMany(r.buffer[:])
			if n == 0 {
				r.docs = nil
				return
			}
			r.read = r.buffer[:n]
		}
		if uint64(r.read[len(r.read)-1]) < end {
			for _, doc := range r.read {
				sums[doc%windowSize] += r.weight
			}
			r.read = nil
			continue
		}
		for i, doc := range r.read {
			if uint64(doc) >= end {
				r.read = r.read[i:]
				return
			}
			sums[doc%windowSize] += r.weight
		}
	}
}

// addTo adds what the posting can add to the documents of a window.
func (p *posting) addTo(w *window, end uint64) {
	sums := &w.texts
	if p.label {
		sums = &w.labels
	}
	if p.run == nil {
		p.run = newRun(p.docs.docs, p.weight)
		if p.repeated.docs != nil {
			p.repeatedRun = newRun(p.repeated.docs, p.weight*(p.repeats-1))
		}
	}
	p.run.add(sums, end)
	if p.repeatedRun != nil {
		p.repeatedRun.add(sums, end)
	}
}

// countIn returns how often a document of a window contains the term. Documents are asked for in order.
func (p *posting) countIn(doc uint64) (int, error) {
	if !p.run.list.Contains(uint32(doc)) {
		return 0, nil
	}
	if p.repeatedRun == nil || !p.repeatedRun.list.Contains(uint32(doc)) {
		return 1, nil
	}
	err := p.repeated.seek(doc)
	return int(p.repeated.current.Frequency()), err
}

// isDense reports whether windows cost less than iterators for the lists from first on.
func (w *maxScore) isDense(first int) bool {
	if w.lengths == nil {
		return false
	}
	documents := uint64(0)
	for _, p := range w.postings[first:] {
		documents += p.documents
	}
	return documents > w.documents/denseShare
}

// runWindow scores the documents of the window that begins at a document: it adds up what all lists can add to
// each, and scores those that can reach the bound.
func (w *maxScore) runWindow(from uint64) error {
	sums, end := w.window, min(from+windowSize, w.documents)
	clear(sums.texts[:])
	clear(sums.labels[:])
	for _, p := range w.postings {
		p.addTo(sums, end)
	}
	bound := w.top.bound()
	need := float32(bound / sumSlack)
	for i := range end - from {
		text, label := sums.texts[i], sums.labels[i]
		if text*w.lengths.mostImpact+label < need || text == 0 && label == 0 {
			continue
		}
		doc := from + i
		if text*w.lengths.impact(doc)+label < need || !w.filter.passes(doc) {
			continue
		}
		if err := w.scoreIn(doc); err != nil {
			return err
		}
		if now := w.top.bound(); now != bound {
			bound, need = now, float32(now/sumSlack)
		}
	}
	return nil
}

// scoreIn scores a document of a window.
func (w *maxScore) scoreIn(doc uint64) error {
	clear(w.counts)
	length := 0
	for _, p := range w.postings {
		n, err := p.countIn(doc)
		if err != nil {
			return err
		}
		switch {
		case n == 0:
		case p.label:
			w.counts[p.term].Label = n
		default:
			w.counts[p.term].Text = n
			length = w.lengths.number(doc)
		}
	}
	w.keep(doc, length)
	return nil
}
