package estimate

import (
	"cmp"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// message is one message of a chat. A chat keeps all of them until they are in order.
type message struct {
	// at is in microseconds since 1970, noTime if it is not known.
	at     int64
	author string
	text   string
}

// noTime is before every other time.
const noTime = math.MinInt64

// time returns the time of a message, the zero time if it is not known.
func (m message) time() time.Time {
	if m.at == noTime {
		return time.Time{}
	}
	return time.UnixMicro(m.at)
}

// room collects the messages of one chat.
type room struct {
	// name is "" for a chat that its file does not name.
	name     string
	messages []message
	// silent counts messages without words.
	silent int
}

func (r *room) add(at time.Time, author, text string) {
	m := message{noTime, fitName(author, maxSpeaker), strings.TrimSpace(text)}
	if !at.IsZero() {
		m.at = at.UnixMicro()
	}
	if m.text == "" {
		r.silent++
		return
	}
	r.messages = append(r.messages, m)
}

// cutChat cuts the export of a chat: one data point for each day.
func cutChat(c *cut) error {
	text := strings.TrimSpace(c.text)
	var err error
	head := text[:min(len(text), headBytes)]
	switch {
	case strings.HasPrefix(text, "[{"), strings.HasPrefix(text, "{"), isChatExport(head):
		err = cutChatJSON(c, text)
	case isChatTable(head):
		err = cutChatTable(c)
	default:
		err = cutChatText(c)
	}
	if err == nil && c.points == 0 {
		return unparseable(Chat, "it has no messages")
	}
	return err
}

// days emits the days of a chat. The time of a day is that of its last message: nothing in it is later.
func (c *cut) days(r *room) error {
	for range r.silent {
		c.remarks.add(NoWords, r.name)
	}
	slices.SortStableFunc(r.messages, func(a, b message) int {
		if c.over(1) {
			return 0
		}
		return cmp.Compare(a.at, b.at)
	})
	for len(r.messages) > 0 && c.ended == nil {
		day := c.dayOf(r.messages[0])
		n := 1
		for n < len(r.messages) && c.dayOf(r.messages[n]) == day {
			n++
		}
		if err := c.day(r.name, day, r.messages[:n]); err != nil {
			return err
		}
		r.messages = r.messages[n:]
	}
	return nil
}

// dayOf returns the day of a message in the zone of the request, "" for a message without a time.
func (c *cut) dayOf(m message) string {
	if m.at == noTime {
		return ""
	}
	return m.time().In(c.zone).Format(time.DateOnly)
}

func (c *cut) day(name, day string, messages []message) error {
	var b strings.Builder
	same := true
	for i, m := range messages {
		if c.over(len(m.text)) {
			return c.ended
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		if m.at != noTime {
			b.WriteString("[" + m.time().In(c.zone).Format("15:04") + "] ")
		}
		if m.author != "" {
			b.WriteString(m.author + ": ")
		}
		b.WriteString(m.text)
		same = same && m.author == messages[0].author
	}
	title := cmp.Or(name, c.base)
	p := Point{Content: b.String(), At: messages[len(messages)-1].time(), Label: title, Metadata: c.metadata("chat", name)}
	if same {
		p.Identity = messages[0].author
	}
	switch {
	case day == "":
		p.ID = c.id(nonEmpty(name, "undated")...)
	case strings.Contains(title, day):
		p.ID = c.id(nonEmpty(name, day)...)
	default:
		p.ID, p.Label = c.id(nonEmpty(name, day)...), c.labelled(title, ", "+day)
	}
	return c.emit(p)
}

func nonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(t string) bool { return t == "" })
}

// The marks of direction that WhatsApp writes before names and times.
const directionMarks = "\u200e\u200f\u202a\u202c"

// maxStamp is how much of a line may come before the text of its message.
const maxStamp = 160

// stampOf splits "[time] name: text", "time - name: text" and "time <name> text". The line need not be a
// message: the caller reads the time.
func stampOf(line string) (stamp, author, text string, ok bool) {
	line = strings.TrimLeft(line, directionMarks+" \t")
	head := line[:min(len(line), maxStamp)]
	var rest string
	switch {
	case strings.HasPrefix(head, "["):
		end := strings.IndexByte(head, ']')
		if end < 0 {
			return "", "", "", false
		}
		stamp, rest = line[1:end], line[end+1:]
	case head != "" && head[0] >= '0' && head[0] <= '9':
		end := strings.Index(head, " - ")
		angle := strings.Index(head, " <")
		switch {
		case end > 0 && (angle < 0 || end < angle):
			stamp, rest = line[:end], line[end+3:]
		case angle > 0:
			stamp, rest = line[:angle], line[angle+1:]
		default:
			return "", "", "", false
		}
	default:
		return "", "", "", false
	}
	rest = strings.TrimLeft(rest, directionMarks+" \t")
	head = rest[:min(len(rest), maxStamp)]
	if strings.HasPrefix(head, "<") {
		if end := strings.IndexByte(head, '>'); end > 1 {
			return stamp, head[1:end], rest[end+1:], true
		}
	}
	// A name may hold a colon only as the end of the name.
	colon := strings.Index(head, ":")
	if colon <= 0 || utf8.RuneCountInString(head[:colon]) > maxSpeaker {
		return stamp, "", rest, true
	}
	return stamp, strings.Trim(head[:colon], directionMarks+"~\u202f\u00a0 "), rest[colon+1:], true
}

