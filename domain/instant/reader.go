package instant

import (
	"strings"
	"time"
)

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
