package estimate

import (
	"strings"
	"unicode/utf8"
)

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
