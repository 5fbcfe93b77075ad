package estimate

import (
	"bytes"
	"context"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/unicode"

	"github.com/annals-project/annals/domain/limit"
)

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
		return unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)
	case zeros[0] > half*3/4 && zeros[1] == 0:
		return unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)
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
