package bleve

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/blevesearch/bleve/v2/index/scorch"
	segment "github.com/blevesearch/scorch_segment_api/v2"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// columns hold what a query reads of a document by its number, for the segments of an index.
// Segments are immutable except for deletions, so each column is made once, from the postings, when
// it is first read. Only that of audiences changes, with the moves of data points.
type columns struct {
	// moves are audiences that override those in segments.
	moves *moves

	mu        sync.Mutex
	bySegment map[uint64]*column
}

// column belongs to one segment.
type column struct {
	mu        sync.Mutex
	audiences *audiences
	days      *values
	traits    []recall.Traits
	lengths   *lengths
	orders    []uint64
	deleted   *deletions
	// sources and memories are of the parts.
	sources, memories heldTerms
}

// heldOf returns the terms of a part.
func (c *column) heldOf(part recallindex.Part) *heldTerms {
	if part == recallindex.Memories {
		return &c.memories
	}
	return &c.sources
}

// values are the terms of a field with one term in each document: document n has names[of[n]], or
// names[0] if of is nil.
type values struct {
	names []string
	of    []uint32
}

// lengths are values that are numbers.
type lengths struct {
	numbers []int
	of      []uint32
	// impacts are those of a term that occurs once, by length; mostImpact and leastImpact are the greatest and the
	// smallest of them.
	impacts                 []float32
	mostImpact, leastImpact float32
}

// impact returns the impact of a term that occurs once in a document.
func (l *lengths) impact(doc uint64) float32 {
	if l.of == nil {
		return l.impacts[0]
	}
	return l.impacts[l.of[doc]]
}

// number returns the number of a document.
func (l *lengths) number(doc uint64) int {
	if l.of == nil {
		return l.numbers[0]
	}
	return l.numbers[l.of[doc]]
}

// maxShortest is how many of the shortest documents of a part a segment knows.
const maxShortest = 1024

// shortest returns the first documents of a list by their length, at most maxShortest.
func (l *lengths) shortest(docs cursor) []uint32 {
	of, order := make([][]uint32, len(l.numbers)), make([]int, len(l.numbers))
	for ; docs.at != math.MaxUint64; docs.next() {
		n := uint32(0)
		if l.of != nil {
			n = l.of[docs.at]
		}
		if len(of[n]) < maxShortest {
			of[n] = append(of[n], uint32(docs.at))
		}
	}
	for n := range order {
		order[n] = n
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(l.numbers[a], l.numbers[b]) })
	found := make([]uint32, 0, maxShortest)
	for _, n := range order {
		found = append(found, of[n][:min(len(of[n]), maxShortest-len(found))]...)
	}
	return found
}

// audiences are values of audiences. They are immutable once they are in a column, but for readable.
type audiences struct {
	numbers map[uuid.UUID]uint32
	of      []uint32

	mu sync.Mutex
	// readable are bits of the documents that viewers read, by what these reach.
	readable map[string][]uint64
}

// number returns the place of the term of a document in the names.
func (v *values) number(doc uint64) uint32 {
	if v.of == nil {
		return 0
	}
	return v.of[doc]
}

// of returns the columns of a snapshot, in the order of its segments, and drops those of segments
// that were merged.
func (c *columns) of(segments []*scorch.SegmentSnapshot) []*column {
	found := make([]*column, len(segments))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range segments {
		// A segment and its documents keep their numbers when it is written to disk.
		if found[i] = c.bySegment[s.Id()]; found[i] == nil {
			found[i] = new(column)
		}
	}
	if c.bySegment == nil || len(c.bySegment) > 2*len(segments) {
		c.bySegment = make(map[uint64]*column, len(segments))
	}
	for i, s := range segments {
		c.bySegment[s.Id()] = found[i]
	}
	return found
}

