package bleve

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/blevesearch/bleve/v2/index/scorch"
	segment "github.com/blevesearch/scorch_segment_api/v2"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
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

// heldTerms are the terms of a part that searches read in a segment. They are kept for the next search: to find a term
// in a dictionary and to unpack its list takes longer than most searches in it.
type heldTerms struct {
	mu sync.Mutex
	// recent are the terms that were read or asked for since it was last empty, earlier those before. size is that of
	// recent; at the bound, recent becomes earlier.
	recent, earlier map[string]*heldTerm
	size            int
	// asked are hashes of terms that were read but are not held: one that is asked for again is held from then on.
	asked [askedTerms]uint16
	// lacking are what the stems of a language of a project begin with, and whether the segment has none.
	lacking map[string]bool
	// parts are the documents of the part by their marker, those of one project each.
	parts map[string]*docList
	// shortest are the first documents of the part by the length of their texts, nil until they are looked for.
	shortest []uint32
}

// heldTerm is the lists of a term in the text and the label, nil where it has no documents.
type heldTerm struct {
	// repeated are those of texts that contain the term several times.
	texts, repeated, labels *docList
	impacts                 impacts
}

// The bounds on what a segment keeps: languages and projects, and for recent and earlier terms each, bytes.
const (
	maxLanguages      = 4096
	maxParts          = 256
	heldBytes         = 1 << 17
	heldDocumentBytes = 8
	heldTermBytes     = 100 // of a term without documents
	askedTerms        = 1 << 12
)

// get returns a term if it is held. The caller holds mu.
func (h *heldTerms) get(term string, documents uint64) *heldTerm {
	if t := h.recent[term]; t != nil {
		return t
	}
	t := h.earlier[term]
	if t != nil {
		h.put(term, t, documents)
	}
	return t
}

// put holds a term of a segment with a number of documents. The caller holds mu.
func (h *heldTerms) put(term string, t *heldTerm, documents uint64) {
	if h.recent == nil || h.size > heldBytes+heldDocumentBytes*int(documents) {
		h.recent, h.earlier, h.size = make(map[string]*heldTerm), h.recent, 0
	}
	if h.recent[term] == nil {
		h.recent[term] = t
		h.size += heldTermBytes + len(term) + t.texts.size() + t.repeated.size() + t.labels.size()
	}
}

// isAskedAgain reports whether a term was asked for lately, and notes it. The caller holds mu.
func (h *heldTerms) isAskedAgain(term string) bool {
	hash := maphash.String(seed, term)
	at, mark := &h.asked[hash%askedTerms], uint16(hash>>48)
	if *at == mark {
		return true
	}
	*at = mark
	return false
}

// seed is of the hashes of this process.
var seed = maphash.MakeSeed()

// languages are the languages of the stems of a question, which asks for those of several, while most projects have
// one.
type languages struct {
	// markers are what their stems begin with. of are the languages of the terms by place in markers, -1 for none.
	markers []string
	of      []int
}

func languagesOf(terms []recall.Term) languages {
	l := languages{of: make([]int, len(terms))}
	for i, t := range terms {
		l.of[i] = -1
		if marker, is := recall.LanguageMarker(t.Text); is && marker != t.Text {
			if l.of[i] = slices.Index(l.markers, marker); l.of[i] < 0 {
				l.of[i] = len(l.markers)
				l.markers = append(l.markers, marker)
			}
		}
	}
	return l
}

// termReader reads terms of a part in one segment.
type termReader struct {
	in   *searchedSegment
	part recallindex.Part
	held *heldTerms
	// documents is how many the segment has.
	documents uint64
	// The rest is opened when a term is not held.
	opened                bool
	text, repeated, label segment.TermDictionary
	lengths               *lengths
	lists                 listReader
	key                   []byte
}

func (s *search) newReader(in *searchedSegment, part recallindex.Part) *termReader {
	return &termReader{in: in, part: part, held: in.column.heldOf(part), documents: in.Segment().Count()}
}

func (r *termReader) open() (err error) {
	if r.opened {
		return nil
	}
	r.opened = true
	s := r.in.Segment()
	if r.text, err = s.Dictionary(textOf(r.part)); err != nil {
		return err
	}
	if r.part == recallindex.Sources {
		if r.label, err = s.Dictionary(labelField); err != nil {
			return err
		}
	}
	if r.repeated, err = s.Dictionary(repeatedOf(r.part)); err != nil {
		return err
	}
	r.lengths, err = r.in.column.lengthsOf(s)
	return err
}

