package estimate

import (
	"cmp"
	"net/mail"
	"regexp"
	"strings"
	"time"
)

const (
	// maxHeaders bounds the header of a message and of a part; the rest of a longer one is not read.
	maxHeaders = 256 << 10
	// maxMIMEParts is how many parts of a message are read.
	maxMIMEParts = 1000
)

// cutEmail cuts one message, or an mbox of many: one data point each.
func cutEmail(c *cut) error {
	text := strings.TrimLeft(c.text, "\n")
	if extension(c.path) == ".emlx" {
		text = withoutFrame(text)
	}
	line, rest := firstLine(text)
	if !isFromLine(line) && !isHead(text, 1) {
		// What is before the first message of a mailbox is none.
		if at := c.nextMessage(text, 0); at >= 0 {
			c.remarks.add(Unreadable, "line 1")
			text = text[at:]
			line, rest = firstLine(text)
		}
	}
	switch {
	case isFromLine(line) && isHead(rest, 1):
		n := newNames()
		return c.eachMessage(text, func(from, message string) error {
			return c.message(message, fromTime(from), c.id(n.unique("", message)))
		})
	case isHead(text, 1):
		return c.message(text, time.Time{}, c.id())
	}
	return unparseable(Email, "it does not begin with the header of a message")
}

// withoutFrame returns the message in a file of Apple Mail: a line with its size is before it, a list of what the
// program knows of it follows.
func withoutFrame(text string) string {
	if line, rest := firstLine(text); strings.Trim(line, "0123456789 ") == "" {
		text = rest
	}
	if at := strings.LastIndex(text, "\n<?xml "); at >= 0 && strings.Contains(text[at:], "<plist") {
		text = text[:at+1]
	}
	return text
}

// isMbox reports whether a text begins with the line that begins each message of an mbox.
func isMbox(text string) bool {
	line, rest := firstLine(strings.TrimLeft(text[:min(len(text), headBytes)], "\n"))
	return isFromLine(line) && isMessage(rest)
}

// fromLine is "From sender date". The sender is one word, or an address without its @; the date has a clock.
var fromLine = regexp.MustCompile(`^From (?: *(?:\S+|\S+ at \S+) +)?((?:[A-Z][a-z]{2},? |\d{4}-\d\d-\d\d).*\d\d:\d\d.*)$`)

// maxFromLine is the longest line that is looked at for that form.
const maxFromLine = 400

// isFromLine reports whether a line is "From sender date".
func isFromLine(line string) bool {
	return strings.HasPrefix(line, "From ") && len(line) < maxFromLine && !fromTime(line).IsZero()
}

// fromTime reads the date of such a line.
func fromTime(line string) time.Time {
	m := fromLine.FindStringSubmatch(strings.TrimRight(line, " \t"))
	if m == nil {
		return time.Time{}
	}
	date, _, _ := strings.Cut(m[1], " remote from ")
	at, _ := parseTime(date, time.UTC, false)
	return at
}

// headerNames are those of which a message must have one or two in its first lines.
var headerNames = map[string]bool{
	"from": true, "to": true, "subject": true, "date": true, "message-id": true, "received": true, "return-path": true,
	"delivered-to": true, "mime-version": true, "content-type": true, "reply-to": true, "cc": true, "sender": true,
	"x-gm-thrid": true, "x-gmail-labels": true, "x-mozilla-status": true, "in-reply-to": true, "references": true,
}

// isMessage reports whether a text begins with the header of a message.
func isMessage(text string) bool { return isHead(text, 2) }

// isHead reports whether a text begins with the fields of a header, and among them some that mails have.
func isHead(text string, least int) bool {
	known := 0
	for n := 0; n < 200 && known < least && text != ""; n++ {
		var line string
		line, text = firstLine(text)
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			if n == 0 {
				return false
			}
			continue
		}
		name, _, ok := strings.Cut(line[:min(len(line), maxTiming)], ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return false
		}
		if headerNames[strings.ToLower(name)] {
			known++
		}
	}
	return known >= least
}

// nextMessage returns where the next message of a mailbox begins after a place, negative for none. Its From line
// follows an empty line and has a field of a mail after it, or two; any other line "From …" is text.
func (w *watch) nextMessage(text string, at int) int {
	for at < len(text) {
		next := strings.Index(text[at:], "\nFrom ")
		if next < 0 || w.over(next+1) {
			return -1
		}
		at += next + 1
		line, _ := firstLine(text[at:min(len(text), at+maxFromLine)])
		if !isFromLine(line) {
			continue
		}
		least := 2
		if at < 2 || text[at-2] == '\n' {
			least = 1
		}
		if after := text[min(len(text), at+len(line)+1):]; isHead(after, least) {
			return at
		}
	}
	return -1
}

