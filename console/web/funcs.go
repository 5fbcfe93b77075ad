package web

import (
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// funcs are what templates call besides the methods of a view.
func (s *Site) funcs() template.FuncMap {
	return template.FuncMap{
		"path":   func(parts ...string) string { return Path(parts...) },
		"asset":  func(name string) string { return s.static.url(name) },
		"count":  count,
		"total":  Total[int64],
		"cut":    Cut,
		"join":   strings.Join,
		"bytes":  size,
		"credit": credits,
		"list":   func(items ...string) []string { return items },
		"dict":   dict,
		"plural": func(n int, one, many string) string {
			if n == 1 {
				return one
			}
			return many
		},
	}
}

// dict makes the data of a shared part from names and values in turn.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict has a name without a value")
	}
	d := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("a name of dict is a %T", pairs[i])
		}
		d[name] = pairs[i+1]
	}
	return d, nil
}

// count shows a number with separators of thousands.
func count(n any) string {
	switch n := n.(type) {
	case int:
		return humanize.Comma(int64(n))
	case int64:
		return humanize.Comma(n)
	case uint64:
		return humanize.Comma(int64(min(n, math.MaxInt64))) //nolint:gosec // not above
	case *int64:
		if n != nil {
			return humanize.Comma(*n)
		}
	}
	return "–"
}

// size shows a number of bytes, a dash for none.
func size(n any) string {
	switch n := n.(type) {
	case int:
		return size(int64(n))
	case int64:
		return humanize.IBytes(uint64(max(n, 0))) //nolint:gosec // not negative
	case *int64:
		if n != nil {
			return size(*n)
		}
	case *uint64:
		if n != nil {
			return humanize.IBytes(*n)
		}
	}
	return "–"
}

// credits shows credits from tenths or from the decimal of an answer, a dash for none.
func credits(n any) string {
	switch n := n.(type) {
	case int64:
		whole, tenth := n/10, n%10
		if tenth == 0 {
			return humanize.Comma(whole)
		}
		return humanize.Comma(whole) + "." + strconv.FormatInt(max(tenth, -tenth), 10)
	case *int64:
		if n != nil {
			return credits(*n)
		}
	case json.Number:
		if n != "" {
			return n.String()
		}
	case *json.Number:
		if n != nil {
			return n.String()
		}
	}
	return "–"
}

// timeTag shows an instant in a zone, and in UTC when pointed at.
func timeTag(at any, zone *time.Location) template.HTML {
	var t time.Time
	switch at := at.(type) {
	case time.Time:
		t = at
	case *time.Time:
		if at != nil {
			t = *at
		}
	}
	if t.IsZero() {
		return "–"
	}
	utc := t.UTC().Format("2006-01-02 15:04:05.999") + " UTC"
	shown := t.In(zone).Format("2006-01-02 15:04:05")
	if zone == time.UTC {
		shown += " UTC"
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, //nolint:gosec // digits alone
		t.UTC().Format(time.RFC3339Nano), utc, shown))
}

// Cut shortens a text to some characters for a table.
func Cut(text string, most int) string {
	n := 0
	for i := range text {
		if n++; n > most {
			return strings.TrimSpace(text[:i]) + "…"
		}
	}
	return text
}
