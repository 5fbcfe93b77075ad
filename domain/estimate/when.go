package estimate

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/annals-project/annals/domain/instant"
)

// maxTime is the longest text that is read as a time.
const maxTime = 64

// parseTime reads a time as people and programs write it. One without a zone is in zone. ok is false for
// other text. Dates with slashes have the day first, unless monthFirst.
func parseTime(text string, zone *time.Location, monthFirst bool) (at time.Time, ok bool) {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > maxTime {
		return time.Time{}, false
	}
	if at, ok := parseISO(text, zone); ok {
		return at, true
	}
	if at, ok := parseNumeric(text, zone, monthFirst); ok {
		return at, true
	}
	if !hasMonth(text) && (len(text) < 5 || text[4] != '-') {
		return time.Time{}, false
	}
	for _, layout := range layouts {
		if at, err := time.ParseInLocation(layout, text, zone); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// hasMonth reports whether a word of a text begins as the English name of a month. Most text that is no time has
// none, and needs no comparison with each form.
func hasMonth(text string) bool {
	const months = "janfebmaraprmayjunjulaugsepoctnovdec"
	inWord := false
	for i := range len(text) - 2 {
		isLetter := text[i]|0x20 >= 'a' && text[i]|0x20 <= 'z'
		if isLetter && !inWord {
			at := strings.Index(months, strings.ToLower(text[i:i+3]))
			if at >= 0 && at%3 == 0 {
				return true
			}
		}
		inWord = isLetter
	}
	return false
}

// layouts are the forms of times that are neither ISO 8601 nor all digits.
var layouts = []string{
	time.RFC1123Z, time.RFC1123, time.RFC822Z, time.RFC822, time.RFC850, time.ANSIC, time.UnixDate,
	"Mon, 2 Jan 2006 15:04:05 -0700", "2 Jan 2006 15:04:05 -0700", "2 January 2006 15:04:05", "2 January 2006 15:04",
	"2 January 2006", "2 Jan 2006 15:04:05", "2 Jan 2006 15:04", "2 Jan 2006", "January 2, 2006 15:04:05",
	"January 2, 2006 3:04 PM", "January 2, 2006 15:04", "January 2, 2006", "Jan 2, 2006 3:04 PM", "Jan 2, 2006 15:04",
	"Jan 2, 2006", "02-Jan-2006 15:04:05", "02-Jan-2006", "02-Jan-06 03:04 PM", "2006-01-02 15:04:05 -0700",
	"2006-01-02 15:04:05 MST", "2006-01-02 3:04 PM", "2006-01-02 3:04:05 PM",
}

// parseISO reads ISO 8601, also with a space before the zone.
func parseISO(text string, zone *time.Location) (time.Time, bool) {
	if text[0] < '0' || text[0] > '9' || len(text) < len("2006-01-02") || text[4] != '-' {
		return time.Time{}, false
	}
	if strings.HasSuffix(text, " UTC") {
		text = strings.TrimSuffix(text, " UTC") + "Z"
	}
	at, err := instant.Parse(text)
	if err != nil {
		return time.Time{}, false
	}
	if hasZone(text) {
		return at, true
	}
	return inZone(at, zone), true
}

// hasZone reports whether an ISO 8601 text names its zone.
func hasZone(text string) bool {
	_, clock, found := strings.Cut(strings.ToUpper(strings.Replace(text, " ", "T", 1)), "T")
	return found && strings.ContainsAny(clock, "Z+-\u2212")
}

// inZone reads the wall clock of a UTC time in a zone.
func inZone(at time.Time, zone *time.Location) time.Time {
	y, m, d := at.Date()
	return time.Date(y, m, d, at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), zone)
}

// numericTime is 12/05/2025, 10:15:30 PM with any of the usual separators.
var numericTime = regexp.MustCompile(`^(\d{1,4})([/.\-])(\d{1,2})[/.\-](\d{1,4})` +
	`(?:[,.]?[\s\x{202f}]+(?:at\s+|um\s+|à\s+)?(\d{1,2})[:.](\d{2})(?:[:.](\d{2}))?(?:[\s\x{202f}]*([aApP])\.?[mM]\.?)?)?$`)

func parseNumeric(text string, zone *time.Location, monthFirst bool) (time.Time, bool) {
	m := numericTime.FindStringSubmatch(text)
	if m == nil {
		return time.Time{}, false
	}
	a, b, c := number(m[1]), number(m[3]), number(m[4])
	year, month, day := c, b, a
	switch {
	case len(m[1]) == 4:
		year, day = a, c
	case m[2] == "/" && monthFirst, b > 12:
		month, day = a, b
	}
	if len(m[1]) < 3 && len(m[4]) <= 2 {
		year += 2000
	}
	hour, minute, second := number(m[5]), number(m[6]), number(m[7])
	switch strings.ToLower(m[8]) {
	case "p":
		if hour < 12 {
			hour += 12
		}
	case "a":
		if hour == 12 {
			hour = 0
		}
	}
	return civil(year, month, day, hour, minute, second, zone)
}

// civil returns a time that is on the calendar.
func civil(year, month, day, hour, minute, second int, zone *time.Location) (time.Time, bool) {
	if year < 1 || year > 9999 || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59 {
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

// The range in which a number is taken for a Unix time: from 2000 to 2100, in seconds.
const (
	firstUnix = 946_684_800
	lastUnix  = 4_102_444_800
)

// parseUnix reads seconds, milliseconds or microseconds since 1970.
func parseUnix(text string) (time.Time, bool) {
	whole, part, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || len(part) > 9 {
		return time.Time{}, false
	}
	switch {
	case n >= firstUnix && n <= lastUnix:
		nanos, err := strconv.ParseInt((part + "000000000")[:9], 10, 64)
		if err != nil {
			return time.Time{}, false
		}
		return time.Unix(n, nanos).UTC(), true
	case n >= firstUnix*1e3 && n <= lastUnix*1e3:
		return time.UnixMilli(n).UTC(), true
	case n >= firstUnix*1e6 && n <= lastUnix*1e6:
		return time.UnixMicro(n).UTC(), true
	}
	return time.Time{}, false
}

// isMonthFirst decides for dates with slashes whether the month is first: a second number beyond 12 shows
// it, else a clock with am or pm, unless a first number beyond 12 shows the opposite.
func isMonthFirst(samples []string) bool {
	half := false
	for _, s := range samples {
		m := numericTime.FindStringSubmatch(strings.TrimSpace(s[:min(len(s), maxTime)]))
		if m == nil || m[2] != "/" || len(m[1]) > 2 {
			continue
		}
		if number(m[1]) > 12 {
			return false
		}
		if number(m[3]) > 12 {
			return true
		}
		half = half || m[8] != ""
	}
	return half
}

// nameDate is a date in the name of a file, with a time of day or without.
var nameDate = regexp.MustCompile(`(?:^|[^0-9])(\d{4})([-_.]?)(\d{2})[-_.]?(\d{2})(?:[T _-]+(\d{2})[-_.:h]?(\d{2})[-_.:]?(\d{2})?)?(?:[^0-9]|$)`)

// dateInName returns the date that the path of a file names, the zero time for none.
func dateInName(path string, zone *time.Location) time.Time {
	path = path[max(0, len(path)-300):]
	found := nameDate.FindAllStringSubmatch(path, 8)
	for i := len(found) - 1; i >= 0; i-- {
		m := found[i]
		year := number(m[1])
		if year < 1900 || year > 2200 {
			continue
		}
		if at, ok := civil(year, number(m[3]), number(m[4]), number(m[5]), number(m[6]), number(m[7]), zone); ok {
			return at
		}
		if at, ok := civil(year, number(m[3]), number(m[4]), 0, 0, 0, zone); ok {
			return at
		}
	}
	return time.Time{}
}
