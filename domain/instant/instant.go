// Package instant reads the points in time that clients write, and keeps times at the precision
// that is stored.
package instant

import (
	"errors"
	"net/mail"
	"strings"
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

// reader walks over the text of one instant. Every method that fails leaves it unusable.
type reader struct {
	s  string
	at int
}

func (r *reader) rest() string { return r.s[r.at:] }

// oneOf takes the next byte if it is one of set.
func (r *reader) oneOf(set string) bool {
	if r.at < len(r.s) && strings.IndexByte(set, r.s[r.at]) >= 0 {
		r.at++
		return true
	}
	return false
}

// digits is how many ASCII digits come next.
func (r *reader) digits() int {
	n := 0
	for r.at+n < len(r.s) && isDigit(r.s[r.at+n]) {
		n++
	}
	return n
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// number takes exactly n digits.
func (r *reader) number(n int) (int, bool) {
	if r.digits() < n {
		return 0, false
	}
	v := 0
	for _, d := range []byte(r.s[r.at : r.at+n]) {
		v = v*10 + int(d-'0')
	}
	r.at += n
	return v, true
}

// date takes a calendar, week or ordinal date and returns its midnight in UTC.
func (r *reader) date() (time.Time, error) {
	year, ok := r.number(4)
	if !ok {
		return time.Time{}, errShape
	}
	if year < minYear {
		return time.Time{}, errRange
	}
	extended := r.oneOf("-")
	if r.oneOf("Ww") {
		return r.weekDate(year, extended)
	}
	switch n := r.digits(); {
	case n == 3:
		return r.ordinalDate(year)
	case extended && n == 2, !extended && n == 4:
		return r.calendarDate(year, extended)
	}
	return time.Time{}, errShape
}

func (r *reader) calendarDate(year int, extended bool) (time.Time, error) {
	month, ok := r.number(2)
	if !ok || extended && !r.oneOf("-") {
		return time.Time{}, errShape
	}
	if extended && r.digits() != 2 {
		return time.Time{}, errShape
	}
	day, ok := r.number(2)
	if !ok {
		return time.Time{}, errShape
	}
	t := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if t.Month() != time.Month(month) || t.Day() != day {
		return time.Time{}, errDate
	}
	return t, nil
}

func (r *reader) ordinalDate(year int) (time.Time, error) {
	day, _ := r.number(3)
	t := time.Date(year, time.January, day, 0, 0, 0, 0, time.UTC)
	if t.Year() != year || t.YearDay() != day {
		return time.Time{}, errDate
	}
	return t, nil
}

// weekDate takes what follows the W: the week and its day, Monday being 1.
func (r *reader) weekDate(year int, extended bool) (time.Time, error) {
	week, ok := r.number(2)
	if !ok || extended && !r.oneOf("-") || r.digits() != 1 {
		return time.Time{}, errShape
	}
	day, _ := r.number(1)
	if week < 1 || day < 1 || day > 7 {
		return time.Time{}, errDate
	}
	// 4 January is always in week 1.
	fourth := time.Date(year, time.January, 4, 0, 0, 0, 0, time.UTC)
	monday := fourth.AddDate(0, 0, -(int(fourth.Weekday())+6)%7)
	t := monday.AddDate(0, 0, (week-1)*7+day-1)
	if y, w := t.ISOWeek(); y != year || w != week {
		return time.Time{}, errDate
	}
	return t, nil
}

// clock takes a time of day: the time since midnight, and whether its second is 60.
func (r *reader) clock() (since time.Duration, leap bool, err error) {
	hour, ok := r.number(2)
	if !ok {
		return 0, false, errShape
	}
	minute, second, unit := 0, 0, time.Hour
	extended := r.oneOf(":")
	if extended || r.digits() > 0 {
		if minute, ok = r.number(2); !ok {
			return 0, false, errShape
		}
		unit = time.Minute
		if extended && r.oneOf(":") || !extended && r.digits() > 0 {
			if second, ok = r.number(2); !ok {
				return 0, false, errShape
			}
			unit = time.Second
		}
	}
	var part time.Duration
	if r.oneOf(".,") {
		if r.digits() == 0 {
			return 0, false, errShape
		}
		part = r.fraction(unit)
	}
	since = time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute + time.Duration(second)*time.Second + part
	// A fraction too small to be kept still passes 24:00, since what is kept is 24:00.
	if hour > 24 || hour == 24 && since > 24*time.Hour || minute > 59 || second > 60 {
		return 0, false, errTime
	}
	return since, second == 60, nil
}

// fraction takes digits after a decimal sign and returns that part of unit, cut to microseconds.
func (r *reader) fraction(unit time.Duration) time.Duration {
	n := r.digits()
	whole := int64(unit / time.Microsecond)
	var micros int64
	// From the last digit to the first, each floor is exact: floor((m+x)/10) =
	// floor((m+floor(x))/10) for whole m.
	for i := r.at + n - 1; i >= r.at; i-- {
		micros = (int64(r.s[i]-'0')*whole + micros) / 10
	}
	r.at += n
	return time.Duration(micros) * time.Microsecond
}

// offset takes a zone and returns its distance east of UTC, 0 when none is written.
func (r *reader) offset() (time.Duration, error) {
	if r.rest() == "" {
		return 0, nil
	}
	if r.oneOf(" ") && (r.rest() == "UTC" || r.rest() == "GMT") {
		r.at = len(r.s)
	}
	if r.rest() == "" && r.s[r.at-1] != ' ' || r.oneOf("Zz") {
		return 0, nil
	}
	sign := time.Duration(1)
	switch {
	case r.oneOf("+"):
	case r.oneOf("-"):
		sign = -1
	case strings.HasPrefix(r.rest(), "\u2212"): // the minus sign that ISO 8601 itself prefers
		r.at += len("\u2212")
		sign = -1
	default:
		return 0, errShape
	}
	hours, ok := r.number(2)
	if !ok {
		return 0, errShape
	}
	minutes := 0
	if r.oneOf(":") || r.digits() > 0 {
		if minutes, ok = r.number(2); !ok {
			return 0, errShape
		}
	}
	if hours > 23 || minutes > 59 {
		return 0, errOffset
	}
	return sign * (time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute), nil
}

// mailZones are the names of zones in RFC 5322. The library reads any other name as UTC.
var mailZones = map[string]string{
	"UT": "+0000", "UTC": "+0000", "GMT": "+0000", "Z": "+0000", "EST": "-0500", "EDT": "-0400", "CST": "-0600",
	"CDT": "-0500", "MST": "-0700", "MDT": "-0600", "PST": "-0800", "PDT": "-0700",
}

// ParseMail reads the date of a mail, as RFC 2822 and HTTP have it: Tue, 3 Jun 2025 10:15:30 +0200. It returns the
// instant in UTC.
func ParseMail(s string) (time.Time, error) {
	text, comment, found := strings.Cut(s, "(")
	if text = strings.TrimSpace(text); found && !strings.HasSuffix(comment, ")") {
		return time.Time{}, errMail
	}
	at := strings.LastIndexByte(text, ' ')
	if at < 0 {
		return time.Time{}, errMail
	}
	zone := text[at+1:]
	if offset, known := mailZones[strings.ToUpper(zone)]; known {
		zone = offset
	}
	if len(zone) != len("+0000") || zone[0] != '+' && zone[0] != '-' || zone[1:3] > "23" || zone[3:] > "59" {
		return time.Time{}, errMail
	}
	t, err := mail.ParseDate(text[:at] + " " + zone)
	if err != nil {
		return time.Time{}, errMail
	}
	if t = Truncate(t); t.Year() < minYear || t.Year() > maxYear {
		return time.Time{}, errRange
	}
	return t, nil
}

var errMail = errors.New("not the date of a mail")