// shortestFor returns the first documents of the part by the length of their texts, for a list that may be compared
// with them: one with bits. In a segment that several projects share the part has others than those of the project, and
// lists are short.
func (r *termReader) shortestFor(list *docList) ([]uint32, error) {
	if list.bits == nil || r.in.at.prefix != "" {
		return nil, nil
	}
	r.held.mu.Lock()
	known := r.held.shortest
	r.held.mu.Unlock()
	if known != nil {
		return known, nil
	}
	part, err := r.ofPart()
	if err != nil {
		return nil, err
	}
	found := r.lengths.shortest(newCursor(part, 0))
	r.held.mu.Lock()
	r.held.shortest = found
	r.held.mu.Unlock()
	return found, nil
}

// terms returns the terms of the segment, nil for those in a language that it lacks.
func (r *termReader) terms(terms, prefixes []string, of languages) ([]*heldTerm, error) {
	lacking, err := r.lacking(prefixes)
	if err != nil {
		return nil, err
	}
	isLacking := func(term int) bool { return of.of[term] >= 0 && lacking[of.of[term]] }
	found, missing := make([]*heldTerm, len(terms)), make([]int, 0, len(terms))
	r.held.mu.Lock()
	for i, term := range terms {
		if isLacking(i) {
			continue
		}
		if found[i] = r.held.get(term, r.documents); found[i] == nil {
			missing = append(missing, i)
		}
	}
	r.held.mu.Unlock()
	if len(missing) == 0 {
		return found, nil
	}
	for _, i := range missing {
		if found[i], err = r.read(terms[i]); err != nil {
			return nil, err
		}
	}
	r.held.mu.Lock()
	defer r.held.mu.Unlock()
	for _, i := range missing {
		if r.held.isAskedAgain(terms[i]) {
			r.held.put(terms[i], found[i], r.documents)
		}
	}
	return found, nil
}

// lacking reports for languages of a project, by what their stems begin with, whether the segment has no such stems.
func (r *termReader) lacking(prefixes []string) ([]bool, error) {
	lacking, unknown := make([]bool, len(prefixes)), []int(nil)
	r.held.mu.Lock()
	for i, prefix := range prefixes {
		known := false
		if lacking[i], known = r.held.lacking[prefix]; !known {
			unknown = append(unknown, i)
		}
	}
	r.held.mu.Unlock()
	if len(unknown) == 0 {
		return lacking, nil
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	for _, i := range unknown {
		lacking[i] = true
		for _, dict := range []segment.TermDictionary{r.text, r.label} {
			if dict == nil {
				continue
			}
			first, err := dict.AutomatonIterator(nil, []byte(prefixes[i]), []byte(prefixes[i]+"\xff")).Next()
			if err != nil {
				return nil, err
			}
			lacking[i] = lacking[i] && first == nil
		}
	}
	r.held.mu.Lock()
	defer r.held.mu.Unlock()
	if r.held.lacking == nil || len(r.held.lacking) >= maxLanguages {
		r.held.lacking = make(map[string]bool)
	}
	for _, i := range unknown {
		r.held.lacking[prefixes[i]] = lacking[i]
	}
	return lacking, nil
}

// absent is a term without documents.
var absent = new(heldTerm)

// read reads a term.
func (r *termReader) read(term string) (_ *heldTerm, err error) {
	if err := r.open(); err != nil {
		return nil, err
	}
	var t heldTerm
	r.key = append(r.key[:0], term...)
	if t.texts, err = r.lists.read(r.text, r.key, r.documents); err != nil {
		return nil, err
	}
	if t.texts != nil {
		if t.repeated, err = r.lists.readRepeats(r.repeated, r.key, r.documents); err != nil {
			return nil, err
		}
		shortest, err := r.shortestFor(t.texts)
		if err != nil {
			return nil, err
		}
		t.impacts = impactsOf(t.texts, t.repeated, r.lengths, shortest)
	}
	if r.label != nil {
		if t.labels, err = r.lists.read(r.label, r.key, r.documents); err != nil {
			return nil, err
		}
	}
	if t.texts == nil && t.labels == nil {
		return absent, nil
	}
	return &t, nil
}

// ofPart returns the documents of the part.
func (r *termReader) ofPart() (*docList, error) {
	marker := r.in.at.marker(r.part)
	r.held.mu.Lock()
	found, known := r.held.parts[string(marker)]
	r.held.mu.Unlock()
	if known {
		return found, nil
	}
	parts, err := r.in.Segment().Dictionary(partField)
	if err != nil {
		return nil, err
	}
	if found, err = r.lists.read(parts, marker, r.documents); err != nil {
		return nil, err
	}
	r.held.mu.Lock()
	defer r.held.mu.Unlock()
	if r.held.parts == nil || len(r.held.parts) >= maxParts {
		r.held.parts = make(map[string]*docList)
	}
	r.held.parts[string(marker)] = found
	return found, nil
}
