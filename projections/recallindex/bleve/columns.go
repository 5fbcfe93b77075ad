package bleve

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/blevesearch/bleve/v2/index/scorch"
	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// columns hold, of the segments of an index, what a query asks of a document by its number. A segment never changes, but for which
// of its documents were deleted: each column is made once, from the postings, when it is first asked for.
type columns struct {
	mu sync.Mutex
	of map[uint64]*column
}

// column is of one segment.
type column struct {
	mu        sync.Mutex
	audiences *values
	days      *values
	traits    *values
	impacts   map[impactKey]float64
}

// values are the terms of a field that has one in each document: document n has names[of[n]], or names[0] where of is nil.
type values struct {
	names []string
	of    []uint32
}

// name is the term of a document.
func (v *values) name(doc uint64) string {
	if v.of == nil {
		return v.names[0]
	}
	return v.names[v.of[doc]]
}

// in gives the columns of a snapshot, in the order of its segments, and forgets those of segments that were merged away.
func (c *columns) in(segments []*scorch.SegmentSnapshot) []*column {
	found := make([]*column, len(segments))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range segments {
		// A segment keeps its number when it goes from memory to disk; its documents keep theirs too.
		if found[i] = c.of[s.Id()]; found[i] == nil {
			found[i] = new(column)
		}
	}
	if c.of == nil || len(c.of) > 2*len(segments) {
		c.of = make(map[uint64]*column, len(segments))
	}
	for i, s := range segments {
		c.of[s.Id()] = found[i]
	}
	return found
}

// audiencesOf are the audiences of the documents of the segment.
func (c *column) audiencesOf(s segment.Segment) (*values, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if c.audiences == nil {
		c.audiences, err = readValues(s, audienceField)
	}
	return c.audiences, err
}

// daysOf are the days of the documents of the segment; names are in their order.
func (c *column) daysOf(s segment.Segment) (*values, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if c.days == nil {
		c.days, err = readValues(s, dayField)
	}
	return c.days, err
}

// traitsOf are the traits of the documents of the segment.
func (c *column) traitsOf(s segment.Segment) (*values, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if c.traits == nil {
		c.traits, err = readValues(s, traitsField)
	}
	return c.traits, err
}

// readValues goes through all terms of a field with their documents. Deleted documents are as good as others here.
func readValues(s segment.Segment, field string) (*values, error) {
	dict, err := s.Dictionary(field)
	if err != nil {
		return nil, fmt.Errorf("terms of field %s: %w", strconv.Quote(field), err)
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
			v.of[doc.Number()] = uint32(len(v.names) - 1)
		}
	}
	return v, nil
}
