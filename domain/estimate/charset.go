package estimate

import (
	"bytes"
	"context"
	"math"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	utf "golang.org/x/text/encoding/unicode"

	"github.com/annals-project/annals/domain/charset"
	"github.com/annals-project/annals/domain/limit"
)

// encodingOf returns the encoding that a charset names, nil for a name that is not known.
func encodingOf(name string) encoding.Encoding { return charset.Of(name) }

// isUTF8 reports whether a charset names UTF-8 or its part ASCII.
func isUTF8(charset string) bool {
	switch strings.ToLower(charset) {
	case "", "utf-8", "utf8", "us-ascii", "ascii", "ansi_x3.4-1968":
		return true
	}
	return false
}

// isShifted reports whether a charset writes all characters with the bytes of ASCII.
func isShifted(charset string) bool {
	charset = strings.ToLower(charset)
	return strings.HasPrefix(charset, "iso-2022") || charset == "hz-gb-2312" || charset == "csiso2022jp"
}

// isWide reports whether the bytes of a charset say nothing by themselves: a text in it can be valid UTF-8.
func isWide(charset string) bool {
	charset = strings.ToLower(charset)
	return strings.HasPrefix(charset, "utf-16") || strings.HasPrefix(charset, "utf-32")
}

// isDouble reports whether a charset has characters of two bytes.
func isDouble(charset string) bool {
	switch encodingOf(charset) {
	case japanese.ShiftJIS, japanese.EUCJP, korean.EUCKR, simplifiedchinese.GBK, simplifiedchinese.GB18030,
		traditionalchinese.Big5:
		return true
	}
	return false
}

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
	double, share := doubles()[0], 0
	for _, d := range doubles() {
		if s := d.share(raw); s > share {
			double, share = d, s
		}
	}
	switch {
	case share < frequentShare && isThaiText(raw):
		return "windows-874", charmap.Windows874
	case share >= leastShare:
		return double.name, double.encoding
	}
	best, most := singles[0], math.MinInt
	for _, c := range singles {
		decoded, err := c.encoding.NewDecoder().String(raw)
		if err != nil {
			continue
		}
		if score := plausible(decoded) + spelled(decoded, c.alphabets); score > most {
			best, most = c, score
		}
	}
	return best.name, best.encoding
}

// isThaiText reports whether the bytes are Thai: its marks follow consonants, and other texts have no such order.
func isThaiText(raw string) bool {
	letters, marks, wrong := 0, 0, 0
	for i := range len(raw) {
		b := raw[i]
		if b < utf8.RuneSelf {
			continue
		}
		letters++
		next := byte(0)
		if i+1 < len(raw) {
			next = raw[i+1]
		}
		switch isMark := b == 0xd1 || b >= 0xd4 && b <= 0xda || b >= 0xe7 && b <= 0xee; {
		case b < 0xa1 || b > 0xdb && b < 0xdf || b > 0xfb:
			wrong++
		case isMark && (i == 0 || raw[i-1] < 0xa1 || raw[i-1] > 0xee || raw[i-1] > 0xce && raw[i-1] < 0xd1):
			wrong++
		case b >= 0xe0 && b <= 0xe4 && (next < 0xa1 || next > 0xce), b >= 0xf0 && b <= 0xf9 && next >= 0xa1 && next < 0xef:
			wrong++ // a vowel before no consonant, a digit before a letter
		case isMark:
			marks++
		}
	}
	return letters > 3 && marks*10 > letters && wrong*50 <= letters
}

// double is a charset with characters of two bytes.
type double struct {
	name     string
	encoding encoding.Encoding
	// trail is the least second byte of a character.
	trail byte
	// common are the ranges of the characters that texts have most, frequent those that nearly each text has.
	common   [][2]int
	frequent map[int]bool
	// halfWidth is true if bytes from 0xa1 to 0xdf are characters of one byte.
	halfWidth bool
	// hasKana is true for Japanese, of which nearly each text has a frequent one.
	hasKana bool
}

