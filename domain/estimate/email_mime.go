package estimate

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"mime/quotedprintable"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/htmlindex"
)

// header is the fields of a message or part, by name in lower case. Of a repeated field the first counts.
type header map[string]string

// splitHeader splits a message or part into its header and its body. It reads what a mail program would
// refuse: a line that is not a field is left out.
func splitHeader(text string) (header, string) {
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
		line, text = firstLine(text)
		if line == "" {
			break
		}
		if size += len(line); size > maxHeaders {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			value.WriteByte(' ')
			value.WriteString(strings.TrimSpace(line))
			continue
		}
		set()
		field, rest, ok := strings.Cut(line, ":")
		if name = ""; ok && !strings.ContainsAny(field, " \t") {
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
	encoding, err := htmlindex.Get(charset)
	if err != nil {
		return nil, err
	}
	return encoding.NewDecoder().Reader(input), nil
}}

// text returns a field with its encoded words decoded.
func (h header) text(name string) string {
	value := h[name]
	if len(value) > 16<<10 {
		value = cutRunes(value, 8<<10)
	}
	if decoded, err := words.DecodeHeader(value); err == nil {
		return strings.ToValidUTF8(decoded, "\ufffd")
	}
	return value
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

// entity collects the text of a message from its parts.
type entity struct {
	b           strings.Builder
	attachments []string
	// left is how many parts may still be read.
	left int
}

func (e *entity) text() string { return e.b.String() }

// read reads a message or part.
func (e *entity) read(h header, body string, depth int) {
	if e.left--; e.left < 0 || depth > maxNesting {
		return
	}
	kind, params := mediaType(h.get("content-type"))
	disposition, named := mediaType(h.get("content-disposition"))
	name := firstOf(named["filename"], params["name"])
	if disposition == "attachment" || name != "" && !strings.HasPrefix(kind, "text/") {
		e.attach(name)
		return
	}
	switch {
	case kind == "multipart/alternative":
		e.alternative(body, params["boundary"], depth)
	case strings.HasPrefix(kind, "multipart/"):
		for _, part := range partsOf(body, params["boundary"], e.left) {
			ph, pb := splitHeader(part)
			e.read(ph, pb, depth+1)
		}
	case kind == "message/rfc822":
		ph, pb := splitHeader(string(decodeTransfer(h.get("content-transfer-encoding"), body)))
		e.write(ph.text("subject"))
		e.read(ph, pb, depth+1)
	case kind == "text/html":
		e.write(htmlText(decodeText(h, params, body), true))
	case kind == "" || strings.HasPrefix(kind, "text/") && kind != "text/calendar":
		e.write(decodeText(h, params, body))
	}
}

// alternative reads the plain text, else the last part.
func (e *entity) alternative(body, boundary string, depth int) {
	list := partsOf(body, boundary, e.left)
	for _, part := range list {
		h, b := splitHeader(part)
		if kind, params := mediaType(h.get("content-type")); kind == "text/plain" || kind == "" {
			if text := decodeText(h, params, b); strings.TrimSpace(text) != "" {
				e.left--
				e.write(text)
				return
			}
		}
	}
	if len(list) > 0 {
		h, b := splitHeader(list[len(list)-1])
		e.read(h, b, depth+1)
	}
}

func (e *entity) write(text string) {
	if text = strings.Trim(text, "\n"); strings.TrimSpace(text) == "" {
		return
	}
	if e.b.Len() > 0 {
		e.b.WriteString("\n\n")
	}
	e.b.WriteString(text)
}

// maxAttachments is how many names of attachments are kept.
const maxAttachments = 50

func (e *entity) attach(name string) {
	if decoded, err := words.DecodeHeader(name); err == nil {
		name = decoded
	}
	if name = fitName(strings.ToValidUTF8(name, "\ufffd"), 200); name != "" && len(e.attachments) < maxAttachments {
		e.attachments = append(e.attachments, name)
	}
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

// partsOf splits the body of a multipart at its boundary, without a copy. The parts share the text.
func partsOf(body, boundary string, most int) (parts []string) {
	if boundary == "" || len(boundary) > 200 {
		return nil
	}
	mark := "--" + boundary
	start := -1
	for at := 0; at <= len(body) && len(parts) < most; {
		next := strings.Index(body[at:], mark)
		if next < 0 {
			break
		}
		at += next
		end := at + len(mark)
		if at > 0 && body[at-1] != '\n' || end < len(body) && strings.IndexByte("\n- \t", body[end]) < 0 {
			at = end
			continue
		}
		if start >= 0 {
			parts = append(parts, body[start:at])
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
		parts = append(parts, body[start:])
	}
	return parts
}

// decodeTransfer decodes base64 and quoted-printable; what cannot be decoded is left out.
func decodeTransfer(encoding, body string) []byte {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "base64":
		raw := make([]byte, 0, len(body))
		for i := range len(body) {
			if b := body[i]; b > ' ' && b != '=' {
				raw = append(raw, b)
			}
		}
		n, _ := base64.RawStdEncoding.Decode(raw, raw) // what was decoded before an error counts
		return raw[:n]
	case "quoted-printable":
		return decodeQuoted(body)
	default:
		return []byte(body)
	}
}

const maxQuotedLine = 3000

func hasLongLine(text string) bool {
	for line := range strings.Lines(text) {
		if len(line) > maxQuotedLine {
			return true
		}
	}
	return false
}

// decodeQuoted decodes quoted-printable. A line that is wrong stays as it is.
func decodeQuoted(body string) []byte {
	var out bytes.Buffer
	out.Grow(len(body))
	// The reader has room for lines of a few thousand bytes.
	if !hasLongLine(body) {
		if _, err := out.ReadFrom(quotedprintable.NewReader(strings.NewReader(body))); err == nil {
			return out.Bytes()
		}
		out.Reset()
	}
	for body != "" {
		var line string
		line, body = firstLine(body)
		if len(line) > maxQuotedLine {
			out.WriteString(line)
			out.WriteByte('\n')
			continue
		}
		decoded, err := io.ReadAll(quotedprintable.NewReader(strings.NewReader(line + "\n")))
		if err != nil {
			decoded = []byte(line + "\n")
		}
		out.Write(decoded)
	}
	return out.Bytes()
}

// decodeText returns the text of a part. A part that was sent as it is was decoded with its file, unless
// its charset writes other characters in ASCII.
func decodeText(h header, params map[string]string, body string) string {
	raw := decodeTransfer(h.get("content-transfer-encoding"), body)
	charset := strings.ToLower(params["charset"])
	if utf8.Valid(raw) && !(isASCII(raw) && (strings.HasPrefix(charset, "iso-2022") || charset == "hz-gb-2312")) &&
		!strings.HasPrefix(charset, "utf-16") {
		return normalize(string(bytes.ReplaceAll(raw, []byte{0}, nil)))
	}
	if charset == "" || charset == "us-ascii" || charset == "utf-8" {
		charset = "windows-1252"
	}
	encoding, err := htmlindex.Get(charset)
	if err != nil {
		return normalize(strings.ToValidUTF8(string(raw), "\ufffd"))
	}
	decoded, err := encoding.NewDecoder().Bytes(raw)
	if err != nil {
		decoded = bytes.ToValidUTF8(raw, []byte("\ufffd"))
	}
	return normalize(string(bytes.ReplaceAll(decoded, []byte{0}, nil)))
}

func isASCII(raw []byte) bool {
	for _, b := range raw {
		if b >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