// eachMessage splits an mbox. One ">" is removed from lines that were quoted since they begin with "From ".
func (c *cut) eachMessage(text string, yield func(from, message string) error) error {
	for text != "" {
		from, rest := firstLine(text)
		end := c.nextMessage(text, len(from))
		if end < 0 {
			return yield(from, c.unquoteFrom(rest))
		}
		if err := yield(from, c.unquoteFrom(text[len(from)+1:end])); err != nil {
			return err
		}
		text = text[end:]
	}
	return nil
}

func (c *cut) unquoteFrom(message string) string {
	if !strings.Contains(message, "\n>") {
		return message
	}
	var b strings.Builder
	b.Grow(len(message))
	for {
		at := strings.Index(message, "\n>") + 1
		if at == 0 || c.over(at) {
			b.WriteString(message)
			return b.String()
		}
		b.WriteString(message[:at])
		message = message[at:]
		marks := len(message) - len(strings.TrimLeft(message, ">"))
		if strings.HasPrefix(message[marks:], "From ") {
			message = message[1:]
		}
	}
}

// message emits one message. from is when the mailbox received it, id the id for one without its own.
func (c *cut) message(text string, from time.Time, id string) error {
	h, body := c.splitHeader(text)
	if key := strings.Trim(strings.TrimSpace(h.get("message-id")), "<>"); key != "" && len(key) < 500 {
		id = "email:" + key
	}
	e := &entity{cut: c, id: id, left: maxMIMEParts, decode: 2*len(text) + headBytes}
	e.read(h, body, 0)
	if e.tooDeep {
		c.remarks.add(TooDeep, id)
	}
	subject := fitName(h.text("subject"), 1000)
	if strings.HasSuffix(subject, folderData) {
		c.remarks.add(ProgramLines, id)
		return nil
	}
	own := e.own.text()
	if isReply(h, subject) {
		kept, removed := c.withoutQuotes(own)
		if own = kept; removed {
			c.remarks.add(QuotedText, id)
		}
	}
	e.own = mailText{}
	e.own.write(own)
	e.own.write(e.aside.text())
	content := e.own.text()
	if strings.TrimSpace(content) == "" {
		content = subject
	}
	if strings.TrimSpace(content) == "" {
		c.remarks.add(NoWords, id)
		return nil
	}
	p := Point{
		ID: id, Content: content, Label: cmp.Or(subject, c.base), At: c.mailTime(h, from),
		Metadata: c.metadata("from", first(h.people("from")), "to", h.people("to"), "cc", h.people("cc"),
			"inReplyTo", fitName(strings.Trim(strings.TrimSpace(h.get("in-reply-to")), "<>"), 500), "attachments", e.attachments),
	}
	if sender := append(addresses(h.get("from")), addresses(h.get("sender"))...); len(sender) > 0 {
		p.Identity = strings.ToLower(sender[0].Address)
	}
	return c.emit(p)
}

// folderData ends the subject of a message in which mail servers keep what they know of a mailbox.
const folderData = "FOLDER INTERNAL DATA"

// mailTime returns when a message was sent: by its date, else when the last server received it, else by the From line.
func (c *cut) mailTime(h header, from time.Time) time.Time {
	received := h.get("received")
	received = received[strings.LastIndexByte(received, ';')+1:]
	for _, text := range []string{h.text("date"), received} {
		if at, ok := parseTime(text, c.zone, false); ok && isMailYear(at) {
			return at
		}
	}
	return from
}

// isMailYear reports whether a mail can be from a time: clocks that were not set write others.
func isMailYear(at time.Time) bool { return at.Year() > 1970 && at.Year() < lastYear }

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// maxPeople is how many addresses of a field are kept.
const maxPeople = 100

// addresses reads a list of addresses; one that is not in the form of the standard is looked for in angles. Names are
// decoded once more: many programs put an encoded word in quotes, where the standard has none.
func addresses(field string) []*mail.Address {
	if len(field) > maxHeaders/8 {
		field = cutRunes(field, maxHeaders/16)
	}
	parser := mail.AddressParser{WordDecoder: words}
	if list, err := parser.ParseList(field); err == nil {
		list = list[:min(len(list), maxPeople)]
		for _, a := range list {
			a.Name = decodeWords(a.Name)
		}
		return list
	}
	name, rest, _ := strings.Cut(field, "<")
	if address, _, ok := strings.Cut(rest, ">"); ok && strings.Contains(address, "@") {
		return []*mail.Address{{Name: decodeWords(strings.Trim(name, " \t\"'")), Address: strings.TrimSpace(address)}}
	}
	if f := strings.TrimSpace(field); strings.Contains(f, "@") && !strings.ContainsAny(f, " \t,") {
		return []*mail.Address{{Address: f}}
	}
	return nil
}

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