// isChatText reports whether a text begins with a dated message, and other lines are such, too.
func isChatText(head string) bool {
	lines, messages := 0, 0
	for line := range strings.Lines(head) {
		line = strings.TrimRight(line, "\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if lines++; lines > 100 {
			break
		}
		stamp, author, _, ok := stampOf(line)
		if _, dated := parseTime(cleanStamp(stamp), time.UTC, false); ok && dated {
			if author != "" {
				messages++
			}
		} else if lines == 1 {
			return false
		}
	}
	return messages >= 2 && messages*5 >= min(lines, 100)
}

// cleanStamp removes what parseTime does not read.
func cleanStamp(stamp string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch r {
		case '\u200e', '\u200f', '\u202a', '\u202c':
			return -1
		case '\u202f', '\u00a0':
			return ' '
		}
		return r
	}, stamp))
}

// cutChatText cuts lines of "[time] name: text", as WhatsApp and many others write them. Other lines go on
// with the message before.
func cutChatText(c *cut) error {
	r := &room{}
	monthFirst := c.stampOrder()
	date := dateInName(c.path, c.zone)
	var sent time.Time
	var name string
	var b strings.Builder
	open := false
	flush := func() {
		if open {
			r.add(sent, name, b.String())
		}
		b.Reset()
		open = false
	}
	n := 0
	for text := c.text; text != ""; {
		var line string
		line, text = c.line(text)
		n++
		stamp, author, said, ok := stampOf(line)
		at, dated := time.Time{}, false
		if ok {
			at, dated = stampTime(cleanStamp(stamp), date, c.zone, monthFirst)
		}
		switch {
		case dated:
			flush()
			// A line without a name is of the program.
			if author == "" {
				c.remarks.add(ProgramLines, "line "+strconv.Itoa(n))
			}
			if open = author != ""; open {
				sent, name = at, author
				b.WriteString(strings.Trim(said, directionMarks+" "))
			}
		case open:
			b.WriteByte('\n')
			b.WriteString(line)
		}
	}
	flush()
	return c.days(r)
}

// stampOrder returns whether the times of a chat have the month first.
func (c *cut) stampOrder() bool {
	var o dateOrder
	for text := c.text; text != ""; {
		var line string
		line, text = c.line(text)
		if stamp, _, _, ok := stampOf(line); ok {
			o.add(cleanStamp(stamp))
		}
	}
	return o.isMonthFirst()
}

// stampTime reads a date and time, or a time of the day that the name of the file has.
func stampTime(stamp string, date time.Time, zone *time.Location, monthFirst bool) (time.Time, bool) {
	if at, ok := parseTime(stamp, zone, monthFirst); ok {
		return at, true
	}
	if len(stamp) > len("10:15:30 PM") || len(stamp) < len("9:15") {
		return time.Time{}, false
	}
	for _, layout := range []string{"15:04:05", "15:04", "3:04:05 PM", "3:04 PM"} {
		if clock, err := time.Parse(layout, strings.ToUpper(stamp)); err == nil {
			if date.IsZero() {
				return time.Time{}, true
			}
			y, m, d := date.Date()
			return time.Date(y, m, d, clock.Hour(), clock.Minute(), clock.Second(), 0, zone), true
		}
	}
	return time.Time{}, false
}

// The first lines of the tables that Discord and its exporter write.
var chatHeaders = []string{"AuthorID,Author,Date,Content", "ID,Timestamp,Contents"}

func isChatTable(head string) bool {
	line, _ := firstLine(head)
	line = strings.ReplaceAll(line[:min(len(line), maxTiming)], `"`, "")
	for _, h := range chatHeaders {
		if strings.HasPrefix(line, h) {
			return true
		}
	}
	return false
}

// cutChatTable cuts a table of messages.
func cutChatTable(c *cut) error {
	if c.tooWide(c.text, ',') {
		return unparseable(Chat, "a row has more than %d columns", maxColumns)
	}
	rows := c.csv(c.text, ',')
	header, err := rows.Read()
	if err != nil {
		return unparseable(Chat, "%v", err)
	}
	header = slices.Clone(header)
	author, at := columnOf(header, authorNames), columnOf(header, timeNames)
	text := columnOf(header, []string{"content", "contents"})
	r := &room{}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return c.days(r)
		}
		if err != nil {
			return unparseable(Chat, "%v", err)
		}
		sent, _ := parseTime(cell(row, at), c.zone, false)
		r.add(sent, cell(row, author), cell(row, text))
	}
}

func cell(row []string, column int) string {
	if column < 0 || column >= len(row) {
		return ""
	}
	return strings.Clone(row[column])
}
