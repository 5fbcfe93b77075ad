package estimate

import (
	"cmp"
	"strings"
)

// isVCard reports whether a text is vCards.
func isVCard(head string) bool { return beginsWith(head, "BEGIN:VCARD") }

// cardNames are the properties of a contact that are read, as people name them; "" is for those that are the name.
var cardNames = map[string]string{
	"FN": "", "N": "", "NICKNAME": "nickname", "ORG": "organization", "TITLE": "title", "ROLE": "role", "TEL": "phone",
	"EMAIL": "email", "ADR": "address", "BDAY": "birthday", "ANNIVERSARY": "anniversary", "NOTE": "note", "URL": "link",
	"IMPP": "messenger", "CATEGORIES": "categories", "RELATED": "related", "LANG": "language", "GENDER": "gender",
	"X-ABDATE": "date", "X-SOCIALPROFILE": "profile",
}

// cardSilent are those that say nothing to people.
var cardSilent = map[string]bool{
	"VERSION": true, "PRODID": true, "UID": true, "REV": true, "X-ABLABEL": true, "X-ABUID": true, "CALURI": true,
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
	lines                      []string
	pictures                   int
}

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
	case cardSilent[p.name] || value == "" || len(m.lines) >= maxRecordLines:
	default:
		if !known {
			name = strings.ToLower(fitName(p.name, 60))
		}
		if p.name == "ADR" || p.name == "ORG" {
			value = strings.Join(nonEmpty(strings.Split(value, ";")...), ", ")
		}
		if kind := p.param("TYPE"); kind != "" && (p.name == "TEL" || p.name == "EMAIL" || p.name == "ADR") {
			name += " (" + strings.ToLower(fitName(kind, 60)) + ")"
		}
		m.lines = append(m.lines, name+": "+value)
	}
}

// emitContact emits a contact.
func (c *cut) emitContact(m contact, taken names) error {
	name := cmp.Or(m.name, m.structured)
	content := strings.Join(append(nonEmpty(name), m.lines...), "\n")
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
