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
	if !isMbox(text) {
		if !isMessage(text) {
			return unparseable(Email, "it does not begin with the header of a message")
		}
		return c.message(text, time.Time{}, c.id())
	}
	n := newNames()
	return c.eachMessage(text, func(from, message string) error {
		if !isMessage(message) {
			return nil
		}
		return c.message(message, fromTime(from), c.id(n.unique("", message)))
	})
}

// isMbox reports whether a text begins with the line that begins each message of an mbox.
func isMbox(text string) bool {
	line, rest := firstLine(strings.TrimLeft(text[:min(len(text), headBytes)], "\n"))
	return isFromLine(line) && isMessage(rest)
}

// isFromLine reports whether a line is "From sender date".
func isFromLine(line string) bool {
	return strings.HasPrefix(line, "From ") && len(line) < 400 && yearOrClock.MatchString(line)
}

var yearOrClock = regexp.MustCompile(`\d\d:\d\d| \d{4}\b`)

// fromTime reads the date of such a line.
func fromTime(line string) time.Time {
	_, date, _ := strings.Cut(strings.TrimPrefix(line, "From "), " ")
	for _, layout := range []string{
		"Mon Jan _2 15:04:05 2006", "Mon Jan _2 15:04:05 -0700 2006", "Mon Jan _2 15:04:05 MST 2006",
	} {
		if at, err := time.Parse(layout, strings.TrimSpace(date)); err == nil {
			return at
		}
	}
	return time.Time{}
}

// headerNames are those of which a message must have two in its first lines.
var headerNames = map[string]bool{
	"from": true, "to": true, "subject": true, "date": true, "message-id": true, "received": true, "return-path": true,
	"delivered-to": true, "mime-version": true, "content-type": true, "reply-to": true, "cc": true, "sender": true,
}

// isMessage reports whether a text begins with the header of a message.
func isMessage(text string) bool {
	known := 0
	for n := 0; n < 200 && known < 2 && text != ""; n++ {
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
	return known >= 2
}

// eachMessage splits an mbox. A line "From " begins a message if it follows an empty line and a header
// follows it. One ">" is removed from lines that were quoted since they begin with "From ".
func (c *cut) eachMessage(text string, yield func(from, message string) error) error {
	from, rest := firstLine(text)
	start := len(text) - len(rest)
	for at := start; at < len(text); {
		next := strings.Index(text[at:], "\nFrom ")
		if next < 0 || c.over(next+1) {
			break
		}
		at += next + 1
		line, after := firstLine(text[at:])
		if !isFromLine(line) || !isHeaderLine(after) || at >= 2 && text[at-2] != '\n' {
			continue
		}
		if err := yield(from, c.unquoteFrom(text[start:at])); err != nil {
			return err
		}
		from, start = line, at+len(line)+1
		at = start
	}
	return yield(from, c.unquoteFrom(text[min(start, len(text)):]))
}

// isHeaderLine reports whether a text begins with a line "Name: value".
func isHeaderLine(text string) bool {
	line, _ := firstLine(text[:min(len(text), maxTiming)])
	name, _, ok := strings.Cut(line, ":")
	return ok && name != "" && !strings.ContainsAny(name, " \t")
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
	header, body := c.splitHeader(text)
	e := &entity{cut: c, left: maxMIMEParts, decode: 2*len(text) + headBytes}
	e.read(header, body, 0)
	at, err := mail.ParseDate(header.get("date"))
	if err != nil {
		var ok bool
		if at, ok = parseTime(header.get("date"), c.zone, false); !ok {
			at = from
		}
	}
	subject := fitName(header.text("subject"), 1000)
	content := c.cutQuotes(e.text())
	if strings.TrimSpace(content) == "" {
		content = subject
	}
	if key := strings.Trim(strings.TrimSpace(header.get("message-id")), "<>"); key != "" && len(key) < 500 {
		id = "email:" + key
	}
	sender := addresses(header.get("from"))
	p := Point{
		ID: id, Content: content, Label: subject, At: at,
		Metadata: c.metadata("from", first(header.people("from")), "to", header.people("to"), "cc", header.people("cc"),
			"inReplyTo", fitName(strings.Trim(strings.TrimSpace(header.get("in-reply-to")), "<>"), 500), "attachments", e.attachments),
	}
	p.Label = cmp.Or(p.Label, c.base)
	if len(sender) > 0 {
		p.Identity = strings.ToLower(sender[0].Address)
	}
	return c.emit(p)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// maxPeople is how many addresses of a field are kept.
const maxPeople = 100

// addresses reads a list of addresses; one that is not in the form of the standard is looked for in angles.
func addresses(field string) []*mail.Address {
	if len(field) > maxHeaders/8 {
		field = cutRunes(field, maxHeaders/16)
	}
	parser := mail.AddressParser{WordDecoder: words}
	if list, err := parser.ParseList(field); err == nil {
		return list[:min(len(list), maxPeople)]
	}
	_, rest, _ := strings.Cut(field, "<")
	if address, _, ok := strings.Cut(rest, ">"); ok && strings.Contains(address, "@") {
		return []*mail.Address{{Address: address}}
	}
	if f := strings.TrimSpace(field); strings.Contains(f, "@") && !strings.ContainsAny(f, " \t,") {
		return []*mail.Address{{Address: f}}
	}
	return nil
}
