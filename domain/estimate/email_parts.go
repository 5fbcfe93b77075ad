package estimate

import "strings"

// mailText is text that is collected from parts.
type mailText struct{ b strings.Builder }

func (m *mailText) text() string { return m.b.String() }

func (m *mailText) write(text string) {
	if text = strings.Trim(text, "\n"); strings.TrimSpace(text) == "" {
		return
	}
	if m.b.Len() > 0 {
		m.b.WriteString("\n\n")
	}
	m.b.WriteString(text)
}

// entity collects the text of a message from its parts. What the writer wrote is own; aside are attached texts,
// calendars and messages, which quote nothing.
type entity struct {
	cut         *cut
	id          string
	own, aside  mailText
	attachments []string
	// left is how many parts may still be read.
	left int
	// decode is how many bytes of attached messages may still be decoded: a message that is not encoded is
	// read where it is.
	decode int
	// attached is how many attached messages are open; otherwise how many texts are, of which another is read.
	attached, otherwise int
	// tooDeep is true if parts were not read.
	tooDeep bool
}

// part is one part of a message with its fields.
type part struct {
	h      header
	body   string
	kind   string
	params map[string]string
	name   string
	// attached is true for one that is shown as a file.
	attached bool
	// text is the text once decoded is true.
	text    string
	decoded bool
}

func (e *entity) part(h header, body string) *part {
	p := &part{h: h, body: body}
	p.kind, p.params = mediaType(h.get("content-type"))
	disposition, named := mediaType(h.get("content-disposition"))
	p.name = fitName(decodeWords(firstOf(named["filename"], p.params["name"])), 200)
	p.attached = disposition == "attachment" || p.name != ""
	return p
}

// read reads a message.
func (e *entity) read(h header, body string, depth int) { e.readPart(e.part(h, body), depth) }

// readPart reads a message or part.
func (e *entity) readPart(p *part, depth int) {
	if e.left--; e.left < 0 || depth > maxNesting || e.cut.ended != nil {
		e.tooDeep = true
		return
	}
	switch {
	case strings.HasPrefix(p.kind, "multipart/"):
		e.multipart(p, depth)
	case p.kind == "message/rfc822" || p.kind == "message/global":
		e.message(p, depth)
	case p.kind == "text/calendar" || extension(p.name) == ".ics":
		e.name(p.name)
		e.aside.write(e.cut.calendarText(e.cut.decodeText(p.h, p.params, p.body)))
	case !isReadable(p):
		e.name(p.name)
		if !strings.HasSuffix(p.kind, "-signature") {
			e.cut.remarks.add(NotText, e.id)
		}
	case p.attached:
		e.name(p.name)
		e.aside.write(strings.TrimLeft(p.name+"\n"+e.textOf(p), "\n"))
	case e.otherwise > 0: // another part has the same text
	case e.attached > 0:
		e.aside.write(e.textOf(p))
	default:
		e.own.write(e.textOf(p))
	}
}

// isReadable reports whether a part is text: by its type, or by its name where the type is of bytes.
func isReadable(p *part) bool {
	switch p.kind {
	case "":
		return p.name == "" || isTextName(p.name)
	case "text/rtf", "text/richtext", "text/enriched":
		return false
	case "application/octet-stream", "application/text", "application/x-unknown":
		return isTextName(p.name)
	}
	return strings.HasPrefix(p.kind, "text/")
}

func isTextName(name string) bool {
	switch extension(name) {
	case ".txt", ".md", ".log", ".csv", ".tsv", ".text":
		return true
	}
	return false
}

// textOf returns the text of a part; of several forms of one text, some are looked at twice.
func (e *entity) textOf(p *part) string {
	if !p.decoded {
		p.text, p.decoded = e.cut.decodeText(p.h, p.params, p.body), true
		if p.kind == "text/html" {
			p.text = e.cut.htmlText(p.text)
		}
	}
	return p.text
}

// multipart reads the parts of a multipart. One without parts is text, whatever its header has as its type.
func (e *entity) multipart(p *part, depth int) {
	list := e.parts(p)
	if len(list) == 0 {
		if text := e.cut.decodeText(p.h, nil, p.body); e.otherwise == 0 {
			e.own.write(text)
		}
		return
	}
	chosen := -1
	if p.kind == "multipart/alternative" {
		chosen = e.choose(list)
	}
	for i, inner := range list {
		if inner.kind == "" && p.kind == "multipart/digest" {
			inner.kind = "message/rfc822"
		}
		if other := chosen >= 0 && i != chosen; other {
			e.otherwise++
			e.readPart(inner, depth+1)
			e.otherwise--
			continue
		}
		e.readPart(inner, depth+1)
	}
}

func (e *entity) parts(p *part) (list []*part) {
	for _, at := range e.cut.partsAt(p.body, p.params["boundary"], e.left) {
		h, body := e.cut.splitHeader(p.body[at[0]:at[1]])
		list = append(list, e.part(h, body))
	}
	return list
}

// stub is the length up to which a plain text may be a note that a message needs HTML.
const stub = 300

// choose returns which of several forms of one text is read: the plain one, unless it has nearly nothing of it, else
// the last that holds text.
func (e *entity) choose(list []*part) int {
	plain, rich := -1, -1
	for i, p := range list {
		switch {
		case (p.kind == "text/plain" || p.kind == "") && plain < 0:
			if strings.TrimSpace(e.textOf(p)) != "" {
				plain = i
			}
		case p.kind == "text/html", strings.HasPrefix(p.kind, "multipart/"):
			rich = i
		}
	}
	switch {
	case plain < 0 && rich < 0:
		return len(list) - 1
	case plain < 0:
		return rich
	case rich < 0 || list[rich].kind != "text/html" || len(list[rich].body) < stub:
		return plain
	}
	if text := strings.TrimSpace(e.textOf(list[plain])); len(text) < stub && len(e.textOf(list[rich])) > 4*len(text)+stub {
		return rich
	}
	return plain
}

// message reads an attached message, with its writer and date.
func (e *entity) message(p *part, depth int) {
	e.name(p.name)
	text, encoded := e.cut.decodeTransfer(p.h.get("content-transfer-encoding"), p.body)
	if encoded {
		if e.decode -= len(text); e.decode < 0 {
			e.tooDeep = true
			return
		}
		text = e.cut.mailText(text)
	}
	h, body := e.cut.splitHeader(strings.TrimLeft(text, "\n"))
	var head []string
	for _, f := range [][2]string{
		{"From", first(h.people("from"))}, {"Date", fitName(h.text("date"), 200)}, {"Subject", fitName(h.text("subject"), 1000)},
	} {
		if f[1] != "" {
			head = append(head, f[0]+": "+f[1])
		}
	}
	e.aside.write(strings.Join(head, "\n"))
	e.attached++
	e.read(h, body, depth+1)
	e.attached--
}

// maxAttachments is how many names of attachments are kept.
const maxAttachments = 50

func (e *entity) name(name string) {
	if name != "" && len(e.attachments) < maxAttachments {
		e.attachments = append(e.attachments, name)
	}
}
