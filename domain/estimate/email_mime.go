package estimate

import (
	"errors"
	"io"
	"mime"
	"strings"

	"golang.org/x/text/encoding/htmlindex"
)

// header is the fields of a message or part that are read, by name in lower case. Of a repeated field the
// first counts.
type header map[string]string

var fieldsRead = map[string]bool{
	"from": true, "to": true, "cc": true, "subject": true, "date": true, "message-id": true, "in-reply-to": true,
	"content-type": true, "content-disposition": true, "content-transfer-encoding": true,
}

// splitHeader splits a message or part into its header and its body. It reads what a mail program would
// refuse: a line that is not a field is left out.
func (c *cut) splitHeader(text string) (header, string) {
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
		line, text = c.line(text)
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
	cut         *cut
	b           strings.Builder
	attachments []string
	// left is how many parts may still be read.
	left int
	// decode is how many bytes of attached messages may still be decoded: a message that is not encoded is
	// read where it is.
	decode int
}

func (e *entity) text() string { return e.b.String() }

// read reads a message or part.
func (e *entity) read(h header, body string, depth int) {
	if e.left--; e.left < 0 || depth > maxNesting || e.cut.ended != nil {
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
		for _, part := range e.partsOf(body, params["boundary"]) {
			ph, pb := e.cut.splitHeader(part)
			e.read(ph, pb, depth+1)
		}
	case kind == "message/rfc822":
		e.attached(h.get("content-transfer-encoding"), body, depth)
	case kind == "text/html":
		e.write(e.cut.htmlText(e.cut.decodeText(h, params, body)))
	case kind == "" || strings.HasPrefix(kind, "text/") && kind != "text/calendar":
		e.write(e.cut.decodeText(h, params, body))
	}
}

// attached reads an attached message.
func (e *entity) attached(encoding, body string, depth int) {
	text, encoded := e.cut.decodeTransfer(encoding, body)
	if encoded {
		if e.decode -= len(text); e.decode < 0 {
			return
		}
	}
	h, b := e.cut.splitHeader(text)
	e.write(h.text("subject"))
	e.read(h, b, depth+1)
}

// alternative reads the plain text, else the last part.
func (e *entity) alternative(body, boundary string, depth int) {
	list := e.partsOf(body, boundary)
	for _, part := range list {
		h, b := e.cut.splitHeader(part)
		if kind, params := mediaType(h.get("content-type")); kind == "text/plain" || kind == "" {
			if text := e.cut.decodeText(h, params, b); strings.TrimSpace(text) != "" {
				e.left--
				e.write(text)
				return
			}
		}
	}
	if len(list) > 0 {
		h, b := e.cut.splitHeader(list[len(list)-1])
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
func (e *entity) partsOf(body, boundary string) (parts []string) {
	most := e.left
	if boundary == "" || len(boundary) > 200 {
		return nil
	}
	mark := "--" + boundary
	start := -1
	for at := 0; at <= len(body) && len(parts) < most; {
		next := strings.Index(body[at:], mark)
		if next < 0 || e.cut.over(next+len(mark)) {
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