// move sets audiences of data points in the existing columns. Later columns read them from moves.
func (c *columns) move(segments []*scorch.SegmentSnapshot, moved map[moveKey]uuid.UUID) error {
	for i, column := range c.of(segments) {
		if err := column.move(segments[i].Segment(), moved); err != nil {
			return err
		}
	}
	return nil
}

func (c *column) move(s segment.Segment, moved map[moveKey]uuid.UUID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.audiences == nil {
		return nil
	}
	var changed *audiences
	owners, err := ownersIn(s)
	if err != nil {
		return err
	}
	for k, audience := range moved {
		if audience == noAudience {
			continue // all its documents are deleted
		}
		err := owners.each(string(k), func(doc uint64) error {
			if changed == nil {
				changed = c.audiences.clone(s)
			}
			changed.put(doc, audience)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if changed != nil {
		c.audiences = changed
	}
	return nil
}

func (a *audiences) clone(s segment.Segment) *audiences {
	b := &audiences{numbers: maps.Clone(a.numbers), of: slices.Clone(a.of)}
	if b.of == nil {
		b.of = make([]uint32, s.Count())
	}
	return b
}

// put sets the audience of a document.
func (a *audiences) put(doc uint64, audience uuid.UUID) {
	n, known := a.numbers[audience]
	if !known {
		n = uint32(len(a.numbers))
		a.numbers[audience] = n
	}
	a.of[doc] = n
}

// maxReadable is for how many viewers a segment keeps which documents they read, a bit for each document.
const maxReadable = 8

// readableFor returns bits of the documents with an audience that is reached. They are made once for all who reach the
// same: a viewer asks again, and so do others who are in the same groups.
func (a *audiences) readableFor(reached []byte) []uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, is := a.readable[string(reached)]; is {
		return known
	}
	made := make([]uint64, 0, (len(a.of)+63)/64)
	for some := range slices.Chunk(a.of, 64) {
		var word uint64
		for i, audience := range some {
			word |= uint64(reached[audience]) << i
		}
		made = append(made, word)
	}
	if a.readable == nil || len(a.readable) >= maxReadable {
		a.readable = make(map[string][]uint64, maxReadable)
	}
	a.readable[string(reached)] = made
	return made
}

// audiencesOf returns the audiences of the documents of the segment.
func (c *columns) audiencesOf(of *column, s segment.Segment) (*audiences, error) {
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.audiences != nil {
		return of.audiences, nil
	}
	v, err := readValues(s, audienceField)
	if err != nil {
		return nil, err
	}
	a := &audiences{numbers: make(map[uuid.UUID]uint32, len(v.names)), of: v.of}
	for n, name := range v.names {
		id, err := uuid.Parse(name)
		if err != nil {
			return nil, fmt.Errorf("audience %q is unreadable: %w", name, err)
		}
		a.numbers[id] = uint32(n)
	}
	err = c.moves.eachMoved(s, func(doc uint64, audience uuid.UUID) {
		if a.of == nil {
			a.of = make([]uint32, s.Count())
		}
		a.put(doc, audience)
	})
	if err != nil {
		return nil, err
	}
	of.audiences = a
	return a, nil
}

// daysOf returns the days of the documents of the segment; names are sorted.
func (c *column) daysOf(s segment.Segment) (*values, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if c.days == nil {
		c.days, err = readValues(s, dayField)
	}
	return c.days, err
}

// traitsOf returns the traits of the documents of the segment.
func (c *column) traitsOf(s segment.Segment) ([]recall.Traits, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.traits != nil {
		return c.traits, nil
	}
	v, err := readValues(s, traitsField)
	if err != nil {
		return nil, err
	}
	named := make([]recall.Traits, len(v.names))
	for i, name := range v.names {
		if named[i], err = parseTraits(name); err != nil {
			return nil, err
		}
	}
	traits := make([]recall.Traits, s.Count())
	for doc := range traits {
		traits[doc] = named[v.number(uint64(doc))]
	}
	c.traits = traits
	return traits, nil
}

// lengthsOf returns the lengths of the texts of the segment, in terms.
func (c *column) lengthsOf(s segment.Segment) (*lengths, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lengths != nil {
		return c.lengths, nil
	}
	v, err := readValues(s, lengthField)
	if err != nil {
		return nil, err
	}
	l := &lengths{
		numbers: make([]int, len(v.names)), impacts: make([]float32, len(v.names)), of: v.of, leastImpact: recall.MaxImpact,
	}
	for i, name := range v.names {
		n, err := strconv.ParseUint(name, 16, 31)
		if err != nil {
			return nil, fmt.Errorf("length %q is unreadable: %w", name, err)
		}
		l.numbers[i] = int(n)
		l.impacts[i] = float32(recall.Impact(1, int(n)))
		l.mostImpact = max(l.mostImpact, l.impacts[i])
		l.leastImpact = min(l.leastImpact, l.impacts[i])
	}
	c.lengths = l
	return l, nil
}

// ordersOf returns the orders of the documents of the segment, which are the frequencies of the terms of
// their parts.
func (c *column) ordersOf(s segment.Segment) ([]uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if c.orders == nil {
		c.orders, err = readFrequencies(s, partField)
	}
	return c.orders, err
}

// readFrequencies reads the frequencies of the terms of a field that has at most one in each document, 0 for a document
// without one.
func readFrequencies(s segment.Segment, field string) ([]uint64, error) {
	dict, err := s.Dictionary(field)
	if err != nil {
		return nil, err
	}
	frequencies := make([]uint64, s.Count())
	names := dict.AutomatonIterator(nil, nil, nil)
	var postings segment.PostingsList
	var docs segment.PostingsIterator
	for {
		name, err := names.Next()
		if err != nil {
			return nil, err
		}
		if name == nil {
			return frequencies, nil
		}
		if postings, err = dict.PostingsList([]byte(name.Term), nil, postings); err != nil {
			return nil, err
		}
		docs = postings.Iterator(true, false, false, docs)
		for doc, err := docs.Next(); doc != nil || err != nil; doc, err = docs.Next() {
			if err != nil {
				return nil, err
			}
			if doc.Number() >= uint64(len(frequencies)) {
				return nil, fmt.Errorf("field %s names document %d of %d", field, doc.Number(), len(frequencies))
			}
			frequencies[doc.Number()] = doc.Frequency()
		}
	}
}

// readValues reads all terms of a field with their documents, deleted ones too.
func readValues(s segment.Segment, field string) (*values, error) {
	dict, err := s.Dictionary(field)
	if err != nil {
		return nil, fmt.Errorf("read terms of field %s: %w", strconv.Quote(field), err)
	}
	v := new(values)
	names := dict.AutomatonIterator(nil, nil, nil)
	var postings segment.PostingsList
	var docs segment.PostingsIterator
	for {
		entry, err := names.Next()
		if err != nil {
			return nil, err
		}
		if entry == nil {
			break
		}
		v.names = append(v.names, entry.Term)
		if entry.Count == s.Count() {
			break // every document has this one
		}
		if v.of == nil {
			v.of = make([]uint32, s.Count())
		}
		if postings, err = dict.PostingsList([]byte(entry.Term), nil, postings); err != nil {
			return nil, err
		}
		docs = postings.Iterator(false, false, false, docs)
		for {
			doc, err := docs.Next()
			if err != nil {
				return nil, err
			}
			if doc == nil {
				break
			}
			if doc.Number() >= s.Count() {
				return nil, fmt.Errorf("field %s names document %d of %d", strconv.Quote(field), doc.Number(), s.Count())
			}
			v.of[doc.Number()] = uint32(len(v.names) - 1)
		}
	}
	return v, nil
}

// filter passes documents of some audiences and days.
type filter struct {
	audiences []uuid.UUID
	// from and to are days, inclusive; "" is open.
	from, to string
}

func newFilter(audiences []uuid.UUID, from, to *time.Time) *filter {
	f := &filter{audiences: audiences}
	if from != nil {
		f.from = day(*from)
	}
	if to != nil {
		f.to = day(*to)
	}
	return f
}

// segmentFilter is a filter for the documents of one segment, which the deleted do not pass. Its zero value passes
// everything: most documents are project-visible and in the past.
type segmentFilter struct {
	// audiences are by document, reached is 1 for an audience that is; nil skips the check. readable are bits of the
	// documents with such an audience, nil until all are looked at.
	audiences *audiences
	reached   []byte
	readable  []uint64
	// days are by document; from and to are the range of those that pass. Nil skips the check.
	days     []uint32
	from, to uint32
	// deleted are bits; nil if none is.
	deleted []uint64
}

// of returns the filter for a segment. some is false if no document passes.
func (f *filter) of(in *searchedSegment) (passing segmentFilter, some bool, err error) {
	if in.deleted != nil {
		passing.deleted = in.deleted.bits
	}
	audiences, err := in.columns.audiencesOf(in.column, in.Segment())
	if err != nil {
		return segmentFilter{}, false, err
	}
	reached, n := make([]byte, len(audiences.numbers)), 0
	for _, a := range f.audiences {
		if i, there := audiences.numbers[a]; there && reached[i] == 0 {
			reached[i] = 1
			n++
		}
	}
	if n == 0 {
		return segmentFilter{}, false, nil
	}
	if n < len(reached) {
		passing.audiences, passing.reached = audiences, reached
	}
	if f.from == "" && f.to == "" {
		return passing, true, nil
	}
	days, err := in.column.daysOf(in.Segment())
	if err != nil {
		return segmentFilter{}, false, err
	}
	from, to := 0, len(days.names)
	if f.from != "" {
		from = sort.SearchStrings(days.names, f.from)
	}
	if f.to != "" {
		to = sort.Search(len(days.names), func(i int) bool { return days.names[i] > f.to })
	}
	if from >= to {
		return segmentFilter{}, false, nil
	}
	if from > 0 || to < len(days.names) {
		passing.days, passing.from, passing.to = days.of, uint32(from), uint32(to)
	}
	return passing, true, nil
}

// passes reports whether a document passes.
func (f *segmentFilter) passes(doc uint64) bool {
	if f.deleted != nil && f.deleted[doc/64]>>(doc%64)&1 != 0 {
		return false
	}
	if f.audiences != nil && f.reached[f.audiences.of[doc]] == 0 {
		return false
	}
	if f.days == nil {
		return true
	}
	day := f.days[doc]
	return f.from <= day && day < f.to
}

// filterShare is about how many documents the filter checks in the time that one place of a list takes: to add to the
// sum of its document, and to compare that with the bound.
const filterShare = 8

// isWorthFirst reports whether the filter costs less for all documents of a segment than for those of lists that have
// some together.
func (f *segmentFilter) isWorthFirst(together int, documents uint64) bool {
	return (f.audiences != nil || f.days != nil) && together*filterShare > int(documents)
}

// keep clears the bits of the documents from one up to another that do not pass; those of deleted ones are clear.
func (f *segmentFilter) keep(words []uint64, from, end uint64) {
	if f.audiences != nil {
		if f.readable == nil {
			f.readable = f.audiences.readableFor(f.reached)
		}
		for i, word := range f.readable[from/64 : (end+63)/64] {
			words[i] &= word
		}
	}
	if f.days == nil {
		return
	}
	for i, span := 0, f.to-f.from; from < end; i++ {
		next := min(from+64, end)
		var word uint64
		for at, day := range f.days[from:next] {
			// 1 if the day is in the span. Which are is hard to foresee, so there is no jump.
			word |= uint64(int64(day-f.from)-int64(span)) >> 63 << at
		}
		words[i] &= word
		from = next
	}
}
