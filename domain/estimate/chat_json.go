package estimate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/annals-project/annals/domain/rawjson"
)

// isChatExport reports whether JSON begins as an export of Slack, Discord or Telegram.
func isChatExport(head string) bool {
	has := func(names ...string) bool {
		for _, n := range names {
			if !strings.Contains(head, `"`+n+`"`) {
				return false
			}
		}
		return true
	}
	start := strings.TrimSpace(head)
	switch {
	case strings.HasPrefix(start, "["):
		return has("ts", "text", "type") && has("user") || has("ts", "text", "subtype") || has("ID", "Timestamp", "Contents")
	case strings.HasPrefix(start, "{"):
		return has("guild", "channel", "messages") || has("messages", "date_unixtime") || has("messages", "from_id") ||
			has("chats", "list", "personal_information")
	}
	return false
}

// chatExport reads an export of a chat, one element at a time.
type chatExport struct {
	cut *cut
	dec *json.Decoder
	// users are the names of Slack users by id, from the messages.
	users map[string]string
}

func cutChatJSON(c *cut, text string) error {
	if err := c.nesting(Chat, text); err != nil {
		return err
	}
	e := &chatExport{cut: c, dec: json.NewDecoder(c.reader(strings.NewReader(text))), users: map[string]string{}}
	r := &room{}
	first, err := e.dec.Token()
	switch {
	case err != nil:
	case first == json.Delim('['):
		r.name = e.slackRoom()
		if err = e.elements(func() error { return e.slack(r) }); err == nil {
			err = c.days(e.named(r))
		}
	case first == json.Delim('{'):
		if err = e.object(r); err == nil {
			err = c.days(r)
		}
	default:
		err = errors.New("neither an array nor an object")
	}
	if _, skipped := errors.AsType[*Skip](err); err != nil && !skipped && isJSONError(err) {
		return unparseable(Chat, "%v", err)
	}
	return err
}

