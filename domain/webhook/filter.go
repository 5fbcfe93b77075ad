package webhook

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
)

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
