package comprehend

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is a word, a number or a punctuation mark of a sentence.
type token struct {
	text string // as written
	low  string // in lower case, with a straight apostrophe; the parts of a contraction are written out ("n't" is "not")
	at   int    // byte offset in the text of the sentence
	word bool   // contains a letter or a digit
	gap  bool   // white space precedes it
}

func (t token) end() int { return t.at + len(t.text) }

// capital reports whether the token begins with an upper-case letter.
func (t token) capital() bool {
	r, _ := utf8.DecodeRuneInString(t.text)
	return unicode.IsUpper(r)
}

// shouted reports whether the token has two letters or more and all of them are capitals.
func (t token) shouted() bool {
	letters := 0
	for _, r := range t.text {
		if unicode.IsLetter(r) {
			if !unicode.IsUpper(r) {
				return false
			}
			letters++
		}
	}
	return letters >= 2
}

// numeric reports whether the token begins with a digit.
func (t token) numeric() bool { return t.text != "" && t.text[0] >= '0' && t.text[0] <= '9' }

// possessive reports whether the token is the 's of a possessive or of "is" or "has".
func (t token) possessive() bool { return t.low == "'s" }

// bytesOfToken is about how many bytes of a text a token takes, with the space before it.
const bytesOfToken = 5

// tokenize cuts a text into tokens and appends them to buf.
func tokenize(text string, buf []token) []token {
	gap := true
	buf = slices.Grow(buf, len(text)/bytesOfToken)
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case unicode.IsSpace(r):
			gap = true
			i += size
			continue
		case isWordRune(r) || (r == '@' || r == '#') && startsWord(text[i+size:]):
			end := wordEnd(text, i+size)
			buf = appendWord(buf, text[i:end], i, gap)
			i = end
		default:
			end := i + size
			for end < len(text) && strings.HasPrefix(text[end:], text[i:i+size]) && !unicode.IsLetter(r) && end-i < 64 {
				end += size
			}
			buf = append(buf, token{text: text[i:end], low: straight(text[i:end]), at: i, gap: gap})
			i = end
		}
		gap = false
	}
	return buf
}

func isWordRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

func startsWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.IsLetter(r)
}

// wordEnd returns the end of the word that holds the runes before i: letters and digits, with the
// marks inside that join names, numbers, times, addresses and links.
func wordEnd(text string, i int) int {
	for i < len(text) {
		r, size := utf8.DecodeRuneInString(text[i:])
		if isWordRune(r) {
			i += size
			continue
		}
		next, nextSize := utf8.DecodeRuneInString(text[i+size:])
		switch {
		case strings.HasPrefix(text[i:], "://"):
			i += 3
			for i < len(text) && text[i] > ' ' && text[i] < 0x7f && !strings.ContainsRune(`"<>()`, rune(text[i])) {
				i++
			}
			return i
		case strings.ContainsRune("'’-.@_&", r) && isWordRune(next):
			i += size + nextSize
		case strings.ContainsRune(",:/", r) && unicode.IsDigit(next) && text[i-1] >= '0' && text[i-1] <= '9':
			i += size + nextSize
		case r == '+' && strings.HasPrefix(text[i:], "++") && !startsWord(text[i+2:]):
			return i + 2
		case r == '#' && text[i-1] >= 'A' && text[i-1] <= 'Z' && !isWordRune(next):
			return i + 1
		default:
			return i
		}
	}
	return i
}

// appendWord appends a word, a contraction as its two parts.
func appendWord(buf []token, word string, at int, gap bool) []token {
	low := straight(word)
	if strings.Contains(low, "'") {
		for _, tail := range contractions {
			if stem := len(low) - len(tail.text); stem > 0 && strings.HasSuffix(low, tail.text) {
				cut := strings.LastIndexAny(word, "'’")
				if tail.text == "n't" {
					cut--
				}
				rest := word[cut:]
				head := low[:stem]
				switch head {
				case "ca":
					head = "can"
				case "wo":
					head = "will"
				case "sha":
					head = "shall"
				}
				buf = append(buf, token{text: word[:cut], low: head, at: at, word: true, gap: gap})
				return append(buf, token{text: rest, low: tail.low, at: at + cut, word: true})
			}
		}
	}
	return append(buf, token{text: word, low: low, at: at, word: true, gap: gap})
}

// contractions are endings that are separate tokens.
var contractions = []struct{ text, low string }{
	{"n't", "not"}, {"'m", "am"}, {"'re", "are"}, {"'ve", "have"}, {"'ll", "will"}, {"'d", "'d"}, {"'s", "'s"},
}

// straight returns s in lower case with straight apostrophes and quotation marks.
func straight(s string) string {
	s = strings.ToLower(s)
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return quotes.Replace(s)
		}
	}
	return s
}

var quotes = strings.NewReplacer("’", "'", "‘", "'", "“", `"`, "”", `"`, "„", `"`, "«", `"`, "»", `"`)
