package comprehend

import (
	"strings"
	"time"

	"github.com/annals-project/annals/domain/memory"
)

// readAnchors resolves the date expressions of a sentence. A question about today has none.
func readAnchors(d *document, s *sentence) []draft {
	var drafts []draft
	for _, date := range s.dates {
		if first := s.tokens[date.from].low; s.question && (first == "today" || first == "tonight" || first == "this") {
			continue
		}
		drafts = append(drafts,
			draft{kind: memory.TemporalAnchor, line: anchorLine(s, date, d.occurredAt), from: date.start, to: date.end})
	}
	return drafts
}

// anchorLine returns a line as `"next Tuesday", said on 12 May 2025, is 13 May 2025`. A date that
// is complete as written does not depend on the time of the sentence; only its weekday is added.
func anchorLine(s *sentence, date dated, occurredAt time.Time) string {
	expression := flat(s.text[s.tokens[date.from].at:s.tokens[date.to-1].end()])
	if date.relative {
		return `"` + expression + `", said on ` + occurredAt.Format("2 January 2006") + `, is ` + date.describe()
	}
	resolved := date.describe()
	if date.start.AddDate(0, 0, 1).Equal(date.end) || date.clock {
		resolved = date.start.Format("Monday, ") + resolved
	}
	return `"` + expression + `" is ` + resolved
}

// AnchorPeriod returns the span that the line of a temporal anchor names, in days of UTC.
func AnchorPeriod(line string) (p Period, ok bool) {
	at := strings.LastIndex(line, " is ")
	if at < 0 {
		return p, false
	}
	first, last, isRange := strings.Cut(line[at+len(" is "):], " to ")
	if p, ok = describedPeriod(first); !ok || !isRange {
		return p, ok
	}
	until, ok := describedPeriod(last)
	p.End = until.End
	return p, ok
}

// describedPeriod reads what describe writes of one day, month or year.
func describedPeriod(text string) (p Period, ok bool) {
	for _, of := range []struct {
		layout              string
		years, months, days int
	}{
		{"2 January 2006", 0, 0, 1},
		{"2 January 2006, 15:04", 0, 0, 1},
		{"Monday, 2 January 2006", 0, 0, 1},
		{"Monday, 2 January 2006, 15:04", 0, 0, 1},
		{"January 2006", 0, 1, 0},
		{"2006", 1, 0, 0},
	} {
		if start, err := time.Parse(of.layout, text); err == nil {
			start = midnight(start)
			return Period{start, start.AddDate(of.years, of.months, of.days)}, true
		}
	}
	return p, false
}
