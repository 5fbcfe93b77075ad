package person

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"golang.org/x/text/unicode/norm"

	"github.com/annals-project/annals/domain/event"
)

// maxEmail is the most bytes of an address that mail can be sent to.
const maxEmail = 254

// ValidEmail reports whether a text can be an email address: a part before and a part after the
// last "@", which is a domain with a dot.
func ValidEmail(email string) bool {
	if len(email) > maxEmail || !utf8.ValidString(email) ||
		strings.ContainsFunc(email, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return false
	}
	at := strings.LastIndexByte(email, '@')
	if at < 1 {
		return false
	}
	labels := strings.Split(email[at+1:], ".")
	return len(labels) > 1 && !slices.Contains(labels, "")
}

// NormalEmail is the form in which addresses are compared: composed, and with the letters of ASCII in lower case. Other
// letters stay as they are, since mail servers tell them apart: the Kelvin sign is not a k, neither in the name of a
// mailbox nor in that of a host.
func NormalEmail(email string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, compose(email))
}

// notASCII are the characters that composing would replace by one of ASCII.
const notASCII = "\u037e\u1fef\u212a"

func compose(email string) string {
	var composed strings.Builder
	for {
		at := strings.IndexAny(email, notASCII)
		if at < 0 {
			composed.WriteString(norm.NFC.String(email))
			return composed.String()
		}
		_, size := utf8.DecodeRuneInString(email[at:])
		composed.WriteString(norm.NFC.String(email[:at]))
		composed.WriteString(email[at : at+size])
		email = email[at+size:]
	}
}

// Forms are the forms of an address under which what is stored of it may be found, in the order in which they are
// tried. The second, if there is one, is that of versions which compared all letters in lower case; nothing new is
// stored under it.
func Forms(email string) []string {
	forms := []string{NormalEmail(email)}
	if former := formerEmail(email); former != forms[0] {
		forms = append(forms, former)
	}
	return forms
}

func formerEmail(email string) string {
	return norm.NFC.String(strings.ToLower(norm.NFC.String(email)))
}

// Address is what decisions need of the stream of an address.
type Address struct {
	// Events is how many events were folded.
	Events int64
	// Holder is the person of the address, zero for none.
	Holder uuid.UUID
	// open are the people who claimed the address and are not released, and when they last did.
	open map[uuid.UUID]time.Time
}

// Evolve folds one event.
func (a *Address) Evolve(e event.Event) {
	a.Events++
	switch e := e.(type) {
	case *AddressClaimed:
		if a.open == nil {
			a.open = make(map[uuid.UUID]time.Time)
		}
		a.Holder, a.open[e.PersonID] = e.PersonID, e.ClaimedAt
	case *AddressReleased:
		delete(a.open, e.PersonID)
		if a.Holder == e.PersonID {
			a.Holder = uuid.Nil
		}
	}
}

// Claim gives the address to a person, unless somebody else holds it whose stream is not known to be
// tombstoned. dead is the person whose stream is, zero for nobody. A holder claims again, so that the
// claim does not count as abandoned.
func (a *Address) Claim(id, dead uuid.UUID, at time.Time) []event.Event {
	if a.Holder != uuid.Nil && a.Holder != dead && a.Holder != id {
		return nil
	}
	return []event.Event{AddressClaimed{PersonID: id, ClaimedAt: at}}
}

// Release ends the claim of a person, once.
func (a *Address) Release(id uuid.UUID, at time.Time) []event.Event {
	if _, is := a.open[id]; !is {
		return nil
	}
	return []event.Event{AddressReleased{PersonID: id, ReleasedAt: at}}
}

// ReleaseAbandoned ends the claim of a person who has another address, unless the person may be about
// to take this one.
func (a *Address) ReleaseAbandoned(id uuid.UUID, at time.Time) []event.Event {
	if at.Sub(a.open[id]) < joinTime {
		return nil
	}
	return a.Release(id, at)
}
