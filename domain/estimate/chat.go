package estimate

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
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
