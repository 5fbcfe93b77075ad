// Package visit is what people did with the service without changing anything that it holds: how they came in and went
// out, what they exported, and what operators read.
//
// The events are in streams of an organization, a person and a month, which end with the person or with the
// organization's time for visits. Their leaf records stay.
package visit

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
)

// Visit is what every event of a person has.
type Visit struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	PersonID       uuid.UUID `json:"personId"`
	// Network is the network address of the person, "" if it is not known. Browser is what the browser calls itself.
	Network   string    `json:"network,omitempty"`
	Browser   string    `json:"browser,omitempty"`
	VisitedAt time.Time `json:"visitedAt"`
}

// OfPerson is an event of a person.
type OfPerson interface {
	event.Event
	// Of is what every event of a person has.
	Of() *Visit
}

// IsCounted reports whether strangers can cause an event, so that those of one kind within RefusedTime are one.
func IsCounted(e event.Event) (key string, is bool) {
	switch e := e.(type) {
	case *SignInRefused:
		return "refused", true
	case *LinkMade:
		return "link", e.Purpose == Recovery
	default:
		return "", false
	}
}

// Of implements OfPerson for the events that have a Visit.
func (v *Visit) Of() *Visit { return v }

// The events of a person.
type (
	// SignedIn records a session that began. SecondFactor reports that a second factor was shown.
	SignedIn struct {
		Visit

		Way          Way  `json:"way"`
		SecondFactor bool `json:"secondFactor"`
	}
	// SignInRefused records refused attempts with the address of a person, within RefusedTime. Network and Browser are
	// those of the last one, which was at LastAt.
	SignInRefused struct {
		Visit

		Attempts int       `json:"attempts"`
		LastAt   time.Time `json:"lastAt"`
	}
	// LinkMade records a one-time link for a person. A stranger can have recoveries mailed, so that those within
	// RefusedTime are one event, and Times counts them.
	LinkMade struct {
		Visit

		Purpose string `json:"purpose"`
		Times   int    `json:"times"`
	}
	// LinkUsed records the use of a one-time link.
	LinkUsed struct {
		Visit

		Purpose string `json:"purpose"`
	}
	// PasswordChanged records another password. It never holds one.
	PasswordChanged struct{ Visit }
	// SecondFactorChanged records what a person did with the second factor.
	SecondFactorChanged struct {
		Visit

		Change FactorChange `json:"change"`
	}
	// SessionsEnded records the end of sessions.
	SessionsEnded struct {
		Visit

		Ended Ended `json:"ended"`
	}
	// Exported records a file of more than a page shows, or of a whole project. What names it.
	Exported struct {
		Visit

		ProjectID uuid.UUID `json:"projectId,omitzero"`
		What      string    `json:"what"`
		Format    string    `json:"format"`
	}
	// ReadOpened records that the texts that a read record names were shown.
	ReadOpened struct {
		Visit

		ProjectID uuid.UUID `json:"projectId"`
		// ReadID is the request of the record.
		ReadID uuid.UUID `json:"readId"`
	}
)

// OperatorRead records that an operator read what a command shows. Its person is not known.
type OperatorRead struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	ProjectID      uuid.UUID `json:"projectId,omitzero"`
	// Command is what was read, Reason why, as the operator wrote it.
	Command   string    `json:"command"`
	Reason    string    `json:"reason,omitempty"`
	VisitedAt time.Time `json:"visitedAt"`
}

// Way is how a person signed in.
type Way string

// The ways.
const (
	Password Way = "password"
	Provider Way = "provider"
	Link     Way = "link"
	// Code is a code of the second factor, after one of the others.
	Code Way = "code"
)

// FactorChange is what was done with a second factor.
type FactorChange string

// The changes.
const (
	FactorSet     FactorChange = "set"
	FactorRemoved FactorChange = "removed"
	CodesMade     FactorChange = "codes"
)

// Ended is which sessions ended.
type Ended string

// The ends.
const (
	SignedOut  Ended = "this"
	OneEnded   Ended = "one"
	Everywhere Ended = "everywhere"
)

// Recovery is the purpose of a link that a stranger can have mailed.
const Recovery = "recovery"

// RefusedTime is the time of which what strangers can cause is one event for each person.
const RefusedTime = 15 * time.Minute

func (SignedIn) EventType() string { return "visit.signed-in.v1" }

func (SignInRefused) EventType() string { return "visit.sign-in-refused.v1" }

func (LinkMade) EventType() string { return "visit.link-made.v1" }

func (LinkUsed) EventType() string { return "visit.link-used.v1" }

func (PasswordChanged) EventType() string { return "visit.password-changed.v1" }

func (SecondFactorChanged) EventType() string { return "visit.second-factor-changed.v1" }

func (SessionsEnded) EventType() string { return "visit.sessions-ended.v1" }

func (Exported) EventType() string { return "visit.exported.v1" }

func (ReadOpened) EventType() string { return "visit.read-opened.v1" }

func (OperatorRead) EventType() string { return "visit.operator-read.v1" }
