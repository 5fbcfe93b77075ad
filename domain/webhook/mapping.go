// Package webhook maps events of other systems to data points: where in the body of an event the
// text, the time and the id are, and which events are ingested at all.
package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"mime"
	"mime/multipart"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/charset"
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

// Settings are what a webhook does with its events. Paths are written as ParsePath reads them.
type Settings struct {
	// Name has 1 to limit.WebhookName characters.
	Name string `json:"name"`
	// ContentPath leads to the text of the data point. It is required.
	ContentPath string `json:"contentPath"`
	// OccurredAtPath leads to the timestamp, "" for the time of receipt.
	OccurredAtPath string `json:"occurredAtPath,omitempty"`
	// IDPath leads to the id of the data point, "" for the id of the event.
	IDPath string `json:"idPath,omitempty"`
	// Audience is the slug of an audience of the project, "" for project-visible.
	Audience string `json:"audience,omitempty"`
	// Filters are at most limit.WebhookFilters. An event is ingested only if all of them match.
	Filters []Filter `json:"filters,omitempty"`
}

// Filter is a condition on an event.
type Filter struct {
	Path     string   `json:"path"`
	Operator Operator `json:"operator"`
	// Values is one value for Is and Contains, 1 to limit.WebhookFilterValues for IsAnyOf, none for
	// Exists.
	Values []string `json:"values,omitempty"`
}

// Operator is how a filter compares.
type Operator string

// The operators.
const (
	Is       Operator = "is"
	IsAnyOf  Operator = "is any of"
	Contains Operator = "contains"
	Exists   Operator = "exists"
)

// Event is what a body becomes.
type Event struct {
	// DroppedBy is why the event is not ingested, "" if it is: the first filter that does not match,
	// or NoContent.
	DroppedBy string
	// Content is valid UTF-8 and not blank.
	Content string
	// OccurredAt is zero if it is the time of receipt.
	OccurredAt time.Time
	// ID is "" if it is the id of the event.
	ID string
}

// NoContent is Event.DroppedBy if the content path leads to nothing or to a blank text.
const NoContent = "content path resolved to nothing"

// String returns a filter as Event.DroppedBy names it: path, operator and values.
func (f Filter) String() string {
	text := f.Path + " " + string(f.Operator)
	if len(f.Values) > 0 {
		text += " " + strings.Join(f.Values, ", ")
	}
	return text
}

// anyOfWord is how ParseFilter reads IsAnyOf.
const anyOfWord = "is-any-of"

// ParseFilter reads "PATH is VALUE", "PATH contains VALUE", "PATH exists", and "PATH is-any-of VALUE
// VALUE …". The value of is and contains is the rest of the text. Those of is-any-of end at white space;
// one with white space is written as a JSON string. The error is for the person who wrote the filter.
func ParseFilter(expression string) (Filter, error) {
	path, rest, err := readPath(strings.TrimSpace(expression))
	if err != nil {
		return Filter{}, err
	}
	if rest != "" && rest[0] != ' ' {
		return Filter{}, fmt.Errorf("unexpected %.20q after the path", rest)
	}
	operator, values, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	f := Filter{Path: path.String()}
	switch operator {
	case string(Is), string(Contains):
		f.Operator, f.Values = Operator(operator), []string{values}
		if values == "" {
			f.Values = nil
		}
	case string(Exists):
		f.Operator = Exists
		if values = strings.TrimSpace(values); values != "" {
			return Filter{}, fmt.Errorf("exists takes no value, and %.20q follows it", values)
		}
	case anyOfWord:
		f.Operator = IsAnyOf
		if f.Values, err = splitValues(values); err != nil {
			return Filter{}, err
		}
	default:
		return Filter{}, fmt.Errorf("%.20q is no operator: want is, %s, contains or exists", operator, anyOfWord)
	}
	_, err = f.compile()
	return f, err
}

// Expression returns a filter as ParseFilter reads it, on one line unless a value of Contains has several. Is of a
// value that the text of an expression cannot end with becomes IsAnyOf of this value.
func (f Filter) Expression() string {
	quoted := f.Operator == IsAnyOf || f.Operator == Is && len(f.Values) == 1 &&
		(f.Values[0] == "" || f.Values[0] != strings.TrimSpace(f.Values[0]) || strings.ContainsAny(f.Values[0], "\r\n"))
	if !quoted {
		return strings.Join(append([]string{f.Path, string(f.Operator)}, f.Values...), " ")
	}
	text := f.Path + " " + anyOfWord
	for _, v := range f.Values {
		if v == "" || v[0] == '"' || strings.ContainsFunc(v, unicode.IsSpace) {
			encoded, err := json.Marshal(v)
			if err != nil {
				return text // unreachable: a string
			}
			v = string(encoded)
		}
		text += " " + v
	}
	return text
}

