package estimate

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// stamp is a time while it is read.
type stamp struct {
	list       []token
	at         int
	monthFirst bool

	year, month, day     int
	monthWord            string
	hour, minute, second int
	nanos                int
	// loose are numbers whose place is not known yet.
	loose []token
	// dated and clocked are true once the date and the clock are known.
	dated, clocked bool
	// half is 1 before noon and 2 after it, 0 without a mark.
	half int
	// zoned is true once a zone is known: offset in seconds, or place.
	zoned    bool
	offset   int
	place    *time.Location
	buddhist bool
}

// scanTime reads a time by its words and numbers in any order.
func scanTime(text string, zone *time.Location, monthFirst bool) (time.Time, bool) {
	if strings.IndexFunc(text, func(r rune) bool { return isDigit(plainRune(r)) }) < 0 {
		return time.Time{}, false
	}
	if at := strings.Index(text, " m=+"); at > 0 {
		text = text[:at] // the monotonic clock of Go
	}
	list, comments := tokens(text)
	s := &stamp{list: list, monthFirst: monthFirst}
	for s.at < len(s.list) {
		t := s.list[s.at]
		ok := true
		switch {
		case t.isNumber:
			ok = s.number(t)
		case t.isWord:
			ok = s.word(t, zone)
		case t.text == "+" || t.text == "-":
			ok = s.sign(t)
		case strings.ContainsAny(t.text, ".,:/·'’،|_\"׳"):
			s.at++
		default:
			ok = false
		}
		if !ok {
			return time.Time{}, false
		}
	}
	for _, c := range comments {
		if seconds, known := zoneOffset(strings.ToLower(c)); known && s.clocked && !s.zoned {
			s.zoned, s.offset = true, seconds
		} else if place := zonePlace(c); place != nil && s.clocked && !s.zoned {
			s.zoned, s.place = true, place
		}
	}
	return s.time(zone)
}

// peek returns a later token, an empty one after the last.
func (s *stamp) peek(n int) token {
	if s.at+n < len(s.list) {
		return s.list[s.at+n]
	}
	return token{}
}

// number reads a number with what belongs to it.
func (s *stamp) number(t token) bool {
	if unit := unitOf(s.peek(1).text); unit != 0 && !s.peek(1).spaced {
		s.at += 2
		return s.unit(unit, t.value)
	}
	switch {
	case s.date(t):
		return true
	case s.clock(t):
		return true
	case s.compact(t):
		return true
	}
	s.loose = append(s.loose, t)
	s.at++
	return len(s.loose) <= 2
}

func (s *stamp) unit(unit, value int) bool {
	switch unit {
	case unitYear:
		s.year = value
	case unitMonth:
		s.month = value
	case unitDay:
		s.day, s.dated = value, s.month > 0 && s.year > 0
	case unitHour:
		s.hour, s.clocked = value, true
	case unitMinute:
		s.minute = value
	default:
		s.second = value
	}
	return true
}

// date reads 12/05/2025, 2025-05-12, 12. 5. 2025, 12-May-2025 and the like.
func (s *stamp) date(a token) bool {
	if s.dated || s.month > 0 || len(s.loose) > 0 || len(a.text) > 4 {
		return false
	}
	sep, b, sep2, c := s.peek(1), s.peek(2), s.peek(3), s.peek(4)
	if sep.text != sep2.text || !strings.Contains("/.-", sep.text) || sep.text == "" || !c.isNumber || len(c.text) > 4 {
		return false
	}
	if b.isWord {
		month, known := monthOf(b.text)
		if !known {
			return false
		}
		s.month = month
		s.year, s.day = yearAndDay(a, c, false)
	} else {
		if !b.isNumber || len(b.text) > 2 || len(a.text) == 3 || len(c.text) == 3 {
			return false
		}
		switch {
		case len(a.text) == 4 || a.value > 31:
			s.year, s.month, s.day = fullYear(a), b.value, c.value
		case b.value > 12, s.monthFirst && sep.text != ".":
			s.year, s.month, s.day = fullYear(c), a.value, b.value
		default:
			s.year, s.month, s.day = fullYear(c), b.value, a.value
		}
	}
	s.dated = true
	s.at += 5
	if next := s.peek(0); next.text == sep.text && sep.text == "." {
		s.at++
	}
	return true
}

