// Package project is one project: its keys, and whether it is archived.
package project

import (
	"time"

	"github.com/google/uuid"
)

// KeyCreated adds a key to a project. Hash is the SHA-256 of the clear key in lower-case
// hexadecimal. No event contains the clear key.
type KeyCreated struct {
	ProjectID uuid.UUID `json:"projectId"`
	KeyID     uuid.UUID `json:"keyId"`
	Name      string    `json:"name"`
	Hash      string    `json:"hash"`
	// Prefix and Suffix are the first and the last characters of the clear key, so that people
	// recognise it.
	Prefix    string    `json:"prefix"`
	Suffix    string    `json:"suffix"`
	CreatedAt time.Time `json:"createdAt"`
}

func (KeyCreated) EventType() string { return "project.key-created.v1" }

// KeyRevoked revokes a key from its next call on.
type KeyRevoked struct {
	ProjectID uuid.UUID `json:"projectId"`
	KeyID     uuid.UUID `json:"keyId"`
	RevokedAt time.Time `json:"revokedAt"`
}

func (KeyRevoked) EventType() string { return "project.key-revoked.v1" }

// KeyRevealed records that somebody was shown the clear value of a key. Its metadata names who.
type KeyRevealed struct {
	ProjectID  uuid.UUID `json:"projectId"`
	KeyID      uuid.UUID `json:"keyId"`
	RevealedAt time.Time `json:"revealedAt"`
}

func (KeyRevealed) EventType() string { return "project.key-revealed.v1" }

// Archived refuses every call of the project's keys.
type Archived struct {
	ProjectID  uuid.UUID `json:"projectId"`
	ArchivedAt time.Time `json:"archivedAt"`
}

func (Archived) EventType() string { return "project.archived.v1" }

// Unarchived accepts calls of the project's keys again.
type Unarchived struct {
	ProjectID    uuid.UUID `json:"projectId"`
	UnarchivedAt time.Time `json:"unarchivedAt"`
}

func (Unarchived) EventType() string { return "project.unarchived.v1" }

// Described gives a project another name and a description, which may be "". The slug stays.
type Described struct {
	ProjectID   uuid.UUID `json:"projectId"`
	Name        string    `json:"name"`
	Description string    `json:"description"`
	DescribedAt time.Time `json:"describedAt"`
}

func (Described) EventType() string { return "project.described.v1" }

// CapsSet sets both monthly caps of a project: data points, and tenths of a credit; nil is no cap.
type CapsSet struct {
	ProjectID       uuid.UUID `json:"projectId"`
	IngestionCap    *int64    `json:"ingestionCap"`
	CreditCapTenths *int64    `json:"creditCapTenths"`
	SetAt           time.Time `json:"setAt"`
}

func (CapsSet) EventType() string { return "project.caps-set.v1" }