// splitValues splits words and JSON strings.
func splitValues(text string) (values []string, err error) {
	for text = strings.TrimLeft(text, " "); text != ""; text = strings.TrimLeft(text, " ") {
		var value string
		if text[0] != '"' {
			value, text, _ = strings.Cut(text, " ")
			values = append(values, value)
			continue
		}
		in := strings.NewReader(text)
		decoder := json.NewDecoder(in)
		if err := decoder.Decode(&value); err != nil {
			return nil, fmt.Errorf("%.20q is no JSON string: %w", text, err)
		}
		rest, err := io.ReadAll(io.MultiReader(decoder.Buffered(), in))
		if err != nil {
			return nil, err
		}
		if text = string(rest); text != "" && text[0] != ' ' {
			return nil, fmt.Errorf("unexpected %.20q after a value", text)
		}
		values = append(values, value)
	}
	return values, nil
}

// condition is a filter that was checked, with the numbers by which its value is found and whether an element of it
// equals the value of Contains.
type condition struct {
	Filter
	path          Path
	value, equals int
}

// compile checks a filter. The error is for the person who wrote it.
func (f Filter) compile() (condition, error) {
	path, err := ParsePath(f.Path)
	if err != nil {
		return condition{}, fmt.Errorf("path: %w", err)
	}
	least, most := 1, 1
	switch f.Operator {
	case Is, Contains:
	case IsAnyOf:
		most = limit.WebhookFilterValues
	case Exists:
		least, most = 0, 0
	default:
		return condition{}, fmt.Errorf("%.20q is no operator: want %q, %q, %q or %q",
			f.Operator, Is, IsAnyOf, Contains, Exists)
	}
	if n := len(f.Values); n < least || n > most {
		want := fmt.Sprintf("%d to %d", least, most)
		if least == most {
			want = fmt.Sprint(least)
		}
		return condition{}, fmt.Errorf("%q has %d values: want %s", f.Operator, n, want)
	}
	return condition{Filter: f, path: path}, nil
}

// matches reports whether an event passes.
func (c condition) matches(e *event) bool {
	v, ok := e.value(c.value)
	switch {
	case !ok:
		return false
	case c.Operator == Exists:
		return true
	case c.Operator == Contains && v.kind == rawjson.String:
		return strings.Contains(v.text(), c.Values[0])
	case c.Operator == Contains:
		return e.found.Holds[c.equals]
	default:
		return slices.ContainsFunc(c.Values, v.equals)
	}
}

// Plain returns the body of an event as UTF-8 without a byte order mark, by the charset that its Content-Type names if
// that is known. A form with one field whose value is a JSON object is that object: GitHub and Slack send events so.
// Any other body stays as it came. "" is the type of a body of which none is known.
func Plain(contentType string, body []byte) []byte {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind, _, _ = strings.Cut(contentType, ";")
		kind = strings.ToLower(strings.TrimSpace(kind))
	}
	from := encodingOf(params["charset"], body)
	plain := decoded(from, body)
	if json.Valid(plain) {
		return plain
	}
	if from != nil && json.Valid(body) {
		return body // the charset that is named is wrong
	}
	var value []byte
	switch kind {
	case "application/x-www-form-urlencoded", "":
		value = formValue(plain)
	case "multipart/form-data":
		value = partValue(body, params["boundary"])
	}
	if value = bytes.TrimSpace(decoded(from, value)); len(value) > 0 && value[0] == '{' && json.Valid(value) {
		return value
	}
	return plain
}

// encodingOf returns the encoding of a body: by its byte order mark, else by the charset that is named. It is nil for
// UTF-8 and for a charset that is not known.
func encodingOf(name string, body []byte) encoding.Encoding {
	switch {
	case bytes.HasPrefix(body, []byte("\xff\xfe")), bytes.HasPrefix(body, []byte("\xfe\xff")):
		return charset.Of("utf-16")
	case bytes.HasPrefix(body, byteOrderMark) || isUTF8(name):
		return nil
	}
	return charset.Of(name)
}

func isUTF8(name string) bool {
	switch strings.ToLower(name) {
	case "", "utf-8", "utf8", "us-ascii", "ascii":
		return true
	}
	return false
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// decoded returns a text in UTF-8 without a byte order mark.
func decoded(from encoding.Encoding, text []byte) []byte {
	if from != nil {
		if plain, err := from.NewDecoder().Bytes(text); err == nil {
			text = plain
		}
	}
	return bytes.TrimPrefix(text, byteOrderMark)
}

// formValue returns the value of the only field of a form, nil for another text.
func formValue(body []byte) []byte {
	name, value, ok := bytes.Cut(bytes.TrimSpace(body), []byte("="))
	if !ok || len(name) == 0 || bytes.IndexByte(value, '&') >= 0 || !utf8.Valid(name) {
		return nil
	}
	plain, err := url.QueryUnescape(string(value))
	if err != nil {
		return nil
	}
	return []byte(plain)
}

// partValue returns the only part of a form of parts, nil for another.
func partValue(body []byte, boundary string) []byte {
	if boundary == "" {
		return nil
	}
	parts := multipart.NewReader(bytes.NewReader(body), boundary)
	first, err := parts.NextPart()
	if err != nil {
		return nil
	}
	value, err := io.ReadAll(first)
	if err != nil {
		return nil
	}
	if _, err := parts.NextPart(); err == nil {
		return nil
	}
	return value
}
