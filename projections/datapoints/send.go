package datapoints

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections/table"
)

// The phases that only a send has.
const (
	indexed        = "indexed"
	nothingChanged = "nothing-changed"
)

// The phases of a send, as queries return them.
const (
	PhaseQueued         = queued
	PhaseProcessing     = processing
	PhaseCaptured       = captured
	PhaseIndexed        = indexed
	PhaseFailed         = failed
	PhaseNothingChanged = nothingChanged
)

// sendWithoutItems is a row of table sends_without_items: what events of the send's own stream set.
type sendWithoutItems struct {
	ID         uuid.UUID  `db:"id"`
	Project    uuid.UUID  `db:"project_id,once"`
	FinalPhase string     `db:"final_phase"` // "", indexed or failed
	FinalAt    *time.Time `db:"final_at"`
	Code       *string    `db:"failure_code"` // of the final phase; table sends has it while the send is failed
	Message    *string    `db:"failure_message"`
	Round      int        `db:"round"`
	DeletedAt  *time.Time `db:"deleted_at"`
}

// send is a row of table sends. While only the send's own stream is known, its first part is a row of table
// sends_without_items.
type send struct {
	sendWithoutItems
	known      bool
	Request    uuid.UUID `db:"request_id,once"`
	AcceptedAt time.Time `db:"accepted_at,once"`
	Items      int       `db:"item_count,once"`
	Batch      bool      `db:"batch,once"`
	charges
	Month     string `db:"month,once"`
	FannedOut bool   `db:"fanned_out"`
	// SearchableAt is the time of the watermark that ended the send, nil if none did.
	SearchableAt *time.Time `db:"searchable_at"`

	counts

	// Derived from the fields above.
	Phase       string              `db:"phase"`
	SettledAt   *time.Time          `db:"settled_at"`
	FailureOpen bool                `db:"failure_open"`
	Position    eventstore.Position `db:"position"`

	before  readiness // what the stored row counts for
	charged charges   // what the stored row is charged
	stored  location
	dirty   bool
}

var (
	sends             = table.New[send](Name, schema, "sends")
	sendsWithoutItems = table.New[sendWithoutItems](Name, schema, "sends_without_items")
)

// location is the table that holds a send.
type location int

const (
	nowhere location = iota
	inSends
	inSendsWithoutItems
)

// counts are the items of a send by phase. An item that is not fanned out, or whose retained facts
// are still to come, is not counted.
type counts struct {
	Queued        int        `db:"queued"`
	Processing    int        `db:"processing"`
	Captured      int        `db:"captured"`
	Failed        int        `db:"failed"`
	OpenFailures  int        `db:"open_failures"`
	Unchanged     int        `db:"unchanged"`
	Deleted       int        `db:"deleted"`
	LastDeletedAt *time.Time `db:"last_deleted_at"`
}

// count adds an item to the counts (n = 1) or removes it (n = -1).
func (c *counts) count(i *item, n int) {
	switch {
	case i.Phase == erased:
	case i.keepsRevision():
		c.Unchanged += n
	case i.isDeleted():
		c.Deleted += n
		if at := i.DeletedAt; n > 0 && at != nil && (c.LastDeletedAt == nil || c.LastDeletedAt.Before(*at)) {
			c.LastDeletedAt = at
		}
	case i.Phase == queued:
		c.Queued += n
	case i.Phase == processing:
		c.Processing += n
	case i.Phase == captured:
		c.Captured += n
	case i.hasFailed():
		c.Failed += n
		if !i.Overtaken {
			c.OpenFailures += n
		}
	}
}

// derivePhase sets the phase of the send after an event.
//
// It depends only on what the retained facts of a data point hold too, so that a replay after an
// erasure yields the same row.
func (s *send) derivePhase(at eventstore.Position) {
	if !s.known {
		return
	}
	phase := s.Phase
	s.SettledAt, s.FailureOpen = nil, false
	switch {
	case s.Unchanged == s.Items:
		s.Phase, s.SettledAt = nothingChanged, &s.AcceptedAt
	case s.SearchableAt != nil:
		s.Phase, s.SettledAt = indexed, s.SearchableAt
	case s.FinalPhase == indexed:
		s.Phase, s.SettledAt = indexed, s.FinalAt
	case s.DeletedAt != nil:
		s.Phase, s.SettledAt = indexed, s.DeletedAt
	case !s.FannedOut && s.FinalPhase == failed: // its stage cannot be read
		s.Phase, s.SettledAt, s.FailureOpen = failed, s.FinalAt, true
	case !s.FannedOut:
		s.Phase = queued
	case s.Unchanged+s.Deleted == s.Items: // no item is left to wait for
		if s.Phase, s.SettledAt = indexed, s.LastDeletedAt; s.SettledAt == nil { // all items of its batch met deletions
			s.SettledAt = &s.AcceptedAt
		}
	case s.FinalPhase == failed:
		s.Phase, s.SettledAt, s.FailureOpen = failed, s.FinalAt, s.OpenFailures > 0
	case s.Processing+s.Captured+s.Failed+s.Unchanged+s.Deleted < s.Items:
		s.Phase = queued
	case s.Processing > 0:
		s.Phase = processing
	default:
		s.Phase = captured
	}
	if s.Phase != phase {
		s.Position = at
	}
}

// endedBy reports whether a watermark up to a position ends the send. It does not end a send with a
// deleted data point: a replay after the erasure learns of that item only from the retained facts,
// and would end the send at another time.
func (s *send) endedBy(upTo eventstore.Position) bool {
	return s.known && s.Phase == captured && s.Failed == 0 && s.Deleted == 0 && s.Position <= upTo
}

// setSearchableAt sets the time of the watermark from retained facts. Their writer knew the data
// point until its deletion; a replay without the data point may have missed that watermark or
// applied a later one.
func (s *send) setSearchableAt(since time.Time) {
	var at *time.Time
	if !since.IsZero() {
		since = pgarray.Instant(since)
		at = &since
	}
	if was := s.SearchableAt; at == was || at != nil && was != nil && at.Equal(*was) {
		return
	}
	s.SearchableAt, s.dirty = at, true
}

// charges is what a send is charged for: items, their bytes, and tenths of credits.
type charges struct {
	Ingestions   int64 `db:"ingestions"`
	Bytes        int64 `db:"bytes"`
	CreditTenths int64 `db:"credit_tenths"`
}

// charge adds an item.
func (c *charges) charge(bytes, creditTenths int64) {
	c.Ingestions++
	c.Bytes += bytes
	c.CreditTenths += creditTenths
}

// setFinalPhase sets the phase that an event of the send's own stream decides; "" after a retry.
func (s *send) setFinalPhase(phase string, at time.Time) {
	s.FinalPhase, s.FinalAt, s.Code, s.Message, s.dirty = phase, &at, nil, nil, true
}

// readiness is what a send counts for in the counters of its project.
type readiness struct{ raw, comprehension, failed int64 }

func (s *send) readiness() readiness {
	switch {
	case !s.known:
		return readiness{}
	case s.Phase == queued:
		return readiness{raw: 1}
	case s.Phase == processing, s.Phase == captured:
		return readiness{comprehension: 1}
	case s.Phase == failed && s.FailureOpen:
		return readiness{failed: 1}
	default:
		return readiness{}
	}
}

func (r *readiness) add(o readiness, n int64) {
	r.raw += n * o.raw
	r.comprehension += n * o.comprehension
	r.failed += n * o.failed
}
