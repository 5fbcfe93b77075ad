package bleve

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sort"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/blevesearch/bleve/v2/index/scorch"
	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// docList is the documents of a term in a field of a segment, deleted ones too, in order: their numbers, or if they
// are many, a bit for each document of the segment. It is immutable, and refers to no memory of the segment.
type docList struct {
	numbers []uint32
	bits    []uint64
	count   int
	// frequencies are how often each document contains the term, in the order of numbers. They are nil unless the list
	// was read with them.
	frequencies []uint32
	// live is how many of the documents were left after so many deletions.
	live atomic.Pointer[liveCount]
}

type liveCount struct{ deletions, documents int }

// bitsFrom is from which share of the documents of a segment on, as one in so many, a list has bits: these are smaller
// then.
const bitsFrom = 32

// listReader reads lists, one after the other into the same memory.
type listReader struct {
	postings segment.PostingsList
	docs     segment.PostingsIterator
}

// read reads the list of a term of a segment with a number of documents; nil if it is empty.
func (r *listReader) read(dict segment.TermDictionary, term []byte, documents uint64) (_ *docList, err error) {
	if r.postings, err = dict.PostingsList(term, nil, r.postings); err != nil {
		return nil, err
	}
	r.docs = r.postings.Iterator(false, false, false, r.docs)
	docs, is := r.docs.(segment.OptimizablePostingsIterator)
	if !is {
		return nil, errors.New("a list of documents has no bits")
	}
	if doc, one := docs.DocNum1Hit(); one {
		return newList([]uint32{uint32(doc)}, documents)
	}
	from := docs.ActualBitmap()
	if from == nil || from.IsEmpty() {
		return nil, nil //nolint:nilnil // the list is empty
	}
	if n := from.GetCardinality(); n*bitsFrom > documents {
		if uint64(from.Maximum()) >= documents {
			return nil, fmt.Errorf("a list names document %d of %d", from.Maximum(), documents)
		}
		return &docList{bits: toBits(from, documents), count: int(n)}, nil
	}
	return newList(from.ToArray(), documents)
}

// readRepeats reads a list with its frequencies.
func (r *listReader) readRepeats(dict segment.TermDictionary, term []byte, documents uint64) (_ *docList, err error) {
	if r.postings, err = dict.PostingsList(term, nil, r.postings); err != nil {
		return nil, err
	}
	if r.postings.Count() == 0 {
		return nil, nil //nolint:nilnil // the list is empty
	}
	r.docs = r.postings.Iterator(true, false, false, r.docs)
	var numbers, frequencies []uint32
	for doc, err := r.docs.Next(); doc != nil || err != nil; doc, err = r.docs.Next() {
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, uint32(doc.Number()))
		frequencies = append(frequencies, uint32(doc.Frequency()))
	}
	l, err := newList(numbers, documents)
	if l != nil {
		l.frequencies = frequencies
	}
	return l, err
}

func newList(numbers []uint32, documents uint64) (*docList, error) {
	if len(numbers) == 0 {
		return nil, nil //nolint:nilnil // the list is empty
	}
	if last := numbers[len(numbers)-1]; uint64(last) >= documents {
		return nil, fmt.Errorf("a list names document %d of %d", last, documents)
	}
	return &docList{numbers: numbers, count: len(numbers)}, nil
}

func toBits(of *roaring.Bitmap, documents uint64) []uint64 {
	to := make([]uint64, (documents+63)/64)
	of.WriteDenseTo(to)
	return to
}

// listBytes is about how much memory a list takes beyond its documents.
const listBytes = 100

// size is about how much memory a list takes.
func (l *docList) size() int {
	if l == nil {
		return 0
	}
	size := listBytes + 4*len(l.numbers) + 8*len(l.bits)
	if l.frequencies != nil {
		size += listBytes + 4*len(l.frequencies)
	}
	return size
}

// liveIn returns how many documents of the list are not deleted.
func (l *docList) liveIn(deleted *deletions) int {
	if l == nil {
		return 0
	}
	if deleted == nil {
		return l.count
	}
	if known := l.live.Load(); known != nil && known.deletions == deleted.count {
		return known.documents
	}
	n := l.count
	for i, word := range l.bits {
		n -= bits.OnesCount64(word & deleted.bits[i])
	}
	for _, doc := range l.numbers {
		n -= int(deleted.bits[doc/64] >> (doc % 64) & 1)
	}
	l.live.Store(&liveCount{deleted.count, n})
	return n
}

// next returns the first document of the bits from one on, or math.MaxUint64.
func (l *docList) next(doc uint64) uint64 {
	i := doc / 64
	if i >= uint64(len(l.bits)) {
		return math.MaxUint64
	}
	word := l.bits[i] >> (doc % 64) << (doc % 64)
	for word == 0 {
		if i++; i == uint64(len(l.bits)) {
			return math.MaxUint64
		}
		word = l.bits[i]
	}
	return i*64 + uint64(bits.TrailingZeros64(word))
}

// cursor goes through a list. at is the current document, math.MaxUint64 at the end.
type cursor struct {
	list *docList // nil for no documents
	at   uint64
	// place is that of the current document in the numbers of the list.
	place int
}

// newCursor returns a cursor on the first document of a list from one on.
func newCursor(list *docList, from uint64) cursor {
	c := cursor{list: list, at: math.MaxUint64}
	if list != nil {
		c.move(from)
	}
	return c
}

// seek moves to a document, or to the next one after it.
func (c *cursor) seek(doc uint64) {
	if c.at < doc {
		c.move(doc)
	}
}

func (c *cursor) next() {
	if c.list.bits != nil {
		c.at = c.list.next(c.at + 1)
		return
	}
	c.place++
	c.set()
}

func (c *cursor) set() {
	c.at = math.MaxUint64
	if c.place < len(c.list.numbers) {
		c.at = uint64(c.list.numbers[c.place])
	}
}

func (c *cursor) move(doc uint64) {
	if c.list.bits != nil {
		c.at = c.list.next(doc)
		return
	}
	numbers := c.list.numbers[c.place:]
	far := 1
	for far < len(numbers) && uint64(numbers[far]) < doc {
		far *= 2
	}
	near := far / 2
	end := min(far+1, len(numbers))
	c.place += near + sort.Search(end-near, func(i int) bool { return uint64(numbers[near+i]) >= doc })
	c.set()
}

// has reports whether the list has a document. Documents are asked for in order.
func (c *cursor) has(doc uint64) bool {
	if c.list == nil {
		return false
	}
	if c.list.bits != nil {
		return c.list.bits[doc/64]>>(doc%64)&1 != 0
	}
	c.seek(doc)
	return c.at == doc
}

// deletions are the deleted documents of a segment. There only come more, so that their count names them.
type deletions struct {
	count int
	bits  []uint64
}

// deletionsOf returns the deleted documents of the segment, nil if there are none.
func (c *column) deletionsOf(s *scorch.SegmentSnapshot) *deletions {
	if s.Deleted() == nil || s.Deleted().IsEmpty() {
		return nil
	}
	n := int(s.Deleted().GetCardinality())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deleted == nil || c.deleted.count != n {
		c.deleted = &deletions{n, toBits(s.Deleted(), s.Segment().Count())}
	}
	return c.deleted
}
