package person

import (
	"time"

	"github.com/google/uuid"

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
