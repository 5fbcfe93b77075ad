package recall

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// isSymbol reports whether a character is a word of its own: an emoji, or another sign that stands for a thing. Lines
// of tables and blocks are drawn with signs that stand for nothing, and those below U+2000 are part of amounts.
func isSymbol(r rune) bool {
	switch {
	case r < 0x2000, r >= 0x2500 && r < 0x25A0, r >= 0x2800 && r < 0x2900, r >= 0xFFF0 && r <= 0xFFFF:
		return false
	}
	return unicode.In(r, unicode.So, unicode.Sm)
}

// isRegional reports whether a character is one of the two that make a flag.
func isRegional(r rune) bool { return r >= 0x1F1E6 && r <= 0x1F1FF }

// readSymbol yields a symbol, once if it is repeated. A tone of skin is left out, and two letters of a region are one.
func (s *scanner) readSymbol(r rune, size int) {
	from := s.at
	if next, more := utf8.DecodeRune(s.text[s.at+size:]); isRegional(r) && isRegional(next) {
		size += more
	}
	symbol := s.text[from : from+size]
	for s.at += size; bytes.HasPrefix(s.text[s.at:], symbol); s.at += size {
	}
	s.yield(token{text: symbol, kind: aSymbol})
}

// readAbbreviation reads letters with a dot after each, as in B.B.C., and yields the word that they are together, then
// each of them. It reports false if there are none.
func (s *scanner) readAbbreviation() bool {
	end, letters := s.at, 0
	for end < len(s.text) {
		r, size := utf8.DecodeRune(s.text[end:])
		if characterOf(r).class != letter {
			break
		}
		end += size
		letters++
		if end >= len(s.text) || s.text[end] != '.' || !s.wordAt(end+1) || s.digitAt(end+1) {
			break
		}
		end++
	}
	joined := end+1 < len(s.text) && (joins(s.text[end]) || s.text[end] == '\'') && s.wordAt(end+1)
	if letters < 2 || joined || s.wordAt(end) || s.digitAt(end) {
		return false
	}
	first, _ := utf8.DecodeRune(s.text[s.at:])
	var form []byte
	for _, r := range string(s.text[s.at:end]) {
		if letter := characterOf(r).text; r != '.' && len(form)+len(letter) <= termBytes {
			form = append(form, letter...)
		}
	}
	s.yield(token{text: form, kind: aWord, capital: characterOf(first).upper, initial: s.initial})
	for _, r := range string(s.text[s.at:end]) {
		if r != '.' {
			s.yield(token{text: []byte(characterOf(r).text), kind: aUnit})
		}
	}
	s.at, s.initial = end, false
	return true
}
