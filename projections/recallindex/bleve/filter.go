package bleve

import (
	"sort"
	"time"

	segment "github.com/blevesearch/scorch_segment_api/v2"
	"github.com/google/uuid"
)

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

// segmentFilter is a filter for the documents of one segment. Its zero value passes everything:
// most documents are project-visible and in the past.
type segmentFilter struct {
	// audiences are by document, reached by audience; nil skips the check.
	audiences []uint32
	reached   []bool
	// days are by document; from and to are the range of those that pass. Nil skips the check.
	days     []uint32
	from, to uint32
}

// of returns the filter for a segment. some is false if no document passes.
func (f *filter) of(s segment.Segment, all *columns, c *column) (passing segmentFilter, some bool, err error) {
	audiences, err := all.audiencesOf(c, s)
	if err != nil {
		return segmentFilter{}, false, err
	}
	reached, n := make([]bool, len(audiences.numbers)), 0
	for _, a := range f.audiences {
		if i, there := audiences.numbers[a]; there && !reached[i] {
			reached[i] = true
			n++
		}
	}
	if n == 0 {
		return segmentFilter{}, false, nil
	}
	if n < len(reached) {
		passing.audiences, passing.reached = audiences.of, reached
	}
	if f.from == "" && f.to == "" {
		return passing, true, nil
	}
	days, err := c.daysOf(s)
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
	if f.audiences != nil && !f.reached[f.audiences[doc]] {
		return false
	}
	if f.days == nil {
		return true
	}
	day := f.days[doc]
	return f.from <= day && day < f.to
}
