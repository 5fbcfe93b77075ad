package comprehend

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// speaker is the person who is "I". The zero speaker is unknown: a sentence then stays as it is.
type speaker struct {
	name    string // as written, on one line
	machine bool   // an assistant, a system, a bot: its statements about itself are not memories
}

// maxName is the longest name of a speaker, in bytes.
const maxName = 60

// authorOf returns the speaker of a data point without turns: the author, by the name in the label
// if the author's id is not a name.
func authorOf(author, label string) speaker {
	id := flat(author)
	if len(id) > maxName {
		id = ""
	}
	name := labelSpeaker(label)
	switch {
	case machines[strings.ToLower(id)]:
		return speaker{name: id, machine: true}
	case id == "" || people[strings.ToLower(id)]:
		if machines[strings.ToLower(name)] {
			return speaker{name: name, machine: true}
		}
		return speaker{name: name}
	case name != "" && (normalize(name) == normalize(id) || opaque(id) || hasFirst(name, id)):
		return speaker{name: name}
	}
	return speaker{name: id}
}

// hasFirst reports whether id is the first word of name, as "ana" is of "Ana Ruiz".
func hasFirst(name, id string) bool {
	first, _, _ := strings.Cut(name, " ")
	return strings.EqualFold(first, id)
}

// opaque reports whether an author's id has no meaning to a person: a UUID, a number, a key.
func opaque(id string) bool {
	if _, err := uuid.Parse(id); err == nil {
		return true
	}
	digits := strings.IndexFunc(id, unicode.IsDigit) >= 0
	return digits || strings.ContainsAny(id, "@|:/_")
}

// labelSpeaker returns the speaker that a label of the shape "Ana, session 3" names.
func labelSpeaker(label string) string {
	cut := strings.IndexAny(label, ",|(·")
	for _, dash := range []string{" - ", " – ", " — ", ": "} {
		if i := strings.Index(label, dash); i > 0 && (cut < 0 || i < cut) {
			cut = i
		}
	}
	if cut <= 0 {
		return ""
	}
	name, rest := strings.TrimSpace(label[:cut]), strings.ToLower(label[cut:])
	if !personName(name) {
		return ""
	}
	for _, word := range sittings {
		if strings.Contains(rest, word) {
			return name
		}
	}
	return ""
}

// sittings are words of a label whose first part names the speaker.
var sittings = []string{
	"session", "turn", "message", "chat", "conversation", "call", "interview", "dialog",
	"speaker", "said", "speaking", "utterance",
}

// personName reports whether text has the shape of a person's name: one to three capitalised words,
// none of which heads a section or a kind of document.
func personName(text string) bool {
	words := strings.Fields(text)
	if len(words) == 0 || len(words) > 3 || len(text) > maxName {
		return false
	}
	for i, w := range words {
		r, _ := utf8.DecodeRuneInString(w)
		low := strings.ToLower(w)
		if !unicode.IsUpper(r) && !(i > 0 && particles[w]) || notNames[low] {
			return false
		}
		_, activity := is(low, gerund)
		if _, verb := is(low, base); activity || verb && len(words) > 1 {
			return false // "Loading Speed", "Use Redis"
		}
		for _, r := range w {
			if !unicode.IsLetter(r) && !unicode.IsMark(r) && !strings.ContainsRune("'’-.", r) {
				return false
			}
		}
	}
	return true
}

// maxSpeakers is the most names of speakers of a revision.
const maxSpeakers = 256

// findSpeakers decides whether the content is a written dialogue. One turn is enough if its name is
// known or a role, or if the content is one turn in the first person. Else a name must repeat, or
// the turns must be in the first person: "Storage: Postgres" above "Cache: Redis" is a list. What a
// machine writes has no turns, only examples of them.
func (d *document) findSpeakers() {
	if d.author.machine {
		return
	}
	turns := map[string]int{}
	total, lines, again, personal, known := 0, 0, false, 0, false
	for line := range strings.Lines(d.content[:min(len(d.content), maxRead)]) {
		lines++
		name, skip := turnOf(line)
		if skip == 0 {
			continue
		}
		key := normalize(name)
		if turns[key] == 0 && len(turns) >= maxSpeakers {
			continue
		}
		turns[key]++
		total++
		again = again || turns[key] > 1
		first, _, _ := strings.Cut(strings.ToLower(name), " ")
		known = known || d.names[first] || roleOf(name)
		if total <= 1000 && firstPerson(line[skip:]) {
			personal++
		}
	}
	switch {
	case known:
	case total == 1 && lines == 1 && personal == 1:
	case total >= 2 && again && len(turns) >= 2 && 2*len(turns) <= total+2:
	case total >= 2 && 2*personal >= min(total, 1000):
	default:
		return
	}
	d.chat = true
	for key := range turns {
		d.speakers[key] = true
		d.know(key)
	}
}

