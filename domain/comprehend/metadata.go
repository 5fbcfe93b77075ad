package comprehend

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/annals-project/annals/domain/memory"
)

// field is one string or number of the metadata with its place.
type field struct {
	path   []string // keys from the outermost, in words: "favouriteEditor" is "favourite editor"
	value  string
	number bool
	object int // the JSON object that holds it, from 0 for the outermost
}

// maxFields is the most fields of the metadata that are read, and maxDepth their greatest depth.
const (
	maxFields = 2000
	maxDepth  = 12
)

// readMetadata derives what the metadata states in a known shape; see factRules. It reads texts in
// it like sentences.
func readMetadata(d *document, out *collector, a *allowance) {
	fields := fieldsOf(d.metadata)
	objects := map[int][]field{}
	for _, f := range fields {
		objects[f.object] = append(objects[f.object], f)
	}
	s := &sentence{fromMetadata: true}
	for _, f := range fields {
		for _, read := range factRules {
			if found := read(d, f, objects[f.object]); len(found) > 0 {
				out.add(s, found, a)
				break
			}
		}
		if strings.Count(f.value, " ") >= 2 {
			d.sentencesOf(f.value, func(s *sentence) { out.add(s, readSentence(d, s), a) })
		}
	}
}

// level is an array or object that the walk is in.
type level struct {
	object int
	key    string // the key of the next value, "" in arrays
	inKey  bool   // the next string is a key
	array  bool
}

