package minilm

import (
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// addFolded adds a character in lower case and without accents: its canonical decomposition, of
// which nonspacing marks are dropped. Decomposing one character at a time gives the same as the
// whole text, since the only other effect of NFD is the order of marks.
func (e *encoder) addFolded(r rune, raw string) {
	if r < 0xC0 {
		e.addDecomposed(r)
		return
	}
	var space [64]byte
	for _, d := range string(norm.NFD.AppendString(space[:0], raw)) {
		e.addDecomposed(d)
	}
}

func (e *encoder) addDecomposed(r rune) {
	switch {
	case unicode.Is(unicode.Mn, r):
	case isPunctuation(r):
		e.addPunctuation(r)
	default:
		e.append(unicode.ToLower(r))
	}
}

// isIgnored reports whether a character is dropped: controls, formats and private use.
func isIgnored(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co) }

// isIdeograph reports whether BERT puts spaces around a character.
func isIdeograph(r rune) bool {
	switch {
	case 0x4E00 <= r && r <= 0x9FFF, 0x3400 <= r && r <= 0x4DBF, 0x20000 <= r && r <= 0x2A6DF,
		0x2A700 <= r && r <= 0x2B73F, 0x2B740 <= r && r <= 0x2B81F, 0x2B920 <= r && r <= 0x2CEAF,
		0xF900 <= r && r <= 0xFAFF, 0x2F800 <= r && r <= 0x2FA1F:
		return true
	}
	return false
}

// isPunctuation reports whether a character is a word by itself. BERT counts every symbol of ASCII.
func isPunctuation(r rune) bool {
	switch {
	case '!' <= r && r <= '/', ':' <= r && r <= '@', '[' <= r && r <= '`', '{' <= r && r <= '~':
		return true
	}
	return r > unicode.MaxASCII && unicode.IsPunct(r)
}