// doubles are the charsets with characters of two bytes. The narrower their common characters are, the earlier.
var doubles = sync.OnceValue(func() []double {
	list := []double{
		{name: "euc-kr", encoding: korean.EUCKR, trail: 0xa1, common: [][2]int{{0xb0a1, 0xc8fe}}},
		{
			name: "euc-jp", encoding: japanese.EUCJP, trail: 0xa1, hasKana: true,
			common: [][2]int{{0xa4a1, 0xa5fe}, {0xb0a1, 0xcffe}, {0xa1a1, 0xa1fe}},
		},
		{
			name: "shift_jis", encoding: japanese.ShiftJIS, trail: 0x40, halfWidth: true, hasKana: true,
			common: [][2]int{{0x829f, 0x8396}, {0x889f, 0x9872}, {0x8140, 0x81ac}},
		},
		{
			name: "gb18030", encoding: simplifiedchinese.GB18030, trail: 0x40,
			common: [][2]int{{0xb0a1, 0xd7f9}, {0xa1a1, 0xa1fe}, {0xa3a1, 0xa3fe}},
		},
		{name: "big5", encoding: traditionalchinese.Big5, trail: 0x40, common: [][2]int{{0xa440, 0xc67e}, {0xa140, 0xa3bf}}},
	}
	for i, most := range []string{
		"이는다에의가을를은고하지도로한사서기", "のにはをたがでてとしれさあいうるなまもりす", "のにはをたがでてとしれさあいうるなまもりす",
		"的一是不了在人有我他这中大来上国和们到说时要就出会可也你对", "的一是不了在人有我他這中大來上國和們到說時要就出會可也你對",
	} {
		list[i].frequent = map[int]bool{}
		for _, r := range most {
			if pair, err := list[i].encoding.NewEncoder().String(string(r)); err == nil && len(pair) == 2 {
				list[i].frequent[int(pair[0])<<8|int(pair[1])] = true
			}
		}
	}
	return list
})

const (
	// leastShare is the share of common characters, of 1,000, in a text of two bytes a character.
	leastShare = 800
	// rareShare is that of a short one in which no frequent one occurs.
	rareShare = 980
	// frequentShare is that of a text in which frequent ones occur, as in no text of one byte a character.
	frequentShare = 1150
)

