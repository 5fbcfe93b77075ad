// Package fields reads the members of the JSON objects that callers send, and names what is wrong with them. Each kind
// of object has the names that it knows.
package fields

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/cursor"
)

// Problem is one error in a request, listed in data.errors of an invalid-request.
type Problem struct {
	// Field is the path of the field, such as "items[3].content"; "" is the body as a whole.
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Problems collects the errors in the fields of a request.
type Problems struct {
	errors   []Problem
	misspelt int
}

// mostMisspelt is how many misspelt names of a request are named: an object may have millions of them.
const mostMisspelt = 10

// Add adds an error of a field.
func (p *Problems) Add(field, format string, args ...any) {
	p.errors = append(p.errors, Problem{field, fmt.Sprintf(format, args...)})
}

// CheckName adds a problem if a name that a place does not know misspells one of its names, or is that of another
// service for one. at is the path of the place.
func (p *Problems) CheckName(names Names, at string, name []byte) {
	if p.misspelt == mostMisspelt {
		return
	}
	if meant := names.misspelt(name); meant != "" {
		p.misspelt++
		p.Add(pathOf(at, string(name)), "did you mean %s?", meant)
	} else if here := names.foreignTo(name); here != "" {
		p.misspelt++
		p.Add(pathOf(at, string(name)), "%s", here)
	}
}

// Err returns an invalid-request that names every problem, nil if there is none.
func (p *Problems) Err() error {
	if len(p.errors) == 0 {
		return nil
	}
	messages := make([]string, len(p.errors))
	for i, e := range p.errors {
		messages[i] = strings.TrimPrefix(e.Field+": "+e.Message, ": ")
	}
	return fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s", strings.Join(messages, "; ")).With("errors", p.errors)
}

// Invalid returns an invalid-request about one field.
func Invalid(field, format string, args ...any) error {
	var p Problems
	p.Add(field, format, args...)
	return p.Err()
}

// Object reads the members of a JSON object. A null member counts as omitted, and
// unknown members are ignored unless they misspell a known one.
type Object struct {
	members  map[string][]byte
	at       string
	problems *Problems
}

// Decode reads the object at a path ("" for a body, "items[3]" for an item) into a value. The fault is that of read,
// or an invalid-request about what is no object, about names that misspell one of the names, or about the problems
// that read met. With a fault comes what could be read.
func Decode[T any](object []byte, at string, names Names, read func(Object) (T, error)) (T, error) {
	f := Object{at: at, problems: &Problems{}}
	members, ok := rawjson.Split(object, names.list, func(name []byte) { f.problems.CheckName(names, at, name) })
	if !ok {
		f.Problem("", "want an object, got %s", rawjson.KindOf(object))
	}
	f.members = members
	unread := f.problems.Err()
	v, err := read(f)
	return v, cmp.Or(unread, err, f.problems.Err())
}

// Problem adds a problem of a member, "" for the object itself.
func (f Object) Problem(name, format string, args ...any) {
	f.problems.Add(f.Path(name), format, args...)
}

// Err returns an invalid-request that names every problem so far, nil if there is none.
func (f Object) Err() error { return f.problems.Err() }

// Path returns the path of a member, "" for the object itself.
func (f Object) Path(name string) string { return pathOf(f.at, name) }

func pathOf(at, name string) string {
	switch {
	case at == "":
		return name
	case name == "":
		return at
	}
	return at + "." + name
}

// Raw returns the JSON of a member as sent, nil if it is omitted. Unlike the other methods, it
// returns null as a value.
func (f Object) Raw(name string) json.RawMessage { return f.members[name] }

// Has reports whether a member exists and is not null.
func (f Object) Has(name string) bool {
	value, ok := f.members[name]
	return ok && rawjson.KindOf(value) != rawjson.Null
}

// Text returns a string member, nil if it is omitted or not a string.
func (f Object) Text(name string) *string {
	if !f.Has(name) {
		return nil
	}
	text, ok := rawjson.Text(f.members[name])
	if !ok {
		f.Problem(name, "want a string, got %s", rawjson.KindOf(f.members[name]))
		return nil
	}
	return &text
}

// Boolean returns a member that is true or false, nil if it is omitted or neither.
func (f Object) Boolean(name string) *bool {
	if !f.Has(name) {
		return nil
	}
	var value bool
	if json.Unmarshal(f.members[name], &value) != nil {
		f.Problem(name, "want true or false, got %s", rawjson.KindOf(f.members[name]))
		return nil
	}
	return &value
}

// Name returns a string member of least to most characters without U+0000, nil if it is omitted or
// invalid.
func (f Object) Name(name string, least, most int) *string {
	text := f.Text(name)
	if text == nil {
		return nil
	}
	if err := CheckName(*text, least, most); err != nil {
		f.Problem(name, "%v", err)
		return nil
	}
	return text
}

// DistinctNames returns the names of a member that is an array of strings of 1 to longest characters: each once, in
// the order of its first mention. It reads no further than one name more than most. The fault is invalid-request.
func (f Object) DistinctNames(name string, longest, most int) ([]string, error) {
	if kind := rawjson.KindOf(f.members[name]); kind != rawjson.Array {
		return nil, Invalid(f.Path(name), "want an array, got %s", kind)
	}
	names, seen := []string{}, map[string]bool{}
	for i, element := range rawjson.Elements(f.members[name]) {
		at := fmt.Sprintf("%s[%d]", f.Path(name), i)
		text, ok := rawjson.Text(element)
		if !ok {
			return nil, Invalid(at, "want a string, got %s", rawjson.KindOf(element))
		}
		if wrong := CheckName(text, 1, longest); wrong != nil {
			return nil, Invalid(at, "%v", wrong)
		}
		if !seen[text] {
			seen[text] = true
			names = append(names, text)
		}
		if len(names) > most {
			break
		}
	}
	return names, nil
}

// CheckName returns an error for a name with a wrong length in code points, or with U+0000.
func CheckName(text string, least, most int) error {
	n := utf8.RuneCountInString(text)
	switch {
	case n < least && n == 0:
		return fmt.Errorf("is empty")
	case n < least || n > most:
		return fmt.Errorf("has %d characters: want %d to %d", n, least, most)
	case strings.ContainsRune(text, 0):
		return fmt.Errorf("holds U+0000")
	}
	return nil
}

// Instant returns an ISO 8601 member in UTC at microsecond precision, nil if it is omitted or
// invalid.
func (f Object) Instant(name string) *time.Time {
	w := f.Written(name)
	if w == nil {
		return nil
	}
	return new(w.At.UTC())
}

// Written returns an ISO 8601 member as it is written, nil if it is omitted or invalid.
func (f Object) Written(name string) *instant.Written {
	text := f.Text(name)
	if text == nil {
		return nil
	}
	w, err := instant.Read(*text)
	if err != nil {
		f.Problem(name, "want an ISO 8601 instant: %v", err)
		return nil
	}
	return &w
}

// Integer returns an integer member from least to most, nil if it is omitted or invalid. A number
// without a fraction is an integer in every notation.
func (f Object) Integer(name string, least, most int) *int {
	number, ok := f.integer(name)
	if !ok {
		return nil
	}
	if number < float64(least) || number > float64(most) {
		f.Problem(name, "is %.40s: want %d to %d", f.members[name], least, most)
		return nil
	}
	n := int(number)
	return &n
}

// IntegerMax returns an integer member of at least least, reduced to most if it is larger; nil if
// it is omitted or invalid.
func (f Object) IntegerMax(name string, least, most int) *int {
	number, ok := f.integer(name)
	if !ok {
		return nil
	}
	if number < float64(least) {
		f.Problem(name, "is %.40s: want at least %d", f.members[name], least)
		return nil
	}
	n := int(min(number, float64(most)))
	return &n
}

func (f Object) integer(name string) (number float64, ok bool) {
	if !f.Has(name) {
		return 0, false
	}
	if kind := rawjson.KindOf(f.members[name]); kind != rawjson.Number {
		f.Problem(name, "want an integer, got %s", kind)
		return 0, false
	}
	// A number too big for a float64 becomes an infinity, which is outside every range.
	number, err := strconv.ParseFloat(string(f.members[name]), 64)
	if err != nil && !math.IsInf(number, 0) || number != math.Trunc(number) {
		f.Problem(name, "want an integer, got %.40s", f.members[name])
		return 0, false
	}
	return number, true
}

// CheckParameter adds a problem if a parameter of a query is no text of 1 to most characters.
func (p *Problems) CheckParameter(name, value string, most int) {
	if !utf8.ValidString(value) {
		p.Add(name, "is not UTF-8")
	} else if err := CheckName(value, 1, most); err != nil {
		p.Add(name, "%v", err)
	}
}

// Instant reads a parameter of a query that is an instant, nil if it is empty or wrong.
func (p *Problems) Instant(name, value string) *instant.Written {
	if value == "" {
		return nil
	}
	w, err := instant.Read(value)
	if err != nil {
		p.Add(name, "want an ISO 8601 instant: %v", err)
		return nil
	}
	return &w
}

// Count reads a parameter of a query that is a number from 1 to most. An empty one is otherwise.
func (p *Problems) Count(name, value string, most, otherwise int) int {
	if value == "" {
		return otherwise
	}
	count, err := strconv.Atoi(value)
	if err != nil || count < 1 || count > most {
		p.Add(name, "want an integer from 1 to %d, got %.40q", most, value)
	}
	return count
}

// Cursor reads a parameter of a query that is the end of a page of a list, nil if it is empty.
func (p *Problems) Cursor(name, value, list string) *cursor.Cursor {
	if value == "" {
		return nil
	}
	at, err := cursor.Parse(value)
	if err != nil {
		p.Add(name, "is not an endCursor of a list of %s", list)
	}
	return &at
}

// DataPoint is a data point as sent. Nil means omitted.
type DataPoint struct {
	Content   string
	ID        *string
	Label     *string
	Timestamp *time.Time
	// Metadata is the JSON as sent: "null" if the caller sent null.
	Metadata json.RawMessage
	// Audience is a slug; nil or "project" means project-visible.
	Audience *string
	Identity *string
	// Private means that Identity alone may read it. Then Audience is nil. Other payloads have the same fingerprint with
	// this field as without it.
	Private bool `json:",omitempty"`
}

// DataPointNames are the names of the fields of a data point.
var DataPointNames = NewNames("content", "id", "label", "timestamp", "metadata", "audience", "identity",
	"private").
	WithForeign("userid", "no such field: did you mean identity (whose text it is) or audience (who may read it)?").
	WithForeign("agentid", "no such field: did you mean identity (whose text it is)?").
	WithForeign("groupid", "no such field: did you mean audience (who may read it)?").
	WithForeign("scope", "no such field: did you mean audience (who may read it)?").
	WithForeign("runid", "no such field: did you mean metadata, which recall returns?").
	WithForeign("tags", "no such field: did you mean metadata, which recall returns?")

// DataPointOf reads a data point for Decode. It checks the fields against their limits, except the size of the
// content.
func DataPointOf(f Object) (DataPoint, error) {
	in := DataPoint{
		ID:        f.Name("id", 1, limit.SourceID),
		Label:     f.Name("label", 0, limit.Label),
		Timestamp: f.Instant("timestamp"),
		Audience:  f.Text("audience"),
		Identity:  f.Name("identity", 1, limit.Identity),
	}
	if private := f.Boolean("private"); private != nil && *private {
		in.Private = true
		switch {
		case in.Audience != nil:
			f.Problem("private", "excludes an audience")
		case !f.Has("identity"):
			f.Problem("private", "needs the identity that may read it")
		}
	}
	content := f.Text("content")
	switch {
	case content != nil:
		in.Content = *content
		if strings.TrimSpace(in.Content) == "" {
			f.Problem("content", "is empty or white space")
		}
	case !f.Has("content"):
		f.Problem("content", "is required")
	}
	metadata := f.Raw("metadata")
	if len(metadata) > limit.MetadataBytes {
		f.Problem("metadata", "has %d bytes of JSON: want at most %d", len(metadata), limit.MetadataBytes)
	}
	// A copy, so that a small piece of metadata does not keep a big body in memory.
	in.Metadata = bytes.Clone(metadata)
	return in, nil
}
