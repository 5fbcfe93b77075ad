// Package registry is the root of a log: its id, its organizations, and the numbers and slugs of
// all projects.
package registry

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
)

// Format is the format of the log that this version writes and reads: the shapes of events, metadata
// and streams as a whole. It is not raised for a new event.
const Format = 1

// LogOpened is the first event of a log. LogID identifies this log, also against an older copy that
// was continued separately. Format is the number of its format; logs from before 1.0 have none, which
// is 0.
type LogOpened struct {
	LogID    uuid.UUID `json:"logId"`
	Format   int       `json:"format"`
	OpenedAt time.Time `json:"openedAt"`
}

// FormatError refuses a log, or a backup of one, whose format is another one than Format.
type FormatError struct{ Format int }

// CheckFormat returns a *FormatError for another format than that of this version.
func CheckFormat(format int) error {
	if format == Format {
		return nil
	}
	return &FormatError{format}
}

// Error implements error.
func (e *FormatError) Error() string {
	if e.Format > Format {
		return fmt.Sprintf("a newer version of this program wrote the log: its format is %d and this version reads %d; "+
			"use the newer version", e.Format, Format)
	}
	return "a version before 1.0 wrote the log, and this version cannot read it: export each project with the version " +
		"that wrote it, and import the files into a new log; that carries the live texts with their data, while keys, " +
		"audiences, traits, webhooks and caps must be made again"
}

func (LogOpened) EventType() string { return "registry.log-opened.v1" }

// OrganizationCreated creates an organization, which is being prepared until organization.Prepared.
// The plan and the owner are for its preparation.
type OrganizationCreated struct {
	OrganizationID uuid.UUID     `json:"organizationId"`
	Name           string        `json:"name"`
	Plan           metering.Plan `json:"plan"`
	// OwnerID is the person who owns it, zero for nobody. WorkEmail reports whether that person's
	// address was one of an employer, which decides the starting credits.
	OwnerID   uuid.UUID `json:"ownerId,omitzero"`
	WorkEmail bool      `json:"workEmail"`
	CreatedAt time.Time `json:"createdAt"`
}

func (OrganizationCreated) EventType() string { return "registry.organization-created.v1" }

// ProjectCreated creates a project. Its append reserves the project's number (from 1, across the
// log) and slug (within the organization).
type ProjectCreated struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	ProjectID      uuid.UUID `json:"projectId"`
	Number         int64     `json:"number"`
	Slug           string    `json:"slug"`
	Name           string    `json:"name"`
	// Namespace and the hash key are what the ids of the project's sources, identities and idempotency
	// keys are derived from (stream.Namespaces).
	Namespace uuid.UUID `json:"namespace"`
	CreatedAt time.Time `json:"createdAt"`
}

func (ProjectCreated) EventType() string { return "registry.project-created.v1" }

// HashKeySet records which hash key the log is written with: Check is HashKeyCheck of it. The key
// itself is not in any stream.
type HashKeySet struct {
	Check string    `json:"check"`
	SetAt time.Time `json:"setAt"`
}

func (HashKeySet) EventType() string { return "registry.hash-key-set.v1" }

// HashKeyCheck is an HMAC that identifies a hash key without revealing it, in lower-case
// hexadecimal.
func HashKeyCheck(key []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("annals hash key check"))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// EventSetAside lets projections ignore an event that they cannot apply, from now on and in every
// rebuild. The event stays in the log.
type EventSetAside struct {
	// Position, EventID, Stream and Type identify the event.
	Position uint64    `json:"position"`
	EventID  uuid.UUID `json:"eventId"`
	Stream   string    `json:"stream"`
	Type     string    `json:"type"`
	// Projections are those that ignore it; none means all.
	Projections []string `json:"projections"`
	Reason      string   `json:"reason"`
	// By is the operator.
	By string    `json:"by"`
	At time.Time `json:"at"`
}

func (EventSetAside) EventType() string { return "registry.event-set-aside.v1" }

// Covers reports whether a projection ignores the event.
func (e EventSetAside) Covers(projection string) bool {
	return len(e.Projections) == 0 || slices.Contains(e.Projections, projection)
}

// With merges an earlier decision on the same event: the result holds for the projections of both.
func (e EventSetAside) With(before EventSetAside) EventSetAside {
	if len(e.Projections) == 0 || len(before.Projections) == 0 {
		e.Projections = nil
		return e
	}
	all := append(slices.Clone(before.Projections), e.Projections...)
	slices.Sort(all)
	e.Projections = slices.Compact(all)
	return e
}