// yearAndDay finds which of two numbers is the year: the one with more digits, else the last, unless first.
func yearAndDay(a, b token, first bool) (year, day int) {
	if len(a.text) > 2 || len(b.text) <= 2 && first {
		return fullYear(a), b.value
	}
	return fullYear(b), a.value
}

// fullYear returns the year that one or two digits mean, as mails have them, or three, as the year 2000 made of them.
func fullYear(t token) int {
	switch {
	case len(t.text) == 3:
		return 1900 + t.value
	case len(t.text) > 2:
		return t.value
	case t.value < 50:
		return 2000 + t.value
	}
	return 1900 + t.value
}

// clock reads 10:15, 10:15:30.5, 10.15 after a date, and 10h15.
func (s *stamp) clock(t token) bool {
	if s.clocked || len(t.text) > 2 {
		return false
	}
	sep, minute := s.peek(1), s.peek(2)
	byDot := sep.text == "." && s.dated || sep.text == "." && s.month > 0 && len(s.loose) == 2
	switch {
	case (sep.text == ":" || byDot || sep.text == "h" || sep.text == "時") && minute.isNumber && len(minute.text) == 2:
		s.hour, s.minute, s.clocked = t.value, minute.value, true
		s.at += 3
	case (s.dated || s.month > 0) && sep.isWord && (isHourWord(sep.text) || s.halfAt(1) > 0):
		s.hour, s.clocked = t.value, true
		s.at++
		return true
	case s.dated && sep.text == "-" && minute.isNumber && len(minute.text) == 2 && s.peek(3).text == "-" &&
		s.peek(4).isNumber && len(s.peek(4).text) == 2: // 10-15-30, as names of files have it
		s.hour, s.minute, s.second, s.clocked = t.value, minute.value, s.peek(4).value, true
		s.at += 5
		return true
	default:
		return false
	}
	next, second := s.peek(0), s.peek(1)
	if (next.text == ":" || byDot && next.text == ".") && second.isNumber && len(second.text) == 2 {
		s.second = second.value
		s.at += 2
		s.fraction()
	}
	return true
}

// isHourWord reports whether a word makes the number before it an hour.
func isHourWord(word string) bool { return word == "uhr" || word == "h" || halves[word] > 0 }

// fraction reads the part of a second after a full stop or a comma.
func (s *stamp) fraction() {
	if sep, part := s.peek(0), s.peek(1); (sep.text == "." || sep.text == "," || sep.text == ":") && part.isNumber &&
		!part.spaced && len(part.text) <= 12 && len(part.text) != 4 {
		s.nanos = number((part.text + "000000000")[:9])
		s.at += 2
	}
}

// isZoneLetter reports whether a last letter is one of the zones that RFC 822 had and no two programs meant alike, or
// the first of am: with it a time is unread.
func isZoneLetter(word string) bool { return len(word) == 1 && word != "z" && word != "h" }

// compact reads 20250512, 202505121015, 20250512101530, and the clock 101530 after a date.
func (s *stamp) compact(t token) bool {
	n := len(t.text)
	switch {
	case !s.dated && s.month == 0 && len(s.loose) == 0 && (n == 8 || n == 12 || n == 14):
		s.year, s.month, s.day, s.dated = number(t.text[:4]), number(t.text[4:6]), number(t.text[6:8]), true
		if n > 8 {
			s.setClock(t.text[8:])
		}
	case s.dated && !s.clocked && (n == 6 || n == 4):
		s.setClock(t.text)
	default:
		return false
	}
	s.at++
	if s.clocked {
		s.fraction()
	}
	return true
}

func (s *stamp) setClock(digits string) {
	s.hour, s.minute, s.clocked = number(digits[:2]), number(digits[2:4]), true
	if len(digits) == 6 {
		s.second = number(digits[4:])
	}
}