// isJSONError reports whether an error is that of the text, and not of the caller.
func isJSONError(err error) bool {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, kind := errors.AsType[*json.UnmarshalTypeError](err)
	_, shape := errors.AsType[*shapeError](err)
	return syntax || kind || shape || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// shapeError is JSON of another shape than an export has.
type shapeError struct{ what string }

func (e *shapeError) Error() string { return e.what }

// elements calls visit before each element of the array that the decoder is in. visit reads the element.
func (e *chatExport) elements(visit func() error) error {
	for e.dec.More() {
		if err := visit(); err != nil {
			return err
		}
	}
	_, err := e.dec.Token()
	return err
}

// members calls visit before the value of each member of the object that the decoder is in.
func (e *chatExport) members(visit func(name string) error) error {
	for e.dec.More() {
		name, err := e.dec.Token()
		if err != nil {
			return err
		}
		if err := visit(fmt.Sprint(name)); err != nil {
			return err
		}
	}
	_, err := e.dec.Token()
	return err
}

// enter reads the beginning of an array or object.
func (e *chatExport) enter(want json.Delim) error {
	got, err := e.dec.Token()
	if err == nil && got != want {
		return &shapeError{fmt.Sprintf("want %v, got %v", want, got)}
	}
	return err
}

func (e *chatExport) skipValue() error {
	var value json.RawMessage
	return e.dec.Decode(&value)
}

// object reads a chat of Discord or Telegram, or all chats of a Telegram export.
func (e *chatExport) object(r *room) error {
	discord := false
	return e.members(func(name string) error {
		switch name {
		case "guild":
			discord = true
			return e.skipValue()
		case "channel":
			discord = true
			var channel struct{ Name string }
			err := e.dec.Decode(&channel)
			r.name = fitName(channel.Name, 200)
			return err
		case "name":
			var value json.RawMessage
			err := e.dec.Decode(&value)
			r.name = fitName(scalar(value), 200)
			return err
		case "messages":
			if err := e.enter('['); err != nil {
				return err
			}
			return e.elements(func() error {
				if discord {
					return e.discord(r)
				}
				return e.telegram(r)
			})
		case "chats":
			if err := e.enter('{'); err != nil {
				return err
			}
			return e.members(e.chats)
		default:
			return e.skipValue()
		}
	})
}

// chats reads the list of chats in a full export of Telegram. Each is cut once it is read.
func (e *chatExport) chats(name string) error {
	if name != "list" {
		return e.skipValue()
	}
	if err := e.enter('['); err != nil {
		return err
	}
	return e.elements(func() error {
		if err := e.enter('{'); err != nil {
			return err
		}
		r := &room{}
		if err := e.object(r); err != nil {
			return err
		}
		return e.cut.days(r)
	})
}

func (e *chatExport) discord(r *room) error {
	var m struct {
		Timestamp, Content string
		Author             struct{ Name, Nickname string }
	}
	if err := e.dec.Decode(&m); err != nil {
		return err
	}
	at, _ := parseTime(m.Timestamp, e.cut.zone, false)
	r.add(at, firstOf(m.Author.Nickname, m.Author.Name), m.Content)
	return nil
}

func (e *chatExport) telegram(r *room) error {
	var m struct {
		Type, Date   string
		DateUnixtime string `json:"date_unixtime"`
		From         *string
		Text         json.RawMessage
	}
	if err := e.dec.Decode(&m); err != nil {
		return err
	}
	if m.Type != "message" && m.Type != "" {
		return nil
	}
	at, ok := parseUnix(m.DateUnixtime)
	if !ok {
		at, _ = parseTime(m.Date, e.cut.zone, false)
	}
	from := "" // of an account that was deleted
	if m.From != nil {
		from = *m.From
	}
	r.add(at, from, telegramText(m.Text))
	return nil
}

// telegramText joins the pieces of a text: strings, and objects with a text.
func telegramText(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	if text, ok := rawjson.Text(raw); ok {
		return text
	}
	var b strings.Builder
	for _, piece := range rawjson.Elements(raw) {
		if members, ok := rawjson.Members(piece, "text"); ok {
			piece = members["text"]
		}
		if len(piece) > 0 && piece[0] == '"' {
			text, _ := rawjson.Text(piece)
			b.WriteString(text)
		}
	}
	return b.String()
}

// slackRoom returns the name of the channel, which is the folder of the file.
func (e *chatExport) slackRoom() string {
	folder := path.Base(path.Dir(strings.ReplaceAll(e.cut.path, `\`, "/")))
	if folder == "." || folder == "/" {
		return ""
	}
	return fitName(folder, 200)
}

// slack reads a message of Slack, or of the copy that Discord gives a user of their own messages.
func (e *chatExport) slack(r *room) error {
	var m struct {
		Subtype, Text, User, Username, TS string
		Profile                           struct {
			RealName    string `json:"real_name"`
			DisplayName string `json:"display_name"`
			Name        string
		} `json:"user_profile"`
		Timestamp, Contents string
	}
	if err := e.dec.Decode(&m); err != nil {
		return err
	}
	if m.Contents != "" {
		at, _ := parseTime(m.Timestamp, e.cut.zone, false)
		r.add(at, "", m.Contents)
		return nil
	}
	if strings.HasPrefix(m.Subtype, "channel_") || strings.HasPrefix(m.Subtype, "group_") {
		return nil
	}
	name := firstOf(m.Profile.RealName, m.Profile.DisplayName, m.Profile.Name)
	if name != "" && m.User != "" && len(m.User) < 40 {
		e.users[m.User] = fitName(name, maxSpeaker)
	}
	at, _ := parseUnix(m.TS)
	r.add(at, firstOf(name, m.Username, m.User), m.Text)
	return nil
}

// named writes the names of users for their ids, in authors and mentions.
func (e *chatExport) named(r *room) *room {
	for i := range r.messages {
		m := &r.messages[i]
		m.author = firstOf(e.users[m.author], m.author)
		m.text = e.slackText(m.text)
	}
	return r
}

// slackText reads the markup of Slack: <@U1>, <#C1|general>, <https://…|text>, and escapes.
func (e *chatExport) slackText(text string) string {
	if !strings.ContainsAny(text, "<&") {
		return text
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "<")
		b.WriteString(before)
		if !found {
			break
		}
		mark, after, closed := strings.Cut(rest, ">")
		if !closed {
			b.WriteString("<" + rest)
			break
		}
		link, shown, labelled := strings.Cut(mark, "|")
		switch {
		case strings.HasPrefix(link, "@"):
			b.WriteString("@" + firstOf(e.users[link[1:]], shown, link[1:]))
		case strings.HasPrefix(link, "#"):
			b.WriteString("#" + firstOf(shown, link[1:]))
		case strings.HasPrefix(link, "!"):
			b.WriteString("@" + firstOf(shown, link[1:]))
		case labelled && shown != link:
			b.WriteString(shown + " (" + link + ")")
		default:
			b.WriteString(link)
		}
		text = after
	}
	return slackEscapes.Replace(b.String())
}

var slackEscapes = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&")
