package rawjson

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

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