// fieldsOf lists the fields of metadata in the order written. Metadata that is not JSON has none.
func fieldsOf(raw []byte) []field {
	if len(raw) == 0 || !json.Valid(raw) {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var fields []field
	var stack []level
	objects := 0
	// done ends a value: inside an object, the next string is a key.
	done := func() {
		if n := len(stack); n > 0 && !stack[n-1].array {
			stack[n-1].inKey = true
		}
	}
	for len(fields) < maxFields {
		tok, err := dec.Token()
		if err != nil {
			return fields // the end: it was valid JSON
		}
		switch v := tok.(type) {
		case json.Delim:
			switch v {
			case '{':
				stack = append(stack, level{object: objects, inKey: true})
				objects++
			case '[':
				holder := 0
				if n := len(stack); n > 0 {
					holder = stack[n-1].object
				}
				stack = append(stack, level{object: holder, array: true})
			default:
				stack = stack[:len(stack)-1]
				done()
			}
			continue
		case string:
			n := len(stack)
			if n > 0 && stack[n-1].inKey {
				stack[n-1].key, stack[n-1].inKey = v, false
				continue
			}
			if n > 0 && n <= maxDepth {
				fields = append(fields, field{path: pathOf(stack), value: flat(v), object: stack[n-1].object})
			}
		case json.Number:
			if n := len(stack); n > 0 && n <= maxDepth {
				fields = append(fields, field{path: pathOf(stack), value: v.String(), number: true, object: stack[n-1].object})
			}
		}
		done()
	}
	return fields
}

// pathOf returns the keys on the path to a value.
func pathOf(stack []level) []string {
	var path []string
	for _, l := range stack {
		if l.key != "" {
			path = append(path, keyWords(l.key))
		}
	}
	return path
}

// keyWords returns the words of a key in lower case: "favouriteEditor", "favourite_editor" and
// "Favourite Editor" are "favourite editor".
func keyWords(key string) string {
	if len(key) > 100 {
		return ""
	}
	var b strings.Builder
	lower := false
	for _, r := range flat(key) {
		switch {
		case r == '_' || r == '-' || r == '.':
			b.WriteByte(' ')
			lower = false
		case r >= 'A' && r <= 'Z':
			if lower {
				b.WriteByte(' ')
			}
			b.WriteRune(r)
			lower = false
		default:
			b.WriteRune(r)
			lower = true
		}
	}
	return strings.Join(strings.Fields(strings.ToLower(b.String())), " ")
}

// readLabelAndMetadata derives memories from label and metadata. A label is read as a sentence, but
// without names, since its words may be capitalised as a title.
func readLabelAndMetadata(d *document, out *collector, a *allowance) {
	d.sentencesOf(d.label, func(s *sentence) {
		drafts := readAnchors(d, s)
		if !headline(s.tokens) {
			drafts = slices.DeleteFunc(readSentence(d, s), func(d draft) bool { return d.kind == memory.Mention })
		}
		out.add(s, drafts, a)
	})
	readMetadata(d, out, a)
}

// sentencesOf calls yield for each sentence of a text other than the content.
func (d *document) sentencesOf(text string, yield func(*sentence)) {
	text = flat(text)
	if text == "" || len(text) > 4*maxSentence {
		return
	}
	whole := *d
	whole.content, whole.chat, whole.share = text, false, 1
	whole.eachSentence(func(s *sentence) bool {
		s.fromMetadata = true
		yield(s)
		return true
	})
}

// factRules read facts from single fields of the metadata, by the words of their keys. A name in
// the same object identifies the subject; without one, the outermost object describes the author.
var factRules = []func(d *document, f field, siblings []field) []draft{
	contactFact, memberFact, favouriteFact,
	ruleFact, dateFact, peopleFact,
}

// key returns the last key of a field, "" for an array without one.
func (f field) key() string {
	if len(f.path) == 0 {
		return ""
	}
	return f.path[len(f.path)-1]
}

// whose returns the subject of a field, "" if it is not clear.
func (f field) whose(d *document, siblings []field) string {
	for _, b := range siblings {
		if k := b.key(); (k == "name" || k == "full name" || k == "display name") && len(b.path) == len(f.path) &&
			shortName(b.value) {
			return b.value
		}
	}
	if d.author.machine || len(f.path) > 1 && !aboutAuthor[f.path[len(f.path)-2]] || len(f.path) > 2 {
		return ""
	}
	return d.author.name
}

// aboutAuthor are keys of objects that describe the sender.
var aboutAuthor = set(`author user sender profile me preferences account`)

// shortName reports whether a value has the shape of a name: a few words with a letter, not a
// sentence.
func shortName(value string) bool {
	return value != "" && len(value) <= maxName && strings.Count(value, " ") <= 3 &&
		strings.IndexFunc(value, unicode.IsLetter) >= 0 && !strings.ContainsAny(value, "{}[]<>\"\\\n")
}

var contactKeys = map[string]string{
	"email": "email", "e mail": "email", "email address": "email", "mail": "email", "phone": "phone number", "phone number": "phone number", "mobile": "phone number",
	"username": "username", "user name": "username", "handle": "handle", "login": "login", "github": "GitHub handle", "gitlab": "GitLab handle", "slack": "Slack handle", "twitter": "Twitter handle",
	"nickname": "nickname", "alias": "alias", "aliases": "alias", "pronouns": "pronouns",
}

// contactFact: {"email": "ana@example.com"} with an author, {"name": "Ana Ruiz", "github":
// "aruiz"}.
func contactFact(d *document, f field, siblings []field) []draft {
	what := contactKeys[f.key()]
	who := f.whose(d, siblings)
	if what == "" || who == "" || f.value == "" || len(f.value) > maxName || strings.EqualFold(f.value, who) {
		return nil
	}
	switch what {
	case "email":
		if local, host, ok := strings.Cut(f.value, "@"); !ok || local == "" || host == "" ||
			strings.ContainsAny(f.value, " ,;") {
			return nil
		}
	case "phone number":
		if digits := strings.Count(strings.Map(digitMark, f.value), "0"); digits < 5 ||
			strings.IndexFunc(f.value, unicode.IsLetter) >= 0 {
			return nil
		}
	default:
		if f.number || strings.Count(f.value, " ") > 2 {
			return nil
		}
	}
	return []draft{{kind: memory.Identity, line: possessive(who) + " " + what + " is " + f.value, entities: []string{who}}}
}

// digitMark replaces every digit by '0'.
func digitMark(r rune) rune {
	if unicode.IsDigit(r) {
		return '0'
	}
	return ' '
}

// memberFact: {"team": "platform"} with an author, {"name": "Bo", "department": "finance"},
// {"team": {"name": …, "members": […]}}.
func memberFact(d *document, f field, siblings []field) []draft {
	if f.number || !shortName(f.value) {
		return nil
	}
	key := f.key()
	if key == "members" && len(f.path) >= 1 {
		for _, b := range siblings {
			if k := b.key(); (k == "name" || k == "team" || k == "group") && len(b.path) == len(f.path) &&
				shortName(b.value) && (k != "name" || len(f.path) > 1 && groups[f.path[len(f.path)-2]]) {
				return []draft{{
					kind: memory.Membership, line: f.value + " is a member of " + groupName(b.value, "team"),
					entities: []string{f.value},
				}}
			}
		}
		return nil
	}
	who := f.whose(d, siblings)
	if who == "" || strings.EqualFold(who, f.value) {
		return nil
	}
	line := ""
	switch key {
	case "team", "squad", "department", "group", "division", "crew", "committee", "guild", "chapter", "club":
		line = who + " is on " + groupName(f.value, key)
		if key == "department" || key == "division" || key == "group" || key == "club" {
			line = who + " is in " + groupName(f.value, key)
		}
	case "company", "organization", "organisation", "employer":
		line = who + " belongs to " + f.value
	case "role", "job title", "position":
		if machines[strings.ToLower(f.value)] || people[strings.ToLower(f.value)] {
			return nil // the role in a dialogue, not in a group
		}
		line = who + " has the role " + f.value
	default:
		return nil
	}
	return []draft{{kind: memory.Membership, line: line, entities: []string{who}}}
}

// groupName returns "the platform team" for "platform", and the value itself if it includes the
// kind of group.
func groupName(value, kind string) string {
	words := strings.Fields(strings.ToLower(value))
	if words[0] == "the" {
		return value
	}
	if groups[words[len(words)-1]] {
		return "the " + value
	}
	return "the " + value + " " + kind
}

// favouriteFact: {"favouriteEditor": "Helix"}, {"preferences": {"theme": "dark"}}, {"timezone":
// "Europe/Berlin"}.
func favouriteFact(d *document, f field, siblings []field) []draft {
	who := f.whose(d, siblings)
	if who == "" || !shortName(f.value) && !f.number {
		return nil
	}
	key := f.key()
	attribute := ""
	switch inner := len(f.path) >= 2 && f.path[len(f.path)-2] == "preferences"; {
	case favoured(key) != "":
		attribute = key
	case inner && len(strings.Fields(key)) <= 3 && !f.number:
		attribute = "preferred " + key
	case key == "timezone" || key == "time zone":
		attribute = "time zone"
	case key == "birthday" || key == "date of birth" || key == "hometown" || key == "job" || key == "occupation" ||
		key == "native language":
		attribute = key
	default:
		return nil
	}
	compared := attribute
	if what := favoured(attribute); what != "" {
		compared = "favourite " + what
	}
	return []draft{{
		kind: memory.Claim, line: possessive(who) + " " + attribute + " is " + f.value,
		subject: normalize(who), attribute: normalizeAttribute(compared), entities: []string{who},
	}}
}

// ruleFact: {"rules": ["Never deploy on Fridays"]}, {"instructions": "Answer in French."}.
func ruleFact(_ *document, f field, _ []field) []draft {
	switch f.key() {
	case "rule", "rules", "instruction", "instructions", "guidelines", "policy", "policies":
	default:
		return nil
	}
	line := trimLine(f.value)
	if f.number || strings.Count(line, " ") < 2 || strings.Contains(line, ". ") || strings.ContainsAny(line, "?{}") {
		return nil
	}
	return []draft{{kind: memory.Rule, line: finishLine(line, "")}}
}

var dateKeys = set(`due deadline launch birthday start end expiry expires renewal anniversary`)

// dateFact: {"due": "2025-06-03"}, {"launchDate": "2025-06-03"}. The times at which a record was
// created are not facts.
func dateFact(d *document, f field, _ []field) []draft {
	key := f.key()
	what := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(key, " date"), " on"), " at")
	if !dateKeys[what] || f.number || len(f.value) < 8 || len(f.value) > 40 {
		return nil
	}
	s := sentence{text: f.value, fromMetadata: true}
	d.prepare(&s)
	if len(s.dates) != 1 || s.dates[0].from != 0 || s.dates[0].to != len(s.tokens) || s.dates[0].relative {
		return nil
	}
	date := s.dates[0]
	return []draft{{
		kind: memory.TemporalAnchor, line: key + ": " + anchorLine(&s, date, d.occurredAt),
		from: date.start, to: date.end,
	}}
}

