package estimate

import (
	"regexp"
	"strings"
	"time"
)

// nameDate is a date in the name of a file, with a time of day or without. What stands directly before or after it may
// be its zone.
var nameDate = regexp.MustCompile(`(?:^|([^0-9]))(\d{4})([-_.]?)(\d{2})[-_.]?(\d{2})` +
	`(?:[Tt _-]+(?:at )?(\d{2})[-_.:h]?(\d{2})[-_.:m]?(\d{2})?)?` +
	`(?:\.\d{1,9})?(?:[ _-]?(Z|UTC|GMT|[+-]\d{2}[:.]?\d{2}))?(?:[^0-9]|$)`)

// dateInName returns the date that the path of a file names, the zero time for none. One that names its zone, as
// GMT20250512-170000 and 20250512T170000Z do, is in that.
func dateInName(path string, zone *time.Location) time.Time {
	path = path[max(0, len(path)-300):]
	found := nameDate.FindAllStringSubmatchIndex(path, 8)
	for i := len(found) - 1; i >= 0; i-- {
		at := found[i]
		group := func(n int) string {
			if at[2*n] < 0 {
				return ""
			}
			return path[at[2*n]:at[2*n+1]]
		}
		year := number(group(2))
		if year < 1900 || year >= lastYear {
			continue
		}
		in := zone
		if group(6) != "" {
			in = nameZone(path[:at[4]], group(9), zone)
		}
		month, day := number(group(4)), number(group(5))
		if at, ok := civil(year, month, day, number(group(6)), number(group(7)), number(group(8)), in); ok {
			return at
		}
		if at, ok := civil(year, month, day, 0, 0, 0, zone); ok {
			return at
		}
	}
	return time.Time{}
}

// nameZone returns the zone that is written around a time in a name.
func nameZone(before, after string, zone *time.Location) *time.Location {
	upper := strings.ToUpper(strings.TrimRight(before, "-_ "))
	switch {
	case after == "Z" || after == "UTC" || after == "GMT":
		return time.UTC
	case strings.HasSuffix(upper, "GMT") || strings.HasSuffix(upper, "UTC"):
		return time.UTC
	case after == "":
		return zone
	}
	if at, err := time.Parse("-0700", strings.NewReplacer(":", "", ".", "").Replace(after)); err == nil {
		return at.Location()
	}
	return zone
}
