package webhook

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/url"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"

	"github.com/annals-project/annals/domain/charset"
)

// Plain returns the body of an event as UTF-8 without a byte order mark, by the charset that its Content-Type names if
// that is known. A form with one field whose value is a JSON object is that object: GitHub and Slack send events so.
// Any other body stays as it came. "" is the type of a body of which none is known.
func Plain(contentType string, body []byte) []byte {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind, _, _ = strings.Cut(contentType, ";")
		kind = strings.ToLower(strings.TrimSpace(kind))
	}
	from := encodingOf(params["charset"], body)
	plain := decoded(from, body)
	if json.Valid(plain) {
		return plain
	}
	if from != nil && json.Valid(body) {
		return body // the charset that is named is wrong
	}
	var value []byte
	switch kind {
	case "application/x-www-form-urlencoded", "":
		value = formValue(plain)
	case "multipart/form-data":
		value = partValue(body, params["boundary"])
	}
	if value = bytes.TrimSpace(decoded(from, value)); len(value) > 0 && value[0] == '{' && json.Valid(value) {
		return value
	}
	return plain
}

// encodingOf returns the encoding of a body: by its byte order mark, else by the charset that is named. It is nil for
// UTF-8 and for a charset that is not known.
func encodingOf(name string, body []byte) encoding.Encoding {
	switch {
	case bytes.HasPrefix(body, []byte("\xff\xfe")), bytes.HasPrefix(body, []byte("\xfe\xff")):
		return charset.Of("utf-16")
	case bytes.HasPrefix(body, byteOrderMark) || isUTF8(name):
		return nil
	}
	return charset.Of(name)
}

func isUTF8(name string) bool {
	switch strings.ToLower(name) {
	case "", "utf-8", "utf8", "us-ascii", "ascii":
		return true
	}
	return false
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// decoded returns a text in UTF-8 without a byte order mark.
func decoded(from encoding.Encoding, text []byte) []byte {
	if from != nil {
		if plain, err := from.NewDecoder().Bytes(text); err == nil {
			text = plain
		}
	}
	return bytes.TrimPrefix(text, byteOrderMark)
}

// formValue returns the value of the only field of a form, nil for another text.
func formValue(body []byte) []byte {
	name, value, ok := bytes.Cut(bytes.TrimSpace(body), []byte("="))
	if !ok || len(name) == 0 || bytes.IndexByte(value, '&') >= 0 || !utf8.Valid(name) {
		return nil
	}
	plain, err := url.QueryUnescape(string(value))
	if err != nil {
		return nil
	}
	return []byte(plain)
}

// partValue returns the only part of a form of parts, nil for another.
func partValue(body []byte, boundary string) []byte {
	if boundary == "" {
		return nil
	}
	parts := multipart.NewReader(bytes.NewReader(body), boundary)
	first, err := parts.NextPart()
	if err != nil {
		return nil
	}
	value, err := io.ReadAll(first)
	if err != nil {
		return nil
	}
	if _, err := parts.NextPart(); err == nil {
		return nil
	}
	return value
}