// turn returns the speaker that a line of a dialogue begins with, and where the words begin; skip
// is 0 for other lines.
func (d *document) turn(line string) (name string, skip int) {
	if !d.chat {
		return "", 0
	}
	name, skip = turnOf(line)
	if skip == 0 || !d.speakers[normalize(name)] {
		return "", 0
	}
	return name, skip
}

// speakerOf returns the speaker for the name of a turn.
func (d *document) speakerOf(name string) speaker {
	low := strings.ToLower(name)
	switch {
	case machines[low]:
		return speaker{name: name, machine: true}
	case people[low]:
		return d.author
	case d.author.name != "" && (hasFirst(name, d.author.name) || hasFirst(d.author.name, name)):
		return d.author
	}
	return speaker{name: name}
}

func roleOf(name string) bool {
	low := strings.ToLower(name)
	return machines[low] || people[low]
}

// turnOf returns the name and the beginning of the words in a line such as "Ana: …", "[10:02] Ana:
// …", "**Ana** (10:02): …".
func turnOf(line string) (name string, skip int) {
	i := len(line) - len(strings.TrimLeft(line, " \t"))
	rest := line[i:]
	if strings.IndexByte(rest[:min(len(rest), 2*maxName+20)], ':') < 0 {
		return "", 0
	}
	if strings.HasPrefix(rest, "[") {
		if end := strings.IndexByte(rest, ']'); end > 0 && end < 40 && strings.ContainsAny(rest[:end], "0123456789") {
			i += end + 1
		}
	}
	i += clockBefore(line[i:])
	for i < len(line) && strings.IndexByte(" \t*_", line[i]) >= 0 {
		i++
	}
	window := line[i:min(len(line), i+maxName+20)]
	colon := strings.IndexByte(window, ':')
	if colon <= 0 {
		return "", 0
	}
	head := window[:colon]
	if open := strings.IndexAny(head, "([,"); open > 0 && strings.ContainsAny(head[open:], "0123456789") {
		// The time is between the name and the colon, and may contain a colon itself.
		head = head[:open]
		if strings.IndexByte(window[open:], ':') >= 0 {
			if end := strings.IndexAny(window[open+1:], ")]"); end >= 0 {
				after := strings.IndexByte(window[open+1+end:], ':')
				if after < 0 {
					return "", 0
				}
				colon = open + 1 + end + after
			}
		}
	}
	name = strings.Trim(head, " \t*_")
	skip = i + colon + 1
	for skip < len(line) && strings.IndexByte(" \t*", line[skip]) >= 0 {
		skip++
	}
	if strings.HasPrefix(line[i+colon:], "://") || !personName(name) && !roleOf(name) {
		return "", 0
	}
	return flat(name), skip
}

// clockBefore returns the length in bytes of a time of day at the beginning of a line ("10:02 Ana:
// …").
func clockBefore(line string) int {
	i := 0
	for i < len(line) && i < 12 && strings.IndexByte(" 0123456789:", line[i]) >= 0 {
		i++
	}
	if i == 0 || i == len(line) || line[i-1] != ' ' || strings.IndexByte(line[:i], ':') < 0 {
		return 0
	}
	return i
}

// firstPerson reports whether a line begins in the first person.
func firstPerson(text string) bool {
	for i, t := range tokenize(mask(text[:min(len(text), 120)]), nil) {
		switch t.low {
		case "i", "my", "me":
			return true
		}
		if i > 5 {
			return false
		}
	}
	return false
}
