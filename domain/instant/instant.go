// Package instant reads the points in time that clients write, and keeps times at the precision
// that is stored.
package instant

import (
	"errors"
	"time"
)

// Range of what Parse accepts, both as written and in UTC. PostgreSQL's timestamptz and four-digit
// ISO years hold all of it.
const (
	minYear = 1
	maxYear = 9999
)

var (
	errShape  = errors.New("not an ISO 8601 date, or date and time")
	errDate   = errors.New("no such calendar date")
	errTime   = errors.New("no such time of day")
	errOffset = errors.New("no such offset from UTC")
	errLeap   = errors.New("second 60 stands only at the end of a UTC day")
	errRange  = errors.New("outside the years 0001 to 9999 in UTC")
)

// Truncate is t in UTC, cut (never rounded) to microseconds, without a monotonic reading: the form
// in which times are stored and compared.
func Truncate(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// Written is an instant as a client wrote it.
type Written struct {
	// At is the instant, cut to microseconds, in the zone that was written; UTC without one.
	At time.Time
	// DateOnly reports a date without a time; At is then the first moment of that UTC day.
	DateOnly bool
}

// End returns the end of a range that ends before w, exclusive: for a date alone the end of its day.
// It stays in the range of Read: the last day of the year 9999 ends with its last microsecond.
func (w Written) End() time.Time {
	end := w.At
	if w.DateOnly {
		if end = end.AddDate(0, 0, 1); end.Year() > maxYear {
			end = end.Add(-time.Microsecond)
		}
	}
	return end
}

// Last returns the end of a range that ends with w, inclusive: for a date alone the last microsecond
// of its day.
func (w Written) Last() time.Time {
	if w.DateOnly {
		return w.At.AddDate(0, 0, 1).Add(-time.Microsecond)
	}
	return w.At
}

// Parse reads an ISO 8601 instant as Read does and returns it in UTC, cut to microseconds.
func Parse(s string) (time.Time, error) {
	w, err := Read(s)
	if err != nil {
		return time.Time{}, err
	}
	return w.At.UTC(), nil
}

// Read reads an ISO 8601 instant.
//
// A date is a calendar date, a week date or an ordinal date in the extended or the basic format
// (2025-06-03, 20250603, 2025-W23-2, 2025W232, 2025-154, 2025154); alone it means its first moment.
// A time follows after T, t or one space: hours, or hours and minutes, or all three, extended or
// basic, with a fraction of any length on its last part after a full stop or a comma. A zone is Z,
// z, ±hh, ±hhmm or ±hh:mm, or after one space also UTC and GMT, after a time only; without one the
// time is UTC. 24:00 is the end of the day, and second 60, taken only where a leap second can be (the
// end of a UTC day), is the moment after it.
//
// A year or a month alone, an interval, a signed or longer year and white space around the value
// are refused, and so is an instant outside the years 0001 to 9999. The error names the reason and
// does not repeat the value.
func Read(s string) (Written, error) {
	w, _, err := read(s)
	return w, err
}

// ReadIn reads as Read does, but for an instant without a zone, which is in zone: a date is a day there.
func ReadIn(s string, zone *time.Location) (Written, error) {
	w, zoned, err := read(s)
	if err != nil || zoned {
		return w, err
	}
	year, month, day := w.At.Date()
	hour, minute, second := w.At.Clock()
	w.At = time.Date(year, month, day, hour, minute, second, w.At.Nanosecond(), zone)
	if utc := w.At.UTC().Year(); utc < minYear || utc > maxYear {
		return Written{}, errRange
	}
	return w, nil
}

// Zoned reports whether the text of an instant names its zone.
func Zoned(s string) bool {
	_, zoned, err := read(s)
	return zoned && err == nil
}

func read(s string) (w Written, zoned bool, err error) {
	r := reader{s: s}
	day, err := r.date()
	if err != nil {
		return Written{}, false, err
	}
	if r.rest() == "" {
		w, err = inRange(Written{At: day, DateOnly: true}, time.UTC)
		return w, false, err
	}
	if !r.oneOf("Tt ") {
		return Written{}, false, errShape
	}
	clock, leap, err := r.clock()
	if err != nil {
		return Written{}, false, err
	}
	start := r.at
	offset, err := r.offset()
	if err != nil {
		return Written{}, false, err
	}
	if r.rest() != "" {
		return Written{}, false, errShape
	}
	t := day.Add(clock - offset)
	if leap && (t.Hour() != 0 || t.Minute() != 0 || t.Second() != 0) {
		return Written{}, false, errLeap
	}
	zone := time.UTC
	if offset != 0 {
		zone = time.FixedZone("", int(offset/time.Second))
	}
	w, err = inRange(Written{At: t}, zone)
	return w, r.at > start, err
}

// inRange puts an instant that was read in UTC into its zone, or refuses it.
func inRange(w Written, zone *time.Location) (Written, error) {
	if w.At.Year() < minYear || w.At.Year() > maxYear {
		return Written{}, errRange
	}
	w.At = w.At.In(zone)
	return w, nil
}
