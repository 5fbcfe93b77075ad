package httpx

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/rawjson"
)

// FieldError is one error in a request, listed in data.errors of an invalid-request.
type FieldError struct {
	// Field is the path of the field, such as "items[3].content"; "" is the body as a whole.
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Problems collects the errors in the fields of a request.
type Problems struct {
	errors   []FieldError
	misspelt int
}

// mostMisspelt is how many misspelt names of a request are named: an object may have millions of them.
const mostMisspelt = 10

// Add adds an error of a field.
func (p *Problems) Add(field, format string, args ...any) {
	p.errors = append(p.errors, FieldError{field, fmt.Sprintf(format, args...)})
}

// checkName adds a problem if a name that a place does not know misspells one of its names. at is the path of the
// place.
func (p *Problems) checkName(names Names, at string, name []byte) {
	if p.misspelt == mostMisspelt {
		return
	}
	if meant := names.misspelt(name); meant != "" {
		p.misspelt++
		p.Add(pathOf(at, string(name)), "did you mean %s?", meant)
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

// Fields reads the members of a JSON object. A null member counts as omitted, and
// unknown members are ignored unless they misspell a known one.
type Fields struct {
	members  map[string][]byte
	at       string
	problems *Problems
}

// FieldsOf reads the named members of the object at a path ("" for the body, "items[3]" for an
// item). A value that is not an object is a problem, and has no members. A name that misspells one of the names is a
// problem.
func FieldsOf(object []byte, at string, problems *Problems, names Names) Fields {
	members, ok := rawjson.Split(object, names.list, func(name []byte) { problems.checkName(names, at, name) })
	if !ok {
		problems.Add(at, "want an object, got %s", rawjson.KindOf(object))
	}
	return Fields{members: members, at: at, problems: problems}
}

// Path returns the path of a member.
func (f Fields) Path(name string) string { return pathOf(f.at, name) }

func pathOf(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// Raw returns the JSON of a member as sent, nil if it is omitted. Unlike the other methods, it
// returns null as a value.
func (f Fields) Raw(name string) json.RawMessage { return f.members[name] }

// Has reports whether a member exists and is not null.
func (f Fields) Has(name string) bool {
	value, ok := f.members[name]
	return ok && rawjson.KindOf(value) != rawjson.Null
}

// Text returns a string member, nil if it is omitted or not a string.
func (f Fields) Text(name string) *string {
	if !f.Has(name) {
		return nil
	}
	text, ok := rawjson.Text(f.members[name])
	if !ok {
		f.problems.Add(f.Path(name), "want a string, got %s", rawjson.KindOf(f.members[name]))
		return nil
	}
	return &text
}

// Name returns a string member of least to most characters without U+0000, nil if it is omitted or
// invalid.
func (f Fields) Name(name string, least, most int) *string {
	text := f.Text(name)
	if text == nil {
		return nil
	}
	if err := CheckName(*text, least, most); err != nil {
		f.problems.Add(f.Path(name), "%v", err)
		return nil
	}
	return text
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
func (f Fields) Instant(name string) *time.Time {
	w := f.Written(name)
	if w == nil {
		return nil
	}
	return new(w.At.UTC())
}

// Written returns an ISO 8601 member as it is written, nil if it is omitted or invalid.
func (f Fields) Written(name string) *instant.Written {
	text := f.Text(name)
	if text == nil {
		return nil
	}
	w, err := instant.Read(*text)
	if err != nil {
		f.problems.Add(f.Path(name), "want an ISO 8601 instant: %v", err)
		return nil
	}
	return &w
}

// Integer returns an integer member from least to most, nil if it is omitted or invalid. A number
// without a fraction is an integer in every notation.
func (f Fields) Integer(name string, least, most int) *int {
	number, ok := f.integer(name)
	if !ok {
		return nil
	}
	if number < float64(least) || number > float64(most) {
		f.problems.Add(f.Path(name), "is %.40s: want %d to %d", f.members[name], least, most)
		return nil
	}
	n := int(number)
	return &n
}

// IntegerMax returns an integer member of at least least, reduced to most if it is larger; nil if
// it is omitted or invalid.
func (f Fields) IntegerMax(name string, least, most int) *int {
	number, ok := f.integer(name)
	if !ok {
		return nil
	}
	if number < float64(least) {
		f.problems.Add(f.Path(name), "is %.40s: want at least %d", f.members[name], least)
		return nil
	}
	n := int(min(number, float64(most)))
	return &n
}

func (f Fields) integer(name string) (number float64, ok bool) {
	if !f.Has(name) {
		return 0, false
	}
	if kind := rawjson.KindOf(f.members[name]); kind != rawjson.Number {
		f.problems.Add(f.Path(name), "want an integer, got %s", kind)
		return 0, false
	}
	// A number too big for a float64 becomes an infinity, which is outside every range.
	number, err := strconv.ParseFloat(string(f.members[name]), 64)
	if err != nil && !math.IsInf(number, 0) || number != math.Trunc(number) {
		f.problems.Add(f.Path(name), "want an integer, got %.40s", f.members[name])
		return 0, false
	}
	return number, true
}
