// Package rawjson splits JSON text without decoding the parts that are not needed, so that a body
// is not copied in memory, and errors can name the position of a wrong value.
package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"unicode/utf8"
)

// Check returns the reason why a text is not one JSON value in UTF-8 that nests at most 10,000
// deep. All other functions of this package require checked text.
func Check(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("it is not UTF-8")
	}
	if json.Valid(text) {
		return nil
	}
	// Only a refused text is read again, for the reason.
	var sink json.RawMessage
	if err := json.Unmarshal(text, &sink); err != nil {
		return err
	}
	return errors.New("it is not JSON")
}

// Kind is the kind of a JSON value, in words for messages.
type Kind string

// The kinds of JSON values.
const (
	Object  Kind = "an object"
	Array   Kind = "an array"
	String  Kind = "a string"
	Number  Kind = "a number"
	Boolean Kind = "a boolean"
	Null    Kind = "null"
)

// KindOf returns the kind of a value.
func KindOf(value []byte) Kind {
	switch value[skipSpace(value, 0)] {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't', 'f':
		return Boolean
	case 'n':
		return Null
	default:
		return Number
	}
}

// Members returns the values of the named members of an object, as parts of its text. If a name
// occurs twice, the last one counts. Missing names are not in the map. Names are compared exactly.
// ok is false if the value is not an object.
func Members(value []byte, names ...string) (members map[string][]byte, ok bool) {
	return Split(value, names, func([]byte) {})
}

// Split is Members, and passes every other name to other, in the order of the text, unless it has more than 1,024
// bytes as written. The bytes are valid during the call only.
func Split(value []byte, names []string, other func(name []byte)) (members map[string][]byte, ok bool) {
	if KindOf(value) != Object {
		return nil, false
	}
	members = make(map[string][]byte, len(names))
	for quoted, member := range entries(value) {
		name := nameOf(quoted)
		if wanted := indexOf(names, name); wanted >= 0 {
			members[names[wanted]] = member
		} else if name != nil {
			other(name)
		}
	}
	return members, true
}

// Each returns the members of an object, each with its name and its value as part of the text, in the order of the
// text. A repeated name comes each time. Other values than an object have no members.
func Each(value []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		if KindOf(value) != Object {
			return
		}
		for quoted, member := range entries(value) {
			if name, _ := unquote(quoted); !yield(name, member) {
				return
			}
		}
	}
}

// Elements returns the elements of an array with their indexes, as parts of its text. Other values than an array have
// no elements.
func Elements(value []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if KindOf(value) != Array {
			return
		}
		i := 0
		for _, element := range entries(value) {
			if !yield(i, element) {
				return
			}
			i++
		}
	}
}

// entries returns the values in an object or array, those of an object with their names in quotes.
func entries(value []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(quoted, entry []byte) bool) {
		i := skipSpace(value, 0)
		isObject := value[i] == '{'
		for i++; ; {
			quoted, at, ok := nextEntry(value, i, isObject)
			if !ok {
				return
			}
			if i = skipValue(value, at); !yield(quoted, value[at:i:i]) {
				return
			}
		}
	}
}

// nextEntry reads on from i, which is within an object or array and not within a value, and returns the index of the
// next value, and its name in quotes if it is a member. If there is none, ok is false and at is the index after the
// object or array.
func nextEntry(text []byte, i int, isObject bool) (quoted []byte, at int, ok bool) {
	i = skipSpace(text, i)
	if text[i] == ',' {
		i = skipSpace(text, i+1)
	}
	switch {
	case text[i] == '}' || text[i] == ']':
		return nil, i + 1, false
	case !isObject:
		return nil, i, true
	}
	end := skipString(text, i)
	colon := skipSpace(text, end)
	return text[i:end], skipSpace(text, colon+1), true
}

// Text returns the text of a string value. ok is false if the value is not a string. An escaped
// half of a surrogate pair becomes U+FFFD.
func Text(value []byte) (text string, ok bool) {
	if KindOf(value) != String {
		return "", false
	}
	return unquote(bytes.TrimSpace(value))
}

func unquote(quoted []byte) (text string, ok bool) {
	if inside := quoted[1 : len(quoted)-1]; bytes.IndexByte(inside, '\\') < 0 {
		return string(inside), true
	}
	return text, json.Unmarshal(quoted, &text) == nil
}

// MaxName is the most bytes of a name, as written, that is compared. The wanted names are short, so a longer one
// matches none, whatever its escapes.
const MaxName = 1024

// nameOf returns the text of a name, nil for one that is too long. It decodes the name only if it contains an escape.
func nameOf(quoted []byte) []byte {
	inside := quoted[1 : len(quoted)-1]
	if len(inside) > MaxName {
		return nil
	}
	if bytes.IndexByte(inside, '\\') < 0 {
		return inside
	}
	text, _ := unquote(quoted)
	return []byte(text)
}

func indexOf(names []string, name []byte) int {
	for i, n := range names {
		if n == string(name) {
			return i
		}
	}
	return -1
}

// skipSpace returns the index after white space: outside strings, checked text has no other bytes up to the space.
func skipSpace(text []byte, i int) int {
	for i < len(text) && text[i] <= ' ' {
		i++
	}
	return i
}

// skipString returns the index after the string that starts at i.
func skipString(text []byte, i int) int {
	start := i + 1
	for i = start; ; i++ {
		i += bytes.IndexByte(text[i:], '"')
		slashes := 0
		for slashes < i-start && text[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
}

// skipValue returns the index after the value that starts at i.
func skipValue(text []byte, i int) int {
	switch text[i] {
	case '"':
		return skipString(text, i)
	case '{', '[':
		for depth := 0; ; {
			switch text[i] {
			case '"':
				i = skipString(text, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			i++
			if depth == 0 {
				return i
			}
		}
	default:
		for i < len(text) && text[i] > ' ' && text[i] != ',' && text[i] != ']' && text[i] != '}' {
			i++
		}
		return i
	}
}
