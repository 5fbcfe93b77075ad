package requestlog

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/cursor"
)

// Query selects calls. Values of one filter are alternatives, and a call must match every filter
// that has values.
type Query struct {
	// From is inclusive, To is not.
	From, To time.Time
	Statuses []int
	// Classes are the first digits of statuses.
	Classes   []int
	Endpoints []string
	KeyNames  []string
	// Webhooks are the ids of webhooks whose events are selected.
	Webhooks []string
	// Search matches a request id, a part of a key name, or the data point of a source id.
	Search string
	// SearchPoint is the data point that Search is the source id of.
	SearchPoint uuid.UUID
	// After is the last call of the page before, nil for the first page.
	After *Cursor
	// First is the most calls of a page.
	First int
}

// Cursor is the place of a call in a list.
type Cursor = cursor.Cursor

// ParseCursor reads what its String wrote.
func ParseCursor(text string) (Cursor, error) { return cursor.Parse(text) }

// step is a length of time that calls are counted by, in minutes. calls of step 0 are read from the
// rows themselves.
type step int

// steps are those of ops.request_counts. Each divides the next.
var steps = []step{1, 15, 180}

func (s step) duration() time.Duration { return time.Duration(s) * time.Minute }

// floor returns the beginning of the step that holds an instant.
func (s step) floor(at time.Time) time.Time {
	length := s.duration().Microseconds()
	micros := at.UnixMicro()
	rest := micros % length
	if rest < 0 {
		rest += length
	}
	return time.UnixMicro(micros - rest).UTC()
}

// segment is a part of a window that begins and ends at multiples of its step.
type segment struct {
	step     step
	from, to time.Time
}

// segmentsOf cuts a window into segments, with the longest steps up to most in the middle. No two
// overlap and none is empty.
func segmentsOf(from, to time.Time, most step) []segment {
	var before, after []segment
	add := func(list []segment, s step, a, b time.Time) []segment {
		if a.Before(b) {
			return append(list, segment{s, a, b})
		}
		return list
	}
	last := step(0)
	for _, s := range steps {
		if s > most {
			break
		}
		first := s.floor(from)
		if first.Before(from) {
			first = first.Add(s.duration())
		}
		end := s.floor(to)
		if !first.Before(end) {
			break
		}
		before = add(before, last, from, first)
		after = append(add(nil, last, end, to), after...)
		from, to, last = first, end, s
	}
	return append(add(before, last, from, to), after...)
}

// bucketMinutes are the lengths of the buckets of a histogram; maxBuckets is how many it has.
var bucketMinutes = []int{1, 5, 15, 30, 60, 180, 360, 720, 1440}

const maxBuckets = 100

// bucketOf returns the shortest bucket that covers a window in at most maxBuckets.
func bucketOf(from, to time.Time) step {
	for _, minutes := range bucketMinutes {
		s := step(minutes)
		if to.Sub(s.floor(from)) <= maxBuckets*s.duration() {
			return s
		}
	}
	return step(bucketMinutes[len(bucketMinutes)-1])
}
