package estimate

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"
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
