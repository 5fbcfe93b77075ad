package webhook

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
)

// Mapping maps bodies by settings that were checked.
type Mapping struct {
	paths rawjson.Paths
	// These are the numbers of values.
	content, occurredAt, id int
	conditions              []condition
}

// unset is the number of a path that is not set.
const unset = whole - 1

// add adds a path and returns the number of its value.
func (m *Mapping) add(p Path) int {
	if len(p.steps) == 0 {
		return whole
	}
	return m.paths.Add(p.steps)
}

// Compile checks settings. Its fault is invalid-request, which names the setting.
func (s Settings) Compile() (*Mapping, error) {
	if err := s.checkSizes(); err != nil {
		return nil, err
	}
	m := &Mapping{occurredAt: unset, id: unset}
	for _, p := range []struct {
		name   string
		text   string
		number *int
	}{
		{"content path", s.ContentPath, &m.content},
		{"occurred-at path", s.OccurredAtPath, &m.occurredAt},
		{"id path", s.IDPath, &m.id},
	} {
		if p.text == "" && p.number != &m.content {
			continue
		}
		path, err := ParsePath(p.text)
		if err != nil {
			return nil, invalid("%s: %v", p.name, err)
		}
		*p.number = m.add(path)
	}
	if s.Audience != "" && !audience.ValidSlug(s.Audience) {
		return nil, invalid("audience: %.50q is no slug of an audience", s.Audience)
	}
	for i, f := range s.Filters {
		c, err := f.compile()
		if err != nil {
			return nil, invalid("filter %d: %v", i+1, err)
		}
		c.value = m.add(c.path)
		if c.Operator == Contains && c.value != whole {
			c.equals = m.paths.Watch(c.path.steps, c.Values[0])
		}
		m.conditions = append(m.conditions, c)
	}
	return m, nil
}

func (s Settings) checkSizes() error {
	if n := utf8.RuneCountInString(s.Name); n > limit.WebhookName || strings.TrimSpace(s.Name) == "" ||
		strings.ContainsRune(s.Name, 0) || !utf8.ValidString(s.Name) {
		return invalid("name: want 1 to %d characters that are not all white space, without U+0000", limit.WebhookName)
	}
	if n := len(s.Filters); n > limit.WebhookFilters {
		return invalid("filters: there are %d, want at most %d", n, limit.WebhookFilters)
	}
	size := 0
	for _, f := range s.Filters {
		for _, v := range f.Values {
			if size += len(v); !utf8.ValidString(v) {
				return invalid("filters: a value is not UTF-8")
			}
		}
	}
	if size > limit.WebhookFilterBytes {
		return invalid("filters: their values have %d bytes together, want at most %d", size, limit.WebhookFilterBytes)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s", fmt.Sprintf(format, args...))
}

// Map returns what a body becomes. Filters decide in their order, before the content is looked for. A body
// that is not JSON is content as a whole, which no filter matches.
func (m *Mapping) Map(body []byte) (e Event) {
	if !json.Valid(body) {
		if len(m.conditions) > 0 {
			return Event{DroppedBy: m.conditions[0].String()}
		}
		if e.Content = textOf(body); strings.TrimSpace(e.Content) == "" {
			return Event{DroppedBy: NoContent}
		}
		return e
	}
	in := &event{body: body, found: m.paths.Find(body)}
	for _, c := range m.conditions {
		if !c.matches(in) {
			return Event{DroppedBy: c.String()}
		}
	}
	if v, ok := in.value(m.content); ok {
		e.Content = v.text()
	}
	if strings.TrimSpace(e.Content) == "" {
		return Event{DroppedBy: NoContent}
	}
	if m.occurredAt != unset {
		if v, ok := in.value(m.occurredAt); ok {
			e.OccurredAt = timeOf(v)
		}
	}
	if m.id != unset {
		if v, ok := in.value(m.id); ok {
			e.ID = idOf(v)
		}
	}
	return e
}

// Matches reports of each filter whether a body passes it.
func (m *Mapping) Matches(body []byte) []bool {
	passes := make([]bool, len(m.conditions))
	if !json.Valid(body) {
		return passes
	}
	in := &event{body: body, found: m.paths.Find(body)}
	for i, c := range m.conditions {
		passes[i] = c.matches(in)
	}
	return passes
}

// idOf returns a string, and the JSON text of a number or boolean, "" for what cannot be an id.
func idOf(v value) string {
	if v.kind == rawjson.Object || v.kind == rawjson.Array {
		return ""
	}
	id := v.text()
	if utf8.RuneCountInString(id) > limit.WebhookID || strings.ContainsRune(id, 0) {
		return ""
	}
	return id
}

// timeOf reads ISO 8601, the form of mail, or Unix time as a number or a string of digits; the zero time for anything
// else.
func timeOf(v value) time.Time {
	if v.kind != rawjson.String && v.kind != rawjson.Number || len(v.raw) > longestTime {
		return time.Time{}
	}
	text := v.text()
	if at, ok := unixTime(text); ok {
		return at
	}
	if v.kind != rawjson.String {
		return time.Time{}
	}
	text = strings.TrimSpace(text)
	if at, err := instant.Parse(text); err == nil {
		return at
	}
	if at, err := instant.ParseMail(text); err == nil {
		return at
	}
	return time.Time{}
}

const (
	// longestTime is how long a text may be that is read as a time.
	longestTime = 64
	// millisFrom is the number from which on a Unix time is in milliseconds: in seconds, it is in the year
	// 5138.
	millisFrom = 100_000_000_000
	// unixDigits bounds the whole digits of a Unix time, so that its microseconds do not overflow.
	unixDigits = 15
)

// unixTime reads seconds or milliseconds since 1970 with their fraction, cut to microseconds. ok is false
// for a text that is no such number.
func unixTime(text string) (at time.Time, ok bool) {
	if strings.ContainsAny(text, "eE") {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.Abs(n) >= 1e15 {
			return time.Time{}, false
		}
		text = strconv.FormatFloat(n, 'f', 6, 64)
	}
	digits, negative := strings.CutPrefix(text, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	if whole == "" || len(whole) > unixDigits || strings.Trim(whole, "0123456789") != "" ||
		strings.Trim(fraction, "0123456789") != "" {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	places := 6 // of the fraction, down to a microsecond
	if n >= millisFrom {
		places = 3
	}
	micros, err := strconv.ParseInt(whole+(fraction + "000000")[:places], 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	if negative {
		micros = -micros
	}
	if at = time.UnixMicro(micros).UTC(); at.Year() < 1 || at.Year() > 9999 {
		return time.Time{}, false
	}
	return at, true
}
