// Package rawjson splits JSON text without decoding the parts that are not needed, so that a body
// is not copied in memory, and errors can name the position of a wrong value.
package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"unicode/utf16"
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

// ErrSurrogate reports a text that escapes one half of a surrogate pair. That is not valid text,
// and decoders replace it by U+FFFD.
var ErrSurrogate = errors.New(`it escapes half a surrogate pair, such as "\ud800" alone: that is not a character`)

// Scan counts the values and names of a checked text, and reports ErrSurrogate.
func Scan(text []byte) (values int, err error) {
	for i := 0; i < len(text); {
		switch text[i] {
		case ' ', '\t', '\n', '\r', ',', ':', ']', '}':
			i++
		case '{', '[':
			values++
			i++
		case '"':
			values++
			end := skipString(text, i)
			if !wholePairs(text[i+1 : end-1]) {
				return 0, ErrSurrogate
			}
			i = end
		default:
			values++
			i = skipValue(text, i)
		}
	}
	return values, nil
}

// wholePairs reports whether every surrogate that a string escapes has its other half.
func wholePairs(inside []byte) bool {
	for {
		slash := bytes.IndexByte(inside, '\\')
		if slash < 0 {
			return true
		}
		inside = inside[slash:]
		if inside[1] != 'u' {
			inside = inside[2:]
			continue
		}
		unit := unitOf(inside)
		inside = inside[6:]
		switch {
		case unit < 0xd800 || unit > 0xdfff:
		case unit > 0xdbff || len(inside) < 6 || inside[0] != '\\' || inside[1] != 'u':
			return false
		default:
			if low := unitOf(inside); low < 0xdc00 || low > 0xdfff {
				return false
			}
			inside = inside[6:]
		}
	}
}

// plain is room for one text without escapes: the longest one that is compared, and one character more.
type plain []byte

// name returns the name between quotes without escapes, valid until the next one. ok is false for one that has no
// room, so that it costs no more than its length.
func (p plain) name(inside []byte) (name []byte, ok bool) {
	if bytes.IndexByte(inside, '\\') >= 0 {
		return p.decode(inside, true)
	}
	return inside, len(inside) <= len(p)
}

// text is name for a string, in valid UTF-8.
func (p plain) text(inside []byte) (text []byte, ok bool) {
	escaped := bytes.IndexByte(inside, '\\') >= 0
	if !escaped && utf8.Valid(inside) {
		return inside, len(inside) <= len(p)
	}
	return p.decode(inside, escaped)
}

func (p plain) decode(inside []byte, escaped bool) (text []byte, ok bool) {
	text = p[:0]
	for i := 0; i < len(inside); {
		r, size := nextRune(inside[i:], escaped)
		if i += size; len(text)+utf8.RuneLen(r) > len(p) {
			return nil, false
		}
		text = utf8.AppendRune(text, r)
	}
	return text, true
}

// EqualText reports whether a string of a checked text equals a text in UTF-8. It allocates nothing, and ends at
// the first difference.
func EqualText(value []byte, text string) bool {
	inside := value[1 : len(value)-1]
	for i := 0; i < len(inside); {
		r, size := nextRune(inside[i:], true)
		want, n := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && want == r && size == 1 && bytes.IndexByte(inside, '\\') < 0 {
			_, size = nextRune(inside[i:], false)
		}
		if r != want || n == 0 {
			return false
		}
		i, text = i+size, text[n:]
	}
	return text == ""
}

// nextRune reads one character of a string as Text does: half a surrogate pair and bytes that are not UTF-8 become
// U+FFFD, each of these bytes in a string with escapes, several in a row together in one without.
func nextRune(inside []byte, escaped bool) (r rune, size int) {
	if inside[0] == '\\' {
		return readEscape(inside)
	}
	if inside[0] < utf8.RuneSelf {
		return rune(inside[0]), 1
	}
	r, size = utf8.DecodeRune(inside)
	for wrong := r == utf8.RuneError && size == 1; wrong && !escaped && size < len(inside); {
		next, n := utf8.DecodeRune(inside[size:])
		if wrong = next == utf8.RuneError && n == 1; wrong {
			size++
		}
	}
	return r, size
}

func readEscape(inside []byte) (r rune, size int) {
	switch inside[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		return readUnits(inside)
	default:
		return rune(inside[1]), 2
	}
}

// readUnits reads an escape such as \u00e9, or two of them that are a surrogate pair.
func readUnits(inside []byte) (r rune, size int) {
	r = unitOf(inside)
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(inside) >= 12 && inside[6] == '\\' && inside[7] == 'u' {
		if pair := utf16.DecodeRune(r, unitOf(inside[6:])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return utf8.RuneError, 6
}

// unitOf reads the UTF-16 code unit of an escape such as \u00e9.
func unitOf(escape []byte) (unit rune) {
	for _, c := range escape[2:6] {
		switch {
		case c <= '9':
			c -= '0'
		case c >= 'a':
			c -= 'a' - 10
		default:
			c -= 'A' - 10
		}
		unit = unit<<4 | rune(c)
	}
	return unit
}