var peopleKeys = map[string]string{
	"attendees": "attendee", "attendee": "attendee", "participants": "participant", "participant": "participant", "guests": "guest", "invitees": "invitee", "speakers": "speaker",
	"speaker": "speaker", "people": "person", "persons": "person", "reviewers": "reviewer", "reviewer": "reviewer", "assignee": "assignee", "assignees": "assignee", "reporter": "reporter", "owner": "owner",
	"owners": "owner", "customer": "customer", "client": "client", "manager": "manager", "contact": "contact", "contacts": "contact", "interviewer": "interviewer", "candidate": "candidate", "patient": "patient",
	"recipient": "recipient", "recipients": "recipient", "cc": "recipient", "project": "project", "product": "product", "vendor": "vendor", "members": "member",
}

// peopleFact: {"attendees": ["Ana", "Bo"]}, {"assignee": {"name": "Cy"}}, {"project": "Apollo"}.
func peopleFact(_ *document, f field, _ []field) []draft {
	key := f.key()
	if k := len(f.path); (key == "name" || key == "full name" || key == "display name") && k >= 2 {
		key = f.path[k-2]
	}
	what := peopleKeys[key]
	if what == "" || f.number || !shortName(f.value) || opaque(f.value) && !strings.Contains(f.value, "@") ||
		machines[strings.ToLower(f.value)] {
		return nil
	}
	article := "a "
	if strings.IndexByte("aeiou", what[0]) >= 0 {
		article = "an "
	}
	return []draft{{kind: memory.Mention, line: f.value + " is named as " + article + what, entities: []string{f.value}}}
}
