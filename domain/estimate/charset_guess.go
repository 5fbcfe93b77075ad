package estimate

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
)

// guessBytes is how much of a text is looked at for its charset, from its first byte that is not ASCII on.
const guessBytes = 16 << 10

// guessCharset returns the encoding in which bytes that are not UTF-8 are most likely text. It decodes with each and
// compares what comes out: no detector that is maintained reads short texts of all these charsets.
func guessCharset(raw string) (name string, e encoding.Encoding) {
	for i := range len(raw) {
		if raw[i] >= utf8.RuneSelf {
			start := max(0, i-100)
			raw = raw[start:min(len(raw), start+guessBytes)]
			break
		}
	}
	double, share := doubles[0], 0
	for _, d := range doubles {
		if s := d.share(raw); s > share {
			double, share = d, s
		}
	}
	if share >= leastShare {
		return double.name, double.encoding
	}
	best, most := singles[0], -1<<31
	for _, c := range singles {
		decoded, err := c.encoding.NewDecoder().String(raw)
		if err != nil {
			continue
		}
		if score := plausible(decoded, c.name); score > most {
			best, most = c, score
		}
	}
	return best.name, best.encoding
}

// doubles are the charsets with characters of two bytes. The narrower their common characters are, the earlier.
var doubles = []double{
	{"euc-kr", korean.EUCKR, 0xa1, [][2]int{{0xb0a1, 0xc8fe}}},
	{"euc-jp", japanese.EUCJP, 0xa1, [][2]int{{0xa4a1, 0xa5fe}, {0xb0a1, 0xcffe}, {0xa1a1, 0xa1fe}}},
	{"shift_jis", japanese.ShiftJIS, 0x40, [][2]int{{0x829f, 0x8396}, {0x889f, 0x9872}, {0x8140, 0x81ac}}},
	{"gb18030", simplifiedchinese.GB18030, 0x40, [][2]int{{0xb0a1, 0xd7f9}, {0xa1a1, 0xa1fe}, {0xa3a1, 0xa3fe}}},
	{"big5", traditionalchinese.Big5, 0x40, [][2]int{{0xa440, 0xc67e}, {0xa140, 0xa3bf}}},
}

// double is a charset with characters of two bytes.
type double struct {
	name     string
	encoding encoding.Encoding
	// trail is the least second byte of a character.
	trail byte
	// common are the ranges of the characters that texts have most.
	common [][2]int
}

// leastShare is the share of common characters, of 1,000, in a text of two bytes a character.
const leastShare = 800

// share returns how many of 1,000 characters that are not ASCII are common ones.
func (d double) share(raw string) int {
	all, common := 0, 0
	for i := 0; i < len(raw); i++ {
		if raw[i] < utf8.RuneSelf {
			continue
		}
		if all++; i+1 == len(raw) || raw[i+1] < d.trail {
			continue
		}
		at := int(raw[i])<<8 | int(raw[i+1])
		for _, r := range d.common {
			if at >= r[0] && at <= r[1] {
				common++
				break
			}
		}
		i++
	}
	return common * 1000 / max(all, 1)
}

// singles are the charsets of one byte a character; of those that fit alike, the first is taken.
var singles = []struct {
	name     string
	encoding encoding.Encoding
}{
	{"windows-1252", charmap.Windows1252},
	{"windows-1250", charmap.Windows1250},
	{"windows-1251", charmap.Windows1251},
	{"koi8-r", charmap.KOI8R},
	{"windows-1253", charmap.Windows1253},
	{"windows-1254", charmap.Windows1254},
	{"windows-1255", charmap.Windows1255},
	{"windows-1256", charmap.Windows1256},
	{"iso-8859-2", charmap.ISO8859_2},
	{"iso-8859-5", charmap.ISO8859_5},
	{"ibm866", charmap.CodePage866},
	{"ibm850", charmap.CodePage850},
	{"macintosh", charmap.Macintosh},
}

// plausible weighs how much of a decoded text reads as words: letters of one script next to each other, and no signs
// or capitals within a word.
func plausible(text, charset string) (score int) {
	before := ' '
	for at, r := range text {
		if r >= utf8.RuneSelf {
			score += weigh(before, r)
			if charset == "windows-1252" && strings.ContainsRune("ŠšŽž", r) {
				score -= 3 // letters of Slavic languages, whose other letters it has not
			}
		} else if isWordRune(before) && before >= utf8.RuneSelf && isWordRune(r) && scriptOf(before) != scriptOf(r) {
			score -= 3
		}
		if r >= utf8.RuneSelf && !unicode.IsLetter(r) && isWordRune(before) {
			if next, _ := utf8.DecodeRuneInString(text[at+utf8.RuneLen(r):]); isWordRune(next) && !isApostrophe(r) {
				score -= 4 // a sign within a word
			}
		}
		before = r
	}
	return score
}

// weigh weighs one character that is not ASCII after another.
func weigh(before, r rune) int {
	if r == utf8.RuneError || unicode.IsControl(r) {
		return -8
	}
	if !unicode.IsLetter(r) {
		if isApostrophe(r) || strings.ContainsRune("«»„“”–—…°§€ № ", r) {
			return 1
		}
		if unicode.Is(unicode.Mark, r) {
			return 0
		}
		return -2
	}
	switch script := scriptOf(r); {
	case !isWordRune(before):
		if script == latin && strings.ContainsRune("¹²³ªºƒˆ", r) {
			return -2
		}
		return 1 + frequent(r)
	case scriptOf(before) != script:
		return -3
	case unicode.IsLower(before) && unicode.IsUpper(r):
		return -3 // a capital within a word
	case script == latin && before >= utf8.RuneSelf:
		return -1 // letters with marks seldom follow each other
	default:
		return 2 + frequent(r)
	}
}

// frequent weighs a letter by how many texts have it: some letters of each script make most of its words.
func frequent(r rune) int {
	if strings.ContainsRune("оеаинтсрвлαοιετσνηυρיולהאתרבמשנالينمتروبه", r) {
		return 1
	}
	return 0
}

func isWordRune(r rune) bool { return unicode.IsLetter(r) }

func isApostrophe(r rune) bool { return r == '’' || r == '‘' || r == '´' }

// The scripts that are distinguished.
const (
	latin = iota
	cyrillic
	greek
	hebrew
	arabic
	others
)

func scriptOf(r rune) int {
	switch {
	case r < 0x370:
		return latin
	case r < 0x400:
		return greek
	case r < 0x530:
		return cyrillic
	case r >= 0x590 && r < 0x600:
		return hebrew
	case r >= 0x600 && r < 0x700:
		return arabic
	case r >= 0x1e00 && r < 0x1f00:
		return latin
	}
	return others
}
