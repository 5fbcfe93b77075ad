package estimate

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

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