// share returns how many of 1,000 characters that are not ASCII are common ones, and more where frequent ones occur.
func (d double) share(raw string) int {
	all, common, frequent := 0, 0, 0
	for i := 0; i < len(raw); i++ {
		if raw[i] < utf8.RuneSelf || d.halfWidth && raw[i] >= 0xa1 && raw[i] <= 0xdf {
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
		if d.frequent[at] {
			frequent++
		}
		i++
	}
	share := common * 1000 / max(all, 1)
	if share < leastShare || frequent == 0 && (share < rareShare || d.hasKana) {
		return 0
	}
	return share + frequent*1000/all
}

// The letters that languages have besides those of ASCII, in lower case.
const (
	western = "äöüß|àâæçéèêëîïôœùûüÿ|áéíñóúü¿¡ºª|áâãàçéêíóôõúü|àèéìíîòóùú|áéëïíóöüè|åäöé|æøåéòôó|áðéíóúýþæö|àçèéíïòóúü·"
	central = "ąćęłńóśźż|áčďéěíňóřšťúůýž|áäčďéíĺľňóôŕšťúýž|áéíóöőúüű|čćđšž|ăâîşţșț|äöüß"
	baltic  = "ąčęėįšųūž|āčēģīķļņšūž|äöüõšž"
	turkish = "çğıöşüâîû"
	slavic  = "абвгдежзийклмнопрстуфхцчшщъыьэюяё|абвгґдеєжзиіїйклмнопрстуфхцчшщьюя|абвгдђежзијклљмнњопрстћуфхцчџш|" +
		"абвгдеёжзійклмнопрстуўфхцчшыьэюя"
)

// singles are the charsets of one byte a character, with the alphabets for which they are used. Of those that fit
// alike, the first is taken.
var singles = []struct {
	name      string
	encoding  encoding.Encoding
	alphabets string
}{
	{"windows-1252", charmap.Windows1252, western},
	{"windows-1254", charmap.Windows1254, turkish},
	{"windows-1250", charmap.Windows1250, central},
	{"windows-1251", charmap.Windows1251, slavic},
	{"koi8-r", charmap.KOI8R, slavic},
	{"koi8-u", charmap.KOI8U, slavic},
	{"windows-1253", charmap.Windows1253, "αβγδεζηθικλμνξοπρστυφχψωςάέήίόύώϊϋΐΰ"},
	{"windows-1255", charmap.Windows1255, "אבגדהוזחטיךכלםמןנסעףפץצקרשת"},
	{"windows-1256", charmap.Windows1256, "ابتثجحخدذرزسشصضطظعغفقكلمنهويةىءأإآؤئپچژگ"},
	{"windows-1257", charmap.Windows1257, baltic},
	{"iso-8859-2", charmap.ISO8859_2, central},
	{"iso-8859-15", charmap.ISO8859_15, western},
	{"iso-8859-5", charmap.ISO8859_5, slavic},
	{"ibm866", charmap.CodePage866, slavic},
	{"ibm850", charmap.CodePage850, western},
	{"ibm852", charmap.CodePage852, central},
	{"macintosh", charmap.Macintosh, western},
}

// spelled weighs the letters of a decoded text by the alphabet that has most of them: languages mix no others in.
func spelled(text, alphabets string) int {
	counts := map[rune]int{}
	for _, r := range text {
		if r >= utf8.RuneSelf && (unicode.IsLetter(r) || strings.ContainsRune("¿¡·", r)) {
			counts[unicode.ToLower(r)]++
		}
	}
	best := math.MinInt
	for alphabet := range strings.SplitSeq(alphabets, "|") {
		score := 0
		for r, n := range counts {
			if strings.ContainsRune(alphabet, r) {
				score += n
			} else {
				score -= 4 * n
			}
		}
		best = max(best, score)
	}
	return best
}

// plausible weighs how much of a decoded text reads as words: letters of one script next to each other, and no signs
// or capitals within a word.
func plausible(text string) (score int) {
	before := ' '
	for at, r := range text {
		if r >= utf8.RuneSelf {
			score += weigh(before, r)
		} else if isWordRune(before) && before >= utf8.RuneSelf && isWordRune(r) && scriptOf(before) != scriptOf(r) {
			score -= 3
		}
		if r >= utf8.RuneSelf {
			score -= misplaced(before, r, text[at+utf8.RuneLen(r):])
		}
		before = r
	}
	return score
}

// misplaced weighs a sign within a word, and a letter that stands alone and is no word.
func misplaced(before, r rune, rest string) int {
	next, _ := utf8.DecodeRuneInString(rest)
	switch {
	case isWordRune(before) && isWordRune(next) && (!unicode.IsLetter(r) || r == 'ς') && !isApostrophe(r) && r != '·' &&
		!unicode.Is(unicode.Mark, r):
		return 4
	case !isWordRune(before) && !isWordRune(next) && scriptOf(r) == cyrillic &&
		!strings.ContainsRune("аиуояквсбжєіїй", unicode.ToLower(r)):
		return 4
	}
	return 0
}

// weigh weighs one character that is not ASCII after another.
func weigh(before, r rune) int {
	if r == utf8.RuneError || unicode.IsControl(r) {
		return -8
	}
	if !unicode.IsLetter(r) {
		if isApostrophe(r) || strings.ContainsRune("«»„“”–—…°§€№¿¡·\u00a0", r) {
			return 1
		}
		if unicode.Is(unicode.Mark, r) {
			return 0
		}
		return -2
	}
	switch script := scriptOf(r); {
	case !isWordRune(before) && script == latin && strings.ContainsRune("¹²³ƒˆ", r):
		return -2
	case !isWordRune(before):
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
	if strings.ContainsRune("оеаинтсрвлαοιετσνηυρיולהאתרבמשנالينمتروبهığş", unicode.ToLower(r)) {
		return 2
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

// Text decodes the bytes of a file for Cut. A mail is decoded part by part, each by the charset that it names. Any
// other file is UTF-8, UTF-16, or in the charset that it names or that fits best; guess is a remark of a charset that
// was guessed, else nil. The error is a *Skip for what is no text, or that of the context.
func Text(
	ctx context.Context, path string, kind Kind, raw []byte,
) (text string, guess *Remark, err error) {
	w := watch{ctx: ctx, ended: ctx.Err()}
	if w.ended != nil {
		return "", nil, w.ended
	}
	if format := binaryFormat(raw); format != "" {
		return "", nil, skip("is not text: it is %s", format)
	}
	if wide := wideEncoding(raw); wide == nil && isMailFile(path, kind, raw) {
		text = w.mailText(string(raw))
	} else if text, guess, err = w.plainText(path, raw); err != nil {
		return "", nil, err
	}
	if w.ended != nil {
		return "", nil, w.ended
	}
	switch {
	case strings.IndexByte(text, 0) >= 0:
		return "", nil, skip("is not text: it holds U+0000")
	case len(text) > limit.EstimateFileBytes:
		return "", nil, skip("has %d bytes: want at most %d", len(text), limit.EstimateFileBytes)
	}
	return text, guess, nil
}

func (w *watch) plainText(path string, raw []byte) (text string, guess *Remark, err error) {
	switch wide := wideEncoding(raw); {
	case wide != nil:
		return w.decode(wide, string(raw)), nil, nil
	case bytes.Contains(raw, []byte("\x1b$B")) || bytes.Contains(raw, []byte("\x1b$@")):
		return w.decode(japanese.ISO2022JP, string(raw)), nil, nil // only it has these escapes
	case utf8.Valid(raw):
		return string(raw), nil, nil
	case isBinary(raw):
		return "", nil, skip("is not text")
	case isMostlyUTF8(string(raw)):
		return strings.ToValidUTF8(string(raw), "\ufffd"), nil, nil
	}
	if ext := extension(path); ext == ".html" || ext == ".htm" || ext == ".xhtml" {
		if name := charsetOfPage(string(raw)); !isUTF8(name) {
			return w.decodeAs(string(raw), name), nil, nil
		}
	}
	name, guessed := guessCharset(string(raw))
	return w.decode(guessed, string(raw)), &Remark{
		Code: GuessedCharset, Count: 1, Text: "its bytes are no UTF-8 and were read as " + name + ", a guess",
	}, nil
}

// binaryFormats are the first bytes of files that people take for text, with what to do.
var binaryFormats = []struct{ begin, is string }{
	{"%PDF-", "a PDF: extract its text first"},
	{"PK\x03\x04", "a ZIP archive or an office document: unpack it, or save it as text"},
	{"\x1f\x8b", "compressed: unpack it first"},
	{"\xd0\xcf\x11\xe0", "a file of Outlook or of an old office program: save it as .eml or as text"},
	{"!BDN", "a mailbox of Outlook (PST): export it as mbox or .eml"},
	{"SQLite format 3\x00", "a database: export it as CSV or JSON"},
	{"\x89PNG", "a picture"},
	{"\xff\xd8\xff", "a picture"},
	{"GIF8", "a picture"},
}

// binaryFormat names what a file is that is no text, "" for all others.
func binaryFormat(raw []byte) string {
	for _, f := range binaryFormats {
		if bytes.HasPrefix(raw, []byte(f.begin)) {
			return f.is
		}
	}
	return ""
}

// decode decodes a text; what is wrong in it becomes U+FFFD.
func (w *watch) decode(from encoding.Encoding, raw string) string {
	var b strings.Builder
	b.Grow(len(raw))
	in := from.NewDecoder().Reader(w.reader(strings.NewReader(raw)))
	buffer := make([]byte, 4096)
	for {
		n, err := in.Read(buffer)
		b.Write(buffer[:n])
		if err != nil {
			return strings.ToValidUTF8(b.String(), "\ufffd")
		}
	}
}

// wideEncoding returns the encoding of UTF-16 and UTF-32, which a byte order mark shows, or that every second byte of
// a text in mostly Latin letters is 0. It is nil for other bytes.
func wideEncoding(raw []byte) encoding.Encoding {
	switch {
	case bytes.HasPrefix(raw, []byte("\xff\xfe\x00\x00")), bytes.HasPrefix(raw, []byte("\x00\x00\xfe\xff")):
		return encodingOf("utf-32")
	case bytes.HasPrefix(raw, []byte("\xff\xfe")), bytes.HasPrefix(raw, []byte("\xfe\xff")):
		return encodingOf("utf-16")
	}
	head := raw[:min(len(raw), 4096)&^1]
	if len(head) < 8 {
		return nil
	}
	var zeros [2]int
	for i, b := range head {
		if b == 0 {
			zeros[i%2]++
		}
	}
	switch half := len(head) / 2; {
	case zeros[1] > half*3/4 && zeros[0] == 0:
		return utf.UTF16(utf.LittleEndian, utf.IgnoreBOM)
	case zeros[0] > half*3/4 && zeros[1] == 0:
		return utf.UTF16(utf.BigEndian, utf.IgnoreBOM)
	}
	return nil
}

// isMostlyUTF8 reports whether a text has at least as many characters of several bytes in UTF-8 as bytes that are none:
// in any other charset such bytes seldom make a character.
func isMostlyUTF8(text string) bool {
	good, bad := 0, 0
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		if i += size; r == utf8.RuneError && size == 1 {
			bad++
		} else {
			good++
		}
	}
	return good > 0 && good >= bad
}

// isBinary reports whether bytes that are not UTF-8 hold control characters that no text has.
func isBinary(raw []byte) bool {
	controls := 0
	head := raw[:min(len(raw), headBytes)]
	for _, b := range head {
		if b == 0 {
			return true
		}
		if b < ' ' && b != '\n' && b != '\r' && b != '\t' && b != '\f' && b != 0x1b {
			controls++
		}
	}
	return controls > len(head)/1000
}

// isMailFile reports whether a file is read as mail. Its bytes may be of many charsets.
func isMailFile(path string, kind Kind, raw []byte) bool {
	if kind != "" {
		return kind == Email
	}
	switch ext := extension(path); ext {
	case ".txt", ".log", ".text", "":
	default:
		if of, known := extensions[ext]; known {
			return of == Email
		}
	}
	head := string(bytes.TrimPrefix(raw[:min(len(raw), headBytes)], []byte(byteOrderMark)))
	head = strings.ReplaceAll(head, "\r\n", "\n")
	return isMbox(head) || isMessage(head)
}
