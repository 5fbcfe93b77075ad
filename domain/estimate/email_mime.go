package estimate

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

// header is the fields of a message or part that are read, by name in lower case. Of a repeated field the
// first counts.
type header map[string]string

var fieldsRead = map[string]bool{
	"from": true, "to": true, "cc": true, "subject": true, "date": true, "message-id": true, "in-reply-to": true,
	"content-type": true, "content-disposition": true, "content-transfer-encoding": true, "received": true,
	"references": true, "sender": true, "x-forwarded-message-id": true,
}

// splitHeader splits a message or part into its header and its body. It reads what a mail program would
// refuse: a line that is not a field is left out.
func (w *watch) splitHeader(text string) (header, string) {
	h := header{}
	name, size := "", 0
	var value strings.Builder
	set := func() {
		if _, ok := h[name]; !ok && name != "" {
			h[name] = value.String()
		}
		value.Reset()
	}
	for text != "" {
		var line string
		line, text = w.line(text)
		if line == "" {
			break
		}
		if size += len(line); size > maxHeaders {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			if name != "" {
				value.WriteByte(' ')
				value.WriteString(strings.TrimSpace(line))
			}
			continue
		}
		set()
		field, rest, ok := strings.Cut(line, ":")
		if name = ""; ok && fieldsRead[strings.ToLower(field)] {
			name = strings.ToLower(field)
			value.WriteString(strings.TrimSpace(rest))
		}
	}
	set()
	return h, text
}

func (h header) get(name string) string { return h[name] }

// words decodes =?charset?…?=.
var words = &mime.WordDecoder{CharsetReader: func(charset string, input io.Reader) (io.Reader, error) {
	if e := encodingOf(charset); e != nil {
		return e.NewDecoder().Reader(input), nil
	}
	return nil, fmt.Errorf("charset %.50q is not known", charset)
}}

