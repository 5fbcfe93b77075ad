package datapoints

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
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

// send is a row of table sends. While only the send's own stream is known, it is a row of table
// sends_without_items.
type send struct {
	id         uuid.UUID
	project    uuid.UUID
	known      bool
	request    uuid.UUID
	acceptedAt time.Time
	items      int
	batch      bool
	charges
	month     string
	fannedOut bool

	// Set by events of the send's own stream.
	finalPhase string // "", indexed or failed
	finalAt    *time.Time
	code       *string // of the final phase
	message    *string
	round      int
	deletedAt  *time.Time
	// searchableAt is the time of the watermark that ended the send, nil if none did.
	searchableAt *time.Time

	counts

	// Derived from the fields above.
	phase       string
	settledAt   *time.Time
	failureOpen bool
	position    eventstore.Position

	before  readiness // what the stored row counts for
	charged charges   // what the stored row is charged
	stored  location
	dirty   bool
}

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
	queued, processing, captured, failed, openFailures, unchanged, deleted int
	lastDeletedAt                                                          *time.Time
}

// count adds an item to the counts (n = 1) or removes it (n = -1).
func (c *counts) count(i *item, n int) {
	switch {
	case i.phase == erased:
	case i.keepsRevision():
		c.unchanged += n
	case i.isDeleted():
		c.deleted += n
		if at := i.deletedAt; n > 0 && at != nil && (c.lastDeletedAt == nil || c.lastDeletedAt.Before(*at)) {
			c.lastDeletedAt = at
		}
	case i.phase == queued:
		c.queued += n
	case i.phase == processing:
		c.processing += n
	case i.phase == captured:
		c.captured += n
	case i.hasFailed():
		c.failed += n
		if !i.overtaken {
			c.openFailures += n
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
	phase := s.phase
	s.settledAt, s.failureOpen = nil, false
	switch {
	case s.unchanged == s.items:
		s.phase, s.settledAt = nothingChanged, &s.acceptedAt
	case s.searchableAt != nil:
		s.phase, s.settledAt = indexed, s.searchableAt
	case s.finalPhase == indexed:
		s.phase, s.settledAt = indexed, s.finalAt
	case s.deletedAt != nil:
		s.phase, s.settledAt = indexed, s.deletedAt
	case !s.fannedOut && s.finalPhase == failed: // its stage cannot be read
		s.phase, s.settledAt, s.failureOpen = failed, s.finalAt, true
	case !s.fannedOut:
		s.phase = queued
	case s.unchanged+s.deleted == s.items: // no item is left to wait for
		if s.phase, s.settledAt = indexed, s.lastDeletedAt; s.settledAt == nil { // all items of its batch met deletions
			s.settledAt = &s.acceptedAt
		}
	case s.finalPhase == failed:
		s.phase, s.settledAt, s.failureOpen = failed, s.finalAt, s.openFailures > 0
	case s.processing+s.captured+s.failed+s.unchanged+s.deleted < s.items:
		s.phase = queued
	case s.processing > 0:
		s.phase = processing
	default:
		s.phase = captured
	}
	if s.phase != phase {
		s.position = at
	}
}

// endedBy reports whether a watermark up to a position ends the send. It does not end a send with a
// deleted data point: a replay after the erasure learns of that item only from the retained facts,
// and would end the send at another time.
func (s *send) endedBy(upTo eventstore.Position) bool {
	return s.known && s.phase == captured && s.failed == 0 && s.deleted == 0 && s.position <= upTo
}

// failure returns the reason of a failed send, nil for others.
func (s *send) failure() (code, message *string) {
	if s.phase != failed {
		return nil, nil
	}
	return s.code, s.message
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
	if was := s.searchableAt; at == was || at != nil && was != nil && at.Equal(*was) {
		return
	}
	s.searchableAt, s.dirty = at, true
}

// charges is what a send is charged for: items, their bytes, and tenths of credits.
type charges struct{ ingestions, bytes, creditTenths int64 }

// charge adds an item.
func (c *charges) charge(bytes, creditTenths int64) {
	c.ingestions++
	c.bytes += bytes
	c.creditTenths += creditTenths
}

// setFinalPhase sets the phase that an event of the send's own stream decides; "" after a retry.
func (s *send) setFinalPhase(phase string, at time.Time) {
	s.finalPhase, s.finalAt, s.code, s.message, s.dirty = phase, &at, nil, nil, true
}

// readiness is what a send counts for in the counters of its project.
type readiness struct{ raw, comprehension, failed int64 }

func (s *send) readiness() readiness {
	switch {
	case !s.known:
		return readiness{}
	case s.phase == queued:
		return readiness{raw: 1}
	case s.phase == processing, s.phase == captured:
		return readiness{comprehension: 1}
	case s.phase == failed && s.failureOpen:
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
