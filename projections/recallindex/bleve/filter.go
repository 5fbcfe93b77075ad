package bleve

import (
	"sort"
	"time"

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

// segmentFilter is a filter for the documents of one segment, which the deleted do not pass. Its zero value passes
// everything: most documents are project-visible and in the past.
type segmentFilter struct {
	// audiences are by document, reached by audience; nil skips the check.
	audiences []uint32
	reached   []bool
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
	if f.audiences != nil && !f.reached[f.audiences[doc]] {
		return false
	}
	if f.days == nil {
		return true
	}
	day := f.days[doc]
	return f.from <= day && day < f.to
}

// isWorthFirst reports whether the filter costs less for all documents of a segment than for those of lists that have
// some together.
func (f *segmentFilter) isWorthFirst(together int, documents uint64) bool {
	return (f.audiences != nil || f.days != nil) && together > int(documents)
}

// keep clears the bits of the documents from one up to another that do not pass; those of deleted ones are clear.
func (f *segmentFilter) keep(words []uint64, from, end uint64) {
	if f.audiences != nil {
		for i, audience := range f.audiences[from:end] {
			if !f.reached[audience] {
				words[i/64] &^= 1 << (i % 64)
			}
		}
	}
	if f.days != nil {
		for i, day := range f.days[from:end] {
			if day < f.from || day >= f.to {
				words[i/64] &^= 1 << (i % 64)
			}
		}
	}
}
