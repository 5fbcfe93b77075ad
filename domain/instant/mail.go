package instant

import (
	"errors"
	"net/mail"
	"strings"
	"time"
)

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
