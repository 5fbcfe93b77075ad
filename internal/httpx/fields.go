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
	"github.com/annals-project/annals/internal/rawjson"
)

// FieldError is one thing that is wrong with a request, in data.errors of an invalid-request.
type FieldError struct {
	// Field is the path of the field, such as "items[3].content"; "" is the body as a whole.
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Problems collects what is wrong with the fields of a request.
type Problems struct {
	errors []FieldError
}

// Add notes that a field is wrong.
func (p *Problems) Add(field, format string, args ...any) {
	p.errors = append(p.errors, FieldError{field, fmt.Sprintf(format, args...)})
}

// Err is the invalid-request that names every problem, nil if there is none.
func (p *Problems) Err() error {
	if len(p.errors) == 0 {
		return nil
	}
	said := make([]string, len(p.errors))
	for i, e := range p.errors {
		said[i] = strings.TrimPrefix(e.Field+": "+e.Message, ": ")
	}
	return fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s", strings.Join(said, "; ")).With("errors", p.errors)
}

// Invalid is an invalid-request about one field.
func Invalid(field, format string, args ...any) error {
	var p Problems
	p.Add(field, format, args...)
	return p.Err()
}

// Fields reads the members of a JSON object. A null member counts as omitted, and
// unknown members are ignored.
type Fields struct {
	members  map[string][]byte
	at       string
	problems *Problems
}

// FieldsOf reads the named members of the object at a path ("" for the body, "items[3]"
// for an item). Anything but an object is a problem, and has no members.
func FieldsOf(object []byte, at string, problems *Problems, names ...string) Fields {
	members, ok := rawjson.Members(object, names...)
	if !ok {
		problems.Add(at, "want an object, got %s", rawjson.KindOf(object))
	}
	return Fields{members: members, at: at, problems: problems}
}

// Path is the path of a member.
func (f Fields) Path(name string) string {
	if f.at == "" {
		return name
	}
	return f.at + "." + name
}

// Raw is the JSON of a member as sent, nil if it is omitted. Only here null is not omitted.
func (f Fields) Raw(name string) json.RawMessage { return f.members[name] }

// Has reports whether a member is there and not null.
func (f Fields) Has(name string) bool {
	value, ok := f.members[name]
	return ok && rawjson.KindOf(value) != rawjson.Null
}

// Text is a string member, nil if it is omitted or not a string.
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

// Name is a string member of least to most characters without U+0000, nil if it is omitted or
// refused.
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

// CheckName returns what is wrong with a name: its length in code points, or a U+0000 in it.
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

// Instant is an ISO 8601 member in UTC at microsecond precision, nil if it is omitted or
// refused.
func (f Fields) Instant(name string) *time.Time {
	text := f.Text(name)
	if text == nil {
		return nil
	}
	at, err := instant.Parse(*text)
	if err != nil {
		f.problems.Add(f.Path(name), "want an ISO 8601 instant: %v", err)
		return nil
	}
	return &at
}

// Integer is an integer member from least to most, nil if it is omitted or refused.
// A number without a fraction is an integer however it is written.
func (f Fields) Integer(name string, least, most int) *int {
	number, ok := f.whole(name)
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

// IntegerMax is an integer member of at least least, lowered to most if it is more; nil if it
// is omitted or refused.
func (f Fields) IntegerMax(name string, least, most int) *int {
	number, ok := f.whole(name)
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

func (f Fields) whole(name string) (number float64, ok bool) {
	if !f.Has(name) {
		return 0, false
	}
	if kind := rawjson.KindOf(f.members[name]); kind != rawjson.Number {
		f.problems.Add(f.Path(name), "want an integer, got %s", kind)
		return 0, false
	}
	// A number too big for a float64 is one of the infinities, which are beyond any range.
	number, err := strconv.ParseFloat(string(f.members[name]), 64)
	if err != nil && !math.IsInf(number, 0) || number != math.Trunc(number) {
		f.problems.Add(f.Path(name), "want an integer, got %.40s", f.members[name])
		return 0, false
	}
	return number, true
}
