package rawjson

import (
	"bytes"
	"errors"
)

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