// decodeWords decodes the encoded words of a text; one in a charset that is not known stays.
func decodeWords(text string) string {
	if strings.Contains(text, "=?") {
		if decoded, err := words.DecodeHeader(text); err == nil {
			text = decoded
		}
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

// text returns a field with its encoded words decoded.
func (h header) text(name string) string {
	value := h[name]
	if len(value) > 16<<10 {
		value = cutRunes(value, 8<<10)
	}
	return decodeWords(value)
}

// people returns the addresses of a field as "Name <address>".
func (h header) people(name string) (list []string) {
	for _, a := range addresses(h[name]) {
		text := a.Address
		if a.Name != "" {
			text = fitName(a.Name, 200) + " <" + a.Address + ">"
		}
		list = append(list, fitName(text, 500))
	}
	return list
}

// mediaType reads a type with its parameters, "" for none and for one that cannot be read.
func mediaType(field string) (kind string, params map[string]string) {
	if len(field) > 8<<10 {
		return "", nil
	}
	kind, params, err := mime.ParseMediaType(field)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		kind, _, _ = strings.Cut(field, ";")
		return strings.ToLower(strings.TrimSpace(kind)), boundaryOf(field)
	}
	return kind, params
}

// boundaryOf finds the boundary in a field that is otherwise wrong.
func boundaryOf(field string) map[string]string {
	at := strings.Index(strings.ToLower(field), "boundary=")
	if at < 0 {
		return nil
	}
	value := strings.TrimLeft(field[min(len(field), at+len("boundary=")):], `"`)
	if end := strings.IndexAny(value, `";`); end >= 0 {
		value = value[:end]
	}
	return map[string]string{"boundary": strings.TrimSpace(value)}
}

// partsAt returns where the parts of a multipart begin and end, at most some of them.
func (w *watch) partsAt(body, boundary string, most int) (parts [][2]int) {
	if boundary == "" || len(boundary) > 200 {
		return nil
	}
	mark := "--" + boundary
	start := -1
	for at := 0; at <= len(body) && len(parts) < most; {
		next := strings.Index(body[at:], mark)
		if next < 0 || w.over(next+len(mark)) {
			break
		}
		at += next
		end := at + len(mark)
		if at > 0 && body[at-1] != '\n' || end < len(body) && strings.IndexByte("\n- \t", body[end]) < 0 {
			at = end
			continue
		}
		if start >= 0 {
			parts = append(parts, [2]int{start, at})
		}
		if strings.HasPrefix(body[end:], "--") {
			return parts
		}
		line, _ := firstLine(body[end:])
		start = min(end+len(line)+1, len(body))
		at = start
		if start == len(body) {
			break
		}
	}
	// A message that was cut off has no closing boundary.
	if start >= 0 && start < len(body) && len(parts) < most {
		parts = append(parts, [2]int{start, len(body)})
	}
	return parts
}

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

// mailText decodes the parts of one message, or of many, that were sent in 8 bits. Headers and encoded parts stay as
// they are: what a message names as their charsets is still right.
func (w *watch) mailText(raw string) string {
	raw = strings.ReplaceAll(w.lineEnds(strings.TrimPrefix(raw, byteOrderMark)), "\x00", "\ufffd")
	if utf8.ValidString(raw) {
		return raw
	}
	var b strings.Builder
	b.Grow(len(raw) + len(raw)/8)
	start := 0
	for _, end := range append(w.messageEnds(raw), len(raw)) {
		m := mailDecoder{watch: w, to: &b, left: maxMIMEParts}
		m.entity(raw[start:end], "", 0)
		start = end
	}
	return b.String()
}

// messageEnds returns where in a mailbox messages end, except for the last one.
func (w *watch) messageEnds(text string) (ends []int) {
	first, _ := firstLine(text)
	if !isFromLine(first) {
		return nil
	}
	for at := len(first); at < len(text); {
		next := w.nextMessage(text, at)
		if next < 0 {
			break
		}
		ends = append(ends, next)
		at = next
	}
	return ends
}

// mailDecoder writes a message in UTF-8.
type mailDecoder struct {
	watch *watch
	to    *strings.Builder
	// left is how many parts may still be read by their charset.
	left int
}

// entity writes a message or part. outer is the charset of the message that it is in.
func (m *mailDecoder) entity(text, outer string, depth int) {
	if m.left--; utf8.ValidString(text) {
		m.to.WriteString(text)
		return
	}
	h, body := m.watch.splitHeader(text)
	head := text[:len(text)-len(body)]
	kind, params := mediaType(h.get("content-type"))
	charset := firstOf(params["charset"], outer)
	m.write(head, charset)
	encoding := strings.ToLower(strings.TrimSpace(h.get("content-transfer-encoding")))
	isEncoded := encoding == "base64" || encoding == "quoted-printable"
	switch {
	case m.left < 0 || depth > maxNesting || m.watch.ended != nil || isEncoded:
		m.write(body, "")
	case strings.HasPrefix(kind, "multipart/"):
		at := 0
		for _, part := range m.watch.partsAt(body, params["boundary"], m.left) {
			m.write(body[at:part[0]], "")
			m.entity(body[part[0]:part[1]], charset, depth+1)
			at = part[1]
		}
		m.write(body[at:], "")
	case kind == "message/rfc822" || kind == "message/global":
		m.entity(body, charset, depth+1)
	case kind == "" || strings.HasPrefix(kind, "text/"):
		m.write(body, charset)
	default:
		m.to.WriteString(strings.ToValidUTF8(body, "\ufffd"))
	}
}

// write writes a text that is in a charset.
func (m *mailDecoder) write(text, charset string) {
	m.to.WriteString(m.watch.decodeAs(text, charset))
}

// decodeAs decodes bytes by a charset that a header names; many programs name a wrong one, or none.
func (w *watch) decodeAs(raw, charset string) string {
	if !isWide(charset) && utf8.ValidString(raw) {
		return raw
	}
	if !isUTF8(charset) {
		if e := encodingOf(charset); e != nil {
			return w.decode(e, raw)
		}
	}
	if isMostlyUTF8(raw) {
		return strings.ToValidUTF8(raw, "\ufffd")
	}
	_, guessed := guessCharset(raw)
	return w.decode(guessed, raw)
}
