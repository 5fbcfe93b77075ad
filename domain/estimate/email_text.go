package estimate

import (
	"encoding/base64"
	"io"
	"mime/quotedprintable"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

// decodeTransfer decodes base64 and quoted-printable; what cannot be decoded is left out. Any other text is
// returned as it is, and encoded is false.
func (c *cut) decodeTransfer(encoding, body string) (text string, encoded bool) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "base64":
		return c.decodeBase64(body), true
	case "quoted-printable":
		return c.decodeQuoted(body), true
	default:
		return body, false
	}
}

// decodeBase64 decodes up to the first error.
func (c *cut) decodeBase64(body string) string {
	var out strings.Builder
	out.Grow(len(body) / 4 * 3)
	raw := make([]byte, 0, checkBytes) // a multiple of the four characters that are three bytes
	flush := func() (ok bool) {
		n, err := base64.RawStdEncoding.Decode(raw, raw)
		out.Write(raw[:n])
		raw = raw[:0]
		return err == nil
	}
	for i := range len(body) {
		if b := body[i]; b > ' ' && b != '=' {
			raw = append(raw, b)
		}
		if i%checkBytes == 0 && c.over(min(checkBytes, len(body)-i)) {
			break
		}
		if len(raw) == checkBytes && !flush() {
			return out.String()
		}
	}
	flush()
	return out.String()
}

// maxQuotedLine is the longest line of quoted-printable that is decoded: the reader of the standard library
// has room for a few thousand bytes.
const maxQuotedLine = 3000

func (c *cut) hasLongLine(text string) bool {
	for text != "" {
		var line string
		if line, text = c.line(text); len(line) >= maxQuotedLine {
			return true
		}
	}
	return false
}

// decodeQuoted decodes quoted-printable. A line that is wrong stays as it is.
func (c *cut) decodeQuoted(body string) string {
	var out strings.Builder
	out.Grow(len(body))
	if !c.hasLongLine(body) {
		in := quotedprintable.NewReader(c.reader(strings.NewReader(body)))
		if _, err := io.CopyBuffer(&out, in, make([]byte, min(len(body), checkBytes)+1)); err == nil {
			return out.String()
		}
		out.Reset()
		out.Grow(len(body))
	}
	for body != "" {
		var line string
		line, body = c.line(body)
		if decoded, soft, ok := quotedLine(line); !ok {
			out.WriteString(line)
		} else if out.WriteString(decoded); soft {
			continue
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// quotedLine decodes a line of quoted-printable. soft is true if the next line continues it. ok is false for
// a line that is wrong or too long.
func quotedLine(line string) (text string, soft, ok bool) {
	if len(line) > maxQuotedLine {
		return "", false, false
	}
	line = strings.TrimRight(line, " \t")
	line, soft = strings.CutSuffix(line, "=")
	var b strings.Builder
	for i := 0; i < len(line); i++ {
		c := line[i]
		if c < ' ' && c != '\t' || c == 0x7f || c == '=' && i+1 == len(line) {
			return "", false, false
		}
		// A = that no two digits follow is itself.
		if c == '=' && i+2 < len(line) {
			if high, low := hexDigit(line[i+1]), hexDigit(line[i+2]); high >= 0 && low >= 0 {
				c = byte(high<<4 | low) //nolint:gosec // two digits
				i += 2
			}
		}
		b.WriteByte(c)
	}
	return b.String(), soft, true
}

// hexDigit returns the value of a digit, negative for another character.
func hexDigit(c byte) int {
	if c >= 'A' && c <= 'F' {
		c += 'a' - 'A'
	}
	return strings.IndexByte("0123456789abcdef", c)
}

// decodeText returns the text of a part. One that was sent as it is was decoded with its file, unless its charset
// writes other characters in ASCII.
func (c *cut) decodeText(h header, params map[string]string, body string) string {
	raw, encoded := c.decodeTransfer(h.get("content-transfer-encoding"), body)
	name := params["charset"]
	if encoded && isUTF8(name) && !utf8.ValidString(raw) {
		name = charsetOfPage(raw)
	}
	e := encodingOf(name)
	switch {
	case e != nil && isShifted(name), encoded && e != nil && isWide(name):
		raw = c.decode(e, raw)
	case encoded && e != nil && isDouble(name):
		// Short texts of these charsets can be valid UTF-8: what the header names counts, unless it is wrong.
		if decoded := c.decode(e, raw); !utf8.ValidString(raw) || !strings.ContainsRune(decoded, utf8.RuneError) {
			raw = decoded
		}
	default:
		raw = c.decodeAs(raw, name)
	}
	text := c.normalize(withoutZero(raw))
	if strings.EqualFold(params["delsp"], "yes") {
		text = c.unfold(text)
	}
	return text
}

// unfold joins the lines that a program broke within words: such a line ends with a space that is no part of the text.
// Where its spaces are part of the text, the words are whole as they are.
func (c *cut) unfold(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for text != "" {
		var line string
		line, text = c.line(text)
		if before, flows := strings.CutSuffix(line, " "); flows && line != "-- " {
			next, _ := c.line(text)
			if depth := quoteDepth(line); text != "" && depth == quoteDepth(next) {
				b.WriteString(before)
				text = strings.TrimPrefix(text[depth:], strings.Repeat(" ", min(depth, 1)))
				continue
			}
		}
		b.WriteString(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// quoteDepth returns how many marks of quotations begin a line.
func quoteDepth(line string) int { return len(line) - len(strings.TrimLeft(line, ">")) }

// charsetOfPage returns the charset that HTML names, "" for other text.
func charsetOfPage(raw string) string {
	head := raw[:min(len(raw), 1024)]
	if low := strings.ToLower(head); !strings.Contains(low, "<meta") || !strings.Contains(low, "charset") {
		return ""
	}
	_, name, _ := charset.DetermineEncoding([]byte(head), "")
	return name
}

func withoutZero(text string) string {
	if strings.IndexByte(text, 0) < 0 {
		return text
	}
	return strings.ReplaceAll(text, "\x00", "")
}
