package estimate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/limit"
)

const byteOrderMark = "\ufeff"

// encodeJSON encodes a value that cannot fail.
func encodeJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return []byte("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// digest returns the first 16 hexadecimal digits of the SHA-256 of texts.
func digest(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		_, _ = h.Write([]byte(t)) // a hash takes everything
		_, _ = h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// fitID brings an id within its limit: a long one keeps its beginning and gets a digest.
func fitID(id string) string {
	clean := strings.ReplaceAll(id, "\x00", "\ufffd")
	if utf8.RuneCountInString(clean) <= limit.SourceID && clean == id {
		return id
	}
	return cutRunes(clean, limit.SourceID-20) + "~" + digest(id)
}

// fitName brings a label or identity on one line and within its limit.
func fitName(text string, most int) string {
	if isName(text, most) {
		return text
	}
	// Only the beginning can be kept: the rest is not read.
	if len(text) > 16*most {
		text = cutRunes(text, 8*most)
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	return strings.TrimSpace(cutRunes(strings.Join(strings.Fields(text), " "), most))
}

// isName reports whether a text is on one line, without white space that fitName removes, and within its limit.
func isName(text string, most int) bool {
	space := true
	for _, r := range text {
		if most--; most < 0 || unicode.IsControl(r) || unicode.IsSpace(r) && (space || r != ' ') {
			return false
		}
		space = r == ' '
	}
	return !space || text == ""
}

// oneLine returns the words of a text with one space between them.
func oneLine(text string) string {
	var b strings.Builder
	for word := range strings.FieldsSeq(text) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
	}
	return b.String()
}

// fitTime returns the zero time for what no send takes.
func fitTime(at time.Time) time.Time {
	if at.IsZero() {
		return time.Time{}
	}
	at = instant.Truncate(at)
	if y := at.Year(); y < 1 || y > 9999 {
		return time.Time{}
	}
	return at
}

// cutRunes returns the first n characters of a text.
func cutRunes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

// title returns the first line of a text that has a letter or digit if it is short, else "".
func title(text string) string {
	for line := range strings.Lines(text[:min(len(text), 4096)]) {
		line = strings.Trim(strings.TrimSpace(line), "#=*_- \t")
		if strings.IndexFunc(line, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) < 0 {
			continue
		}
		if len(line) > 120 {
			return ""
		}
		return line
	}
	return ""
}

// parts cuts a text into parts of at most about partBytes, at an empty line if there is one in the second
// half, else at the end of a line, else between characters. It calls yield with each.
func parts(text string, yield func(part string) error) error {
	for len(text) > partBytes {
		window := text[:partBytes]
		at := strings.LastIndex(window, "\n\n") + 1
		if at < partBytes/2 {
			at = strings.LastIndexByte(window, '\n') + 1
		}
		if at < partBytes/2 {
			at = strings.LastIndexByte(window, ' ') + 1
		}
		if at < partBytes/2 {
			for at = partBytes; !utf8.RuneStart(text[at]); at-- {
			}
		}
		if err := yield(text[:at]); err != nil {
			return err
		}
		text = text[at:]
	}
	return yield(text)
}

// firstLine splits a text at its first line end.
func firstLine(text string) (line, rest string) {
	line, rest, _ = strings.Cut(text, "\n")
	return line, rest
}