// halfAt returns the half of the day that a mark of two spaced letters names: "p. m.".
func (s *stamp) halfAt(n int) int {
	first, at := s.peek(n), n+1
	if s.peek(at).text == "." {
		at++
	}
	if second := s.peek(at); first.isWord && (second.text == "m" || second.text == "μ") {
		switch first.text {
		case "a", "π":
			return 1
		case "p", "μ":
			return 2
		}
	}
	return 0
}

// word reads a word. An unknown one makes the text no time: it may be a zone.
func (s *stamp) word(t token, zone *time.Location) bool {
	if half := s.halfAt(0); half > 0 {
		s.half = half
		s.at++
		for s.peek(0).text == "." || s.peek(0).text == "m" || s.peek(0).text == "μ" {
			s.at++
		}
		return true
	}
	s.at++
	if half, known := halves[t.text]; known && (s.clocked || half > 2) {
		s.half = (half-1)%2 + 1
		return s.half > 0
	}
	if month, known := monthOf(t.text); known && !s.dated {
		// "mar" is a month, and the Tuesday of some languages.
		isFirst := s.month == 0 || isWeekday(s.monthWord)
		if isFirst {
			s.month, s.monthWord = month, t.text
			s.buddhist = s.buddhist || isThai(t.text)
		}
		return isFirst || isWeekday(t.text)
	}
	if _, known := zoneOffset(t.text); known && s.clocked {
		return s.zone(t.text, zone) // "UT" may also be the beginning of a Tuesday
	}
	switch {
	case s.clocked && s.at == len(s.list) && isZoneLetter(t.text):
		return false
	case isWeekday(t.text), fillers[t.text]:
		return true
	case t.text == "พศ":
		s.buddhist = true
		return true
	case !s.clocked:
		return false
	}
	return s.zone(t.text, zone)
}

// zone reads the name of a zone after a clock. The zone of the request decides what its own abbreviations mean.
func (s *stamp) zone(name string, zone *time.Location) bool {
	if s.zoned {
		_, known := zoneOffset(name)
		return known // the name of the offset before it
	}
	if at, ok := s.time(zone); ok && len(name) > 1 {
		if own, offset := at.Zone(); strings.EqualFold(own, name) {
			s.zoned, s.offset = true, offset
			return true
		}
	}
	if seconds, known := zoneOffset(name); known {
		s.offset, s.zoned = seconds, true
		return true
	}
	s.place = zonePlace(name)
	s.zoned = s.place != nil
	return s.zoned
}

// sign reads an offset, or passes a dash between date and clock.
func (s *stamp) sign(t token) bool {
	digits := s.peek(1)
	isGlued := digits.isNumber && !digits.spaced
	if !s.clocked || !isGlued || !s.dated && s.month == 0 {
		s.at++
		return t.text == "-"
	}
	hours, minutes := digits.value, 0
	s.at += 2
	switch len(digits.text) {
	case 1, 2:
		if s.peek(0).text == ":" && s.peek(1).isNumber && len(s.peek(1).text) == 2 {
			minutes = s.peek(1).value
			s.at += 2
		}
	case 3, 4:
		hours, minutes = digits.value/100, digits.value%100
	default:
		return false
	}
	if hours > 18 || minutes > 59 {
		return false
	}
	s.offset, s.zoned, s.place = (hours*60+minutes)*60, true, nil
	if t.text == "-" {
		s.offset = -s.offset
	}
	return true
}

// time puts together what was read.
func (s *stamp) time(zone *time.Location) (time.Time, bool) {
	if !s.dated && s.month > 0 && s.day == 0 {
		if len(s.loose) != 2 {
			return time.Time{}, false
		}
		s.year, s.day = yearAndDay(s.loose[0], s.loose[1], false)
		s.loose, s.dated = nil, true
	}
	if len(s.loose) > 0 || s.year == 0 {
		return time.Time{}, false
	}
	year, hour, addDay := s.year, s.hour, 0
	if s.buddhist && year > 2400 {
		year -= 543
	}
	switch {
	case hour == 24 && s.minute == 0 && s.second == 0:
		hour, addDay = 0, 1
	case s.half == 2 && hour < 12:
		hour += 12
	case s.half == 1 && hour == 12:
		hour = 0
	}
	in := zone
	switch {
	case s.place != nil:
		in = s.place
	case s.zoned:
		in = time.FixedZone("", s.offset)
	}
	at, ok := civil(year, s.month, s.day, hour, s.minute, s.second, in)
	if !ok {
		return time.Time{}, false
	}
	return at.AddDate(0, 0, addDay).Add(time.Duration(s.nanos)), true
}

