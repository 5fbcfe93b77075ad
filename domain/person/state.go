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

const (
	// joinTime is how long a begun join or a claimed address is left to its command. None takes as long.
	joinTime = time.Minute
	// unjoinedTime is how long a person may be without an organization after the registration.
	unjoinedTime = time.Hour
)

// State is what decisions need of a person. The zero value is a person who never registered.
type State struct {
	// Events is how many events were folded.
	Events int64
	// Email is the address as the person gave it.
	Email        string
	RegisteredAt time.Time
	Removed      bool
	// Joins are the organizations that the person ever began to join, and when they last did.
	Joins map[uuid.UUID]time.Time
}

// Evolve folds one event.
func (s *State) Evolve(e event.Event) {
	s.Events++
	switch e := e.(type) {
	case *Registered:
		s.Email, s.RegisteredAt = e.Email, e.RegisteredAt
	case *AddressChanged:
		s.Email = e.Email
	case *JoinBegun:
		if s.Joins == nil {
			s.Joins = make(map[uuid.UUID]time.Time)
		}
		s.Joins[e.OrganizationID] = e.BegunAt
	case *Removed:
		s.Removed = true
	}
}

// Lives reports whether the person registered and is not removed.
func (s *State) Lives() bool { return s.Email != "" && !s.Removed }

// Register begins a person, once.
func (s *State) Register(id uuid.UUID, email string, at time.Time) []event.Event {
	if s.Events > 0 {
		return nil
	}
	return []event.Event{Registered{PersonID: id, Email: email, RegisteredAt: at}}
}

// Join begins to join an organization, and registers the person before if need be. It returns no
// event for a removed person.
func (s *State) Join(id, organization uuid.UUID, email string, at time.Time) []event.Event {
	if s.Removed {
		return nil
	}
	return append(s.Register(id, email, at), JoinBegun{PersonID: id, OrganizationID: organization, BegunAt: at})
}

// Has reports whether the address of the person is email.
func (s *State) Has(email string) bool { return NormalEmail(s.Email) == NormalEmail(email) }

// Had reports whether the address of the person was compared as the same as email before, and is another one.
func (s *State) Had(email string) bool {
	return s.Lives() && !s.Has(email) && formerEmail(s.Email) == formerEmail(email)
}

// ChangeAddress gives a person who lives another address.
func (s *State) ChangeAddress(id uuid.UUID, email string, at time.Time) []event.Event {
	if !s.Lives() || s.Email == email {
		return nil
	}
	return []event.Event{AddressChanged{PersonID: id, Email: email, ChangedAt: at}}
}

// Remove ends a person, once.
func (s *State) Remove(id uuid.UUID, at time.Time) []event.Event {
	if s.Events == 0 || s.Removed {
		return nil
	}
	return []event.Event{Removed{PersonID: id, RemovedAt: at}}
}

// Leave ends a person who is a member of no organization, and who is not about to join one.
// claimedAt is when the address was claimed for the person.
func (s *State) Leave(id uuid.UUID, member bool, claimedAt, at time.Time) []event.Event {
	switch {
	case s.Removed, member, s.Joining(at):
		return nil
	case s.Events == 0 && at.Sub(claimedAt) < joinTime:
		return nil
	case s.Events > 0 && len(s.Joins) == 0 && at.Sub(s.RegisteredAt) < unjoinedTime:
		return nil
	}
	return []event.Event{Removed{PersonID: id, RemovedAt: at}}
}

// Joining reports whether a join that has begun may still be under way.
func (s *State) Joining(at time.Time) bool {
	for _, begun := range s.Joins {
		if at.Sub(begun) < joinTime {
			return true
		}
	}
	return false
}

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
