package estimate

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/annals-project/annals/domain/instant"
)

const (
	// maxTime is the longest text that is read as a time.
	maxTime = 120
	// The years of times: what is before or after them is an empty value of a program, or of another calendar.
	firstYear, lastYear = 1000, 2200
)

// parseTime reads a time as people and programs write it: ISO 8601, dates in digits, and dates with the names of months
// in the usual languages, with offsets and the usual names of zones. One without a zone is in zone. ok is false for
// other text, also for a time in a zone that is not known: it would be wrong. Dates in digits have the day first,
// unless monthFirst.
func parseTime(text string, zone *time.Location, monthFirst bool) (at time.Time, ok bool) {
	text = strings.TrimSpace(text)
	if len(text) < len("1.1.70") || len(text) > maxTime {
		return time.Time{}, false
	}
	if at, ok = parseISO(text, zone); !ok {
		if inner, wrapped := unwrapTime(text); wrapped {
			if at, ok = parseUnix(inner); !ok {
				at, ok = parseTime(strings.Trim(inner, "\"'"), zone, monthFirst)
			}
			return at, ok
		}
		at, ok = scanTime(text, zone, monthFirst)
	}
	if !ok || at.Year() < firstYear || at.Year() >= lastYear {
		return time.Time{}, false
	}
	return at, true
}

// timeOf reads a field that is named as a time: its text, or a number of seconds since 1970 or parts of them.
func timeOf(text string, zone *time.Location, monthFirst bool) (at time.Time, ok bool) {
	if at, ok = parseTime(text, zone, monthFirst); !ok {
		at, ok = parseUnix(strings.TrimSpace(text))
	}
	return at, ok
}

// unwrapTime returns the number in the forms that JSON of .NET and JavaScript have for a time.
func unwrapTime(text string) (inner string, ok bool) {
	for _, form := range [][2]string{{"/Date(", ")/"}, {`\/Date(`, `)\/`}, {"new Date(", ")"}, {"Date(", ")"}, {"ISODate(", ")"}} {
		if inner, ok = strings.CutPrefix(text, form[0]); ok {
			if inner, ok = strings.CutSuffix(inner, form[1]); ok {
				// The offset is that of the place where the time was shown: the number is in UTC.
				if at := strings.LastIndexAny(inner, "+-"); at > 0 && !strings.ContainsAny(inner, ":\"'") {
					inner = inner[:at]
				}
				return inner, true
			}
		}
	}
	return "", false
}

// parseISO reads ISO 8601 with a date of separated parts.
func parseISO(text string, zone *time.Location) (time.Time, bool) {
	if text[0] < '0' || text[0] > '9' || len(text) < len("2006-01-02") || text[4] != '-' {
		return time.Time{}, false
	}
	at, err := instant.Parse(text)
	if err != nil {
		return time.Time{}, false
	}
	if instant.Zoned(text) {
		return at, true
	}
	return inZone(at, zone), true
}

// inZone reads the wall clock of a UTC time in a zone.
func inZone(at time.Time, zone *time.Location) time.Time {
	y, m, d := at.Date()
	return time.Date(y, m, d, at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), zone)
}

// civil returns a time that is on the calendar.
func civil(year, month, day, hour, minute, second int, zone *time.Location) (time.Time, bool) {
	if year < 1 || year > 9999 || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 60 {
		return time.Time{}, false
	}
	if date := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC); date.Day() != day {
		return time.Time{}, false
	}
	return time.Date(year, time.Month(month), day, hour, minute, second, 0, zone), true
}

// number reads a few digits, "" as 0.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// The sizes by which a number is taken for a Unix time: below the first one it is none, below the others it is in
// seconds, milliseconds and microseconds, and else in nanoseconds.
const (
	leastUnix   = 1e8
	leastMillis = 1e11
	leastMicros = 1e14
	leastNanos  = 1e17
)

// parseUnix reads a number of seconds since 1970, with a fraction or without, or of parts of seconds. A result before
// 1970 or after 2100 is none.
func parseUnix(text string) (at time.Time, ok bool) {
	if strings.ContainsAny(text, "eE") && len(text) < 32 {
		if f, err := strconv.ParseFloat(text, 64); err == nil && f < math.MaxInt64 {
			text = strconv.FormatFloat(f, 'f', -1, 64)
		}
	}
	whole, part, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < leastUnix || len(part) > 20 || strings.Trim(part, "0123456789") != "" {
		return time.Time{}, false
	}
	switch {
	case n < leastMillis:
		at = time.Unix(n, int64(number((part + "000000000")[:9])))
	case n < leastMicros:
		at = time.UnixMilli(n)
	case n < leastNanos:
		at = time.UnixMicro(n)
	default:
		at = time.Unix(0, n)
	}
	if at = at.UTC(); at.Year() < 1970 || at.Year() >= 2100 {
		return time.Time{}, false
	}
	return at, true
}
