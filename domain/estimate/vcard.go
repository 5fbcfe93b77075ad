package estimate

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// isVCard reports whether a text is vCards.
func isVCard(head string) bool { return beginsWith(head, "BEGIN:VCARD") }

// cardNames are the properties of a contact that are read, as people name them; "" is for those that are the name.
var cardNames = map[string]string{
	"FN": "", "N": "", "NICKNAME": "nickname", "ORG": "organization", "TITLE": "title", "ROLE": "role", "TEL": "phone",
	"EMAIL": "email", "ADR": "address", "BDAY": "birthday", "ANNIVERSARY": "anniversary", "NOTE": "note", "URL": "link",
	"IMPP": "messenger", "CATEGORIES": "categories", "RELATED": "related", "LANG": "language", "GENDER": "gender",
	"X-ABDATE": "date", "X-SOCIALPROFILE": "profile", "SOCIALPROFILE": "profile", "X-ABRELATEDNAMES": "related", "TZ": "zone", "GEO": "position",
	"X-PHONETIC-FIRST-NAME": "spoken", "X-PHONETIC-LAST-NAME": "spoken", "X-MAIDENNAME": "maiden name", "X-SPOUSE": "spouse",
	"X-JABBER": "messenger", "X-SKYPE": "messenger", "X-SKYPE-USERNAME": "messenger", "X-AIM": "messenger", "X-ANNIVERSARY": "anniversary",
}

// bareTypes are the types that vCard 2.1 writes without a name: TEL;CELL;VOICE.
var bareTypes = wordSet("home work cell voice fax msg pager bbs modem car isdn video dom intl postal parcel main other")

// cardSilent are those that say nothing to people.
var cardSilent = map[string]bool{
	"VERSION": true, "PRODID": true, "UID": true, "REV": true, "X-ABUID": true, "CALURI": true,
	"X-ABADR": true, "SOURCE": true, "KIND": true, "PROFILE": true, "CLIENTPIDMAP": true, "X-ABSHOWAS": true, "SORT-STRING": true,
}

// cutVCards cuts contacts: one data point each.
func cutVCards(c *cut) error {
	taken := newNames()
	var card contact
	var failed error
	open := false
	end := func() {
		if open && failed == nil {
			failed = c.emitContact(card, taken)
		}
		card, open = contact{}, false
	}
	c.properties(c.text, func(p property) {
		isCard := strings.EqualFold(strings.TrimSpace(p.value), "VCARD")
		switch {
		case p.name == "":
			c.remarks.add(Unreadable, "")
		case p.name == "BEGIN" && isCard:
			end()
			open = true
		case p.name == "END" && isCard:
			end()
		case open:
			card.add(c, p)
		}
	})
	end()
	return failed
}

// contact is a contact while it is read.
type contact struct {
	name, structured, uid, rev string
	lines                      []cardLine
	// labels are what a person called the properties of a group.
	labels   map[string]string
	pictures int
}

// cardLine is a property of a contact.
type cardLine struct{ name, group, types, value string }

func (m *contact) add(c *cut, p property) {
	name, known := cardNames[p.name]
	value := p.text(c)
	switch {
	case p.name == "PHOTO" || p.name == "LOGO" || p.name == "SOUND" || p.name == "KEY":
		m.pictures++
	case p.name == "UID":
		m.uid = value
	case p.name == "REV":
		m.rev = value
	case p.name == "FN":
		m.name = cmp.Or(m.name, value)
	case p.name == "N":
		m.structured = structuredName(value)
	case p.name == "X-ABLABEL" && p.group != "":
		if m.labels == nil {
			m.labels = map[string]string{}
		}
		// Apple writes its own names as _$!<Home>!$_.
		m.labels[p.group] = strings.ToLower(fitName(strings.Trim(value, "_$!<>"), 60))
	case cardSilent[p.name] || value == "" || len(m.lines) >= maxRecordLines:
	default:
		if !known {
			name = strings.ToLower(fitName(p.name, 60))
		}
		if p.name == "X-ANDROID-CUSTOM" {
			name, value = androidProperty(value)
		}
		m.lines = append(m.lines, cardLine{name, p.group, p.types(), cardValue(p.name, value)})
	}
}

// types returns the types of a phone, an address and the like.
func (p property) types() string {
	var list []string
	for part := range strings.SplitSeq(strings.ToLower(p.params), ";") {
		key, value, named := strings.Cut(part, "=")
		if named && key != "type" {
			continue
		}
		for kind := range strings.SplitSeq(cmp.Or(strings.Trim(value, `"`), key), ",") {
			kind = strings.TrimSpace(kind)
			isKnown := bareTypes[kind] || named && kind != "pref" && kind != "internet"
			if isKnown && !slices.Contains(list, kind) {
				list = append(list, kind)
			}
		}
	}
	return fitName(strings.Join(list, ", "), 60)
}

// cardValue writes a value for people: parts in their order, numbers and places without the scheme, dates with dashes.
func cardValue(name, value string) string {
	switch name {
	case "ADR", "ORG":
		return strings.Join(nonEmpty(strings.Split(value, ";")...), ", ")
	case "TEL", "GEO", "EMAIL":
		for _, scheme := range []string{"tel:", "geo:", "mailto:"} {
			if len(value) > len(scheme) && strings.EqualFold(value[:len(scheme)], scheme) {
				return value[len(scheme):]
			}
		}
	case "BDAY", "ANNIVERSARY", "X-ANNIVERSARY", "X-ABDATE":
		if day, err := time.Parse("20060102", value); err == nil {
			return day.Format(time.DateOnly)
		}
	}
	return value
}

// androidProperty reads a property that Android writes as its type and its values.
func androidProperty(value string) (name, text string) {
	kind, rest, _ := strings.Cut(value, ";")
	_, kind, _ = strings.Cut(kind, "/")
	text, _, _ = strings.Cut(rest, ";")
	return cmp.Or(strings.ToLower(fitName(kind, 60)), "other"), text
}

// text writes a property as a line.
func (l cardLine) text(labels map[string]string) string {
	kinds := cmp.Or(labels[l.group], l.types)
	if l.group == "" {
		kinds = l.types
	}
	if kinds != "" && kinds != l.name {
		kinds = " (" + kinds + ")"
	}
	return l.name + kinds + ": " + l.value
}

// emitContact emits a contact.
func (c *cut) emitContact(m contact, taken names) error {
	name := cmp.Or(m.name, m.structured)
	lines := nonEmpty(name)
	for _, l := range m.lines {
		if l.value != "" {
			lines = append(lines, l.text(m.labels))
		}
	}
	content := strings.Join(lines, "\n")
	if strings.TrimSpace(content) == "" {
		c.remarks.add(NoWords, m.uid)
		return nil
	}
	p := Point{Content: content, Label: cmp.Or(fitName(name, 1000), c.base), Metadata: c.metadata()}
	p.At, _ = parseTime(m.rev, c.zone, false)
	p.ID = c.id(taken.unique(m.uid, content))
	for range m.pictures {
		c.remarks.add(NotText, p.ID)
	}
	return c.emit(p)
}

// structuredName writes the parts of a name in their order: those of a vCard begin with the family.
func structuredName(value string) string {
	parts := append(strings.Split(value, ";"), "", "", "", "")
	return strings.Join(nonEmpty(parts[3], parts[1], parts[2], parts[0], parts[4]), " ")
}
