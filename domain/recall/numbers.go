package recall

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// readNumber looks at a number that begins at a digit, and yields its other forms: without separators of thousands and
// with a decimal point, with its currency sign, and as a phone number. It reports true if the number is clear; then its
// digits are read. If it is not, both readings count: 1.234 is yielded as 1234 here and as a compound later.
func (s *scanner) readNumber() bool {
	n := s.numberAt(s.at)
	switch {
	case n.clear:
		s.yield(token{text: n.text, kind: aWord, initial: s.initial})
	case n.grouped, n.decimal:
		s.yield(token{text: n.text, kind: aForm})
	}
	s.yieldAmount(n)
	s.yieldPhone(n)
	if n.clear {
		s.at, s.initial = n.end, false
	}
	return n.clear
}

// number is a number of a text. Its text has neither separators of thousands nor a comma.
type number struct {
	text []byte
	end  int
	// grouped reports separators of thousands, decimal a decimal comma, clear that there is one reading.
	grouped, decimal, clear bool
}

// numberAt reads the number at a byte of the text.
func (s *scanner) numberAt(at int) number {
	end := s.digitsEnd(at)
	n := number{text: appendTerm(s.number[:0], s.text[at:end]), end: end}
	defer func() { s.number = n.text }()
	sep, to, groups := s.groupsAt(at, end)
	if groups == 0 {
		if next := s.decimalsEnd(end, ','); next > 0 && next-end-1 != 3 {
			n.text = appendTerm(append(n.text, '.'), s.text[end+1:next])
			n.end, n.decimal = next, true
		} else if next := s.decimalsEnd(end, '.'); next > 0 {
			n.text = appendTerm(append(n.text, '.'), s.text[end+1:next])
			n.end = next
		}
		return n
	}
	for from := end; from < to; from += 4 {
		n.text = appendTerm(n.text, s.text[from+1:from+4])
	}
	n.end, n.grouped = to, true
	next := 0
	if sep != '.' {
		next = s.decimalsEnd(to, '.')
	}
	if sep != ',' && next == 0 {
		next = s.decimalsEnd(to, ',')
	}
	if next > 0 {
		n.text = appendTerm(append(n.text, '.'), s.text[to+1:next])
		n.end, n.decimal = next, true
	}
	n.clear = sep == ',' || sep == '\'' || sep == '.' && n.decimal
	return n
}

// groupsAt returns the separator of the groups of three digits after the first, where they end, and their number. They
// are none if more digits follow, or if the first group is none of thousands.
func (s *scanner) groupsAt(at, end int) (sep byte, to, groups int) {
	if end-at > 3 || s.text[at] == '0' || end >= len(s.text) {
		return 0, 0, 0
	}
	sep = s.text[end]
	if sep != ',' && sep != '.' && sep != '\'' && sep != ' ' || at < s.groupsEnd {
		return 0, 0, 0
	}
	for to = end; to < len(s.text) && s.text[to] == sep && s.digitsEnd(to+1) == to+4; to += 4 {
		groups++
	}
	if groups > 0 && (sep == ' ' || sep == '\'') { // the next words begin within
		s.groupsEnd = to
	}
	switch {
	case groups == 0, to < len(s.text) && s.text[to] == sep && s.digitAt(to+1):
		return 0, 0, 0
	case sep == '.' && (groups == 3 || s.wordAt(to) || s.wordAt(to+1) && joins(s.text[to]) && s.text[to] != ','):
		return 0, 0, 0
	case sep == ' ' && s.wordAt(to):
		return 0, 0, 0
	}
	return sep, to, groups
}

// decimalsEnd returns where the digits after a decimal point end, 0 if there are none or if more is joined to them.
func (s *scanner) decimalsEnd(at int, point byte) int {
	if at >= len(s.text) || s.text[at] != point || !s.digitAt(at+1) {
		return 0
	}
	end := s.digitsEnd(at + 1)
	if end < len(s.text) && joins(s.text[end]) && s.wordAt(end+1) && s.text[end] != '-' && s.text[end] != '/' {
		return 0
	}
	return end
}

func (s *scanner) digitsEnd(at int) int {
	for s.digitAt(at) {
		at++
	}
	return at
}

// appendTerm appends digits to a number, up to what a term with a sign has room for.
func appendTerm(text, digits []byte) []byte {
	return append(text, digits[:min(len(digits), max(0, termBytes-8-len(text)))]...)
}

// yieldAmount yields a number with the currency sign before or after it.
func (s *scanner) yieldAmount(n number) {
	sign := s.currencyBefore(s.at)
	if sign == nil {
		sign = s.currencyAfter(n.end)
	}
	if sign == nil {
		return
	}
	amount := make([]byte, 0, termBytes)
	s.yield(token{text: append(append(amount, sign...), n.text...), kind: aForm})
	if n.grouped && !n.clear { // the other reading
		written := s.text[s.at:n.end]
		if bytes.IndexByte(written, ' ') < 0 && len(written) < termBytes/2 {
			s.yield(token{text: append(append(amount[:0], sign...), written...), kind: aForm})
		}
	}
}

func (s *scanner) currencyBefore(at int) []byte {
	if at > 0 && s.text[at-1] == ' ' {
		at--
	}
	r, size := utf8.DecodeLastRune(s.text[:at])
	if size == 0 || !unicode.Is(unicode.Sc, r) {
		return nil
	}
	return s.text[at-size : at]
}

func (s *scanner) currencyAfter(at int) []byte {
	if at < len(s.text) && s.text[at] == ' ' {
		at++
	}
	r, size := utf8.DecodeRune(s.text[at:])
	if size == 0 || !unicode.Is(unicode.Sc, r) {
		return nil
	}
	return s.text[at : at+size]
}

// The digits of a phone number in all.
const (
	fewestPhoneDigits = 7
	mostPhoneDigits   = 15
)

// yieldPhone yields the digits of a run of groups of digits, if they may be a phone number.
func (s *scanner) yieldPhone(n number) {
	if s.at < s.phoneEnd || n.clear {
		return
	}
	var digits [mostPhoneDigits]byte
	count, groups, kept := 0, 0, 0
	at := s.at
	for {
		from := at
		at = s.digitsEnd(at)
		for _, c := range s.text[from:at] {
			if count < mostPhoneDigits {
				digits[count] = c
			}
			count++
		}
		s.phoneEnd = at
		if at < len(s.text) && (s.wordAt(at) || (s.text[at] == ':' || s.text[at] == ',') && s.digitAt(at+1)) {
			break // the last digits are of a word, a time or another number
		}
		kept = count
		groups++
		next := s.phoneGap(at)
		if next == 0 {
			break
		}
		at = next
	}
	if groups > 1 && kept >= fewestPhoneDigits && kept <= mostPhoneDigits && count <= mostPhoneDigits &&
		!(n.grouped && bytes.Equal(digits[:kept], n.text)) {
		s.yield(token{text: digits[:kept], kind: aForm})
	}
}

// phoneGap returns where the next group of digits begins after what may be between two, 0 if there is none.
func (s *scanner) phoneGap(at int) int {
	for end := at; end < len(s.text) && end <= at+3; end++ {
		switch c := s.text[end]; {
		case isDigit(c):
			switch string(s.text[at:end]) {
			case " ", "-", ".", "/", " (", ") ", "(", ")", ")-", ") - ", " - ", " / ", ")/":
				return end
			}
			return 0
		case c >= utf8.RuneSelf:
			return 0
		}
	}
	return 0
}

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