// token is a run of digits or of letters in a time, or a sign.
type token struct {
	// text is in lower case; of digits it is what was written.
	text string
	// value and isNumber are of digits.
	value    int
	isNumber bool
	isWord   bool
	// spaced is true after white space.
	spaced bool
}

// maxTokens bounds a time; no form has more.
const maxTokens = 40

// zeros are the digits 0 of the scripts that dates are written in.
var zeros = []rune{0x660, 0x6f0, 0x966, 0x9e6, 0xe50, 0xff10}

// plainRune returns a digit of any script as that of ASCII, and one kind of space and of minus.
func plainRune(r rune) rune {
	switch {
	case r < utf8.RuneSelf:
		return r
	case unicode.IsSpace(r) || r == '\u200e' || r == '\u200f' || r == '\ufeff' || r == '\u202a' || r == '\u202c':
		return ' '
	case r == '\u2212' || r == '\u2013' || r == '\u2011':
		return '-'
	case r == '：':
		return ':'
	}
	for _, zero := range zeros {
		if r >= zero && r < zero+10 {
			return '0' + r - zero
		}
	}
	return r
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }

func isLetter(r rune) bool {
	return unicode.IsLetter(r) || unicode.Is(unicode.M, r) || r == 'º' || r == 'ª'
}

// tokens splits a text. What is in brackets is returned apart: a comment, or the name of a zone.
func tokens(text string) (list []token, comments []string) {
	runes := []rune(strings.Map(plainRune, text))
	spaced := false
	for i := 0; i < len(runes) && len(list) < maxTokens; {
		r, start := runes[i], i
		switch {
		case r == ' ' || r == '\t':
			spaced = true
			i++
			continue
		case r == '(' || r == '[' || r == '（':
			for i++; i < len(runes) && !strings.ContainsRune(")]）", runes[i]); i++ {
			}
			comments = append(comments, strings.TrimSpace(string(runes[start+1:i])))
			i = min(i+1, len(runes))
			continue
		case isDigit(r):
			for i < len(runes) && isDigit(runes[i]) {
				i++
			}
			digits := string(runes[start:i])
			list = append(list, token{text: digits, value: number(digits), isNumber: true, spaced: spaced})
		case isLetter(r):
			afterNumber := len(list) > 0 && list[len(list)-1].isNumber && !spaced
			i = wordEnd(runes, i, afterNumber)
			word := strings.ToLower(strings.ReplaceAll(string(runes[start:i]), ".", ""))
			list = append(list, token{text: word, isWord: true, spaced: spaced})
		default:
			i++
			list = append(list, token{text: string(r), spaced: spaced})
		}
		spaced = false
	}
	return list, comments
}

// wordEnd returns the end of a word. Full stops within it belong to it, and so do the signs of the names of zones. A
// unit of Chinese, Japanese or Korean dates after a number is a word of its own.
func wordEnd(runes []rune, i int, afterNumber bool) int {
	if afterNumber && unitOf(string(runes[i])) != 0 {
		return i + 1
	}
	for i++; i < len(runes); i++ {
		r := runes[i]
		if isLetter(r) || strings.ContainsRune("./_", r) && i+1 < len(runes) && isLetter(runes[i+1]) {
			continue
		}
		break
	}
	return i
}

// Units of dates and times.
const (
	unitYear = iota + 1
	unitMonth
	unitDay
	unitHour
	unitMinute
	unitSecond
)

func unitOf(word string) int {
	switch word {
	case "年", "년":
		return unitYear
	case "月", "월":
		return unitMonth
	case "日", "일", "号":
		return unitDay
	case "时", "時", "点", "點", "시":
		return unitHour
	case "分", "분":
		return unitMinute
	case "秒", "초":
		return unitSecond
	}
	return 0
}
