package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// funcs are what templates call besides the methods of a view.
func (s *Site) funcs() template.FuncMap {
	return template.FuncMap{
		"path":   Path,
		"asset":  s.static.url,
		"count":  count,
		"total":  Total[int64],
		"cut":    Cut,
		"join":   strings.Join,
		"bytes":  size,
		"credit": credits,
		"list":   func(items ...string) []string { return items },
		"dict":   dict,
		"once":   onceField,
		"token":  formToken,
		"ask":    func(key string) string { return words.ask[key] },
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
	d := make(map[string]any, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		name, ok := pair[0].(string)
		if !ok || len(pair) < 2 {
			return nil, fmt.Errorf("dict wants names and values, and got %v", pairs)
		}
		d[name] = pair[1]
	}
	return d, nil
}

// none is what is shown where there is no value.
const none = "–"

// value is what a pointer points to, or a value itself; nil for a pointer to nothing.
func value(of any) any {
	if v := reflect.Indirect(reflect.ValueOf(of)); v.IsValid() {
		return v.Interface()
	}
	return nil
}

// count shows a number with separators of thousands.
func count(n any) string {
	switch n := value(n).(type) {
	case int:
		return humanize.Comma(int64(n))
	case int64:
		return humanize.Comma(n)
	case uint64:
		return humanize.Comma(int64(min(n, math.MaxInt64))) //nolint:gosec // not above
	}
	return none
}

// size shows a number of bytes.
func size(n any) string {
	switch n := value(n).(type) {
	case int:
		return size(int64(n))
	case int64:
		return humanize.IBytes(uint64(max(n, 0))) //nolint:gosec // not negative
	case uint64:
		return humanize.IBytes(n)
	}
	return none
}

// credits shows credits from tenths or from the decimal of an answer.
func credits(n any) string {
	switch n := value(n).(type) {
	case int64:
		if n%10 != 0 {
			return humanize.Comma(n/10) + "." + strconv.FormatInt(max(n%10, -n%10), 10)
		}
		return humanize.Comma(n / 10)
	case json.Number:
		return cmp.Or(n.String(), none)
	}
	return none
}

// timeTag shows an instant in a zone, and in UTC when pointed at.
func timeTag(at any, zone *time.Location) template.HTML {
	t, _ := value(at).(time.Time)
	if t.IsZero() {
		return none
	}
	utc, shown := t.UTC().Format("2006-01-02 15:04:05.999")+" UTC", t.In(zone).Format("2006-01-02 15:04:05")
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
