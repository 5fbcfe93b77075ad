package datapoints

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/unnest"
)

// The phases of a send that its items do not have.
const (
	indexed        = "indexed"
	nothingChanged = "nothing-changed"
)

// send is a row of table sends, or of table verdicts while only its own stream is known.
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

	// What its own stream says.
	verdict   string // "", indexed or failed
	verdictAt *time.Time
	code      *string // of the verdict
	message   *string
	round     int
	deletedAt *time.Time
	// searchableAt is the time of the watermark that ended the send, nil if none did.
	searchableAt *time.Time

	counts

	// What follows.
	phase     string
	settledAt *time.Time
	stands    bool
	position  eventstore.Position

	before  readiness // what the stored row counts for
	charged charges   // what the stored row is charged
	stored  place
	dirty   bool
}

// place says which table holds a send.
type place int

const (
	nowhere place = iota
	inSends
	inVerdicts
)

// counts is how many items of a send are where. An item that is not fanned out, or erased with its facts to come, is in none.
type counts struct {
	queued, processing, captured, failed, standing, unchanged, deleted int
	lastDeletedAt                                                      *time.Time
}

// count adds an item to the counts, or with n = -1 takes it out.
func (c *counts) count(i *item, n int) {
	switch {
	case i.phase == erased:
	case i.changedNothing():
		c.unchanged += n
	case i.gone():
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
	case i.stopped():
		c.failed += n
		if !i.moot {
			c.standing += n
		}
	}
}

// settle works the phase out anew after an event.
//
// It looks at nothing but what the facts that outlive a data point say as well: so a replay that finds the data point
// erased comes to the same row.
func (s *send) settle(at eventstore.Position) {
	if !s.known {
		return
	}
	phase := s.phase
	s.settledAt, s.stands = nil, false
	switch {
	case s.unchanged == s.items:
		s.phase, s.settledAt = nothingChanged, &s.acceptedAt
	case s.searchableAt != nil:
		s.phase, s.settledAt = indexed, s.searchableAt
	case s.verdict == indexed:
		s.phase, s.settledAt = indexed, s.verdictAt
	case s.deletedAt != nil:
		s.phase, s.settledAt = indexed, s.deletedAt
	case !s.fannedOut && s.verdict == failed: // its stage is lost
		s.phase, s.settledAt, s.stands = failed, s.verdictAt, true
	case !s.fannedOut:
		s.phase = queued
	case s.unchanged+s.deleted == s.items: // nothing is left of it, and so nothing to wait for
		if s.phase, s.settledAt = indexed, s.lastDeletedAt; s.settledAt == nil { // its batch met deletions only
			s.settledAt = &s.acceptedAt
		}
	case s.verdict == failed:
		s.phase, s.settledAt, s.stands = failed, s.verdictAt, s.standing > 0
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

// endsBy reports whether a watermark up to a position ends the send. A watermark does not end a
// send with a deleted data point: a replay that finds it erased learns of it only from the retained
// facts, and would end the send at another time.
func (s *send) endsBy(upTo eventstore.Position) bool {
	return s.known && s.phase == captured && s.failed == 0 && s.deleted == 0 && s.position <= upTo
}

// failure is what a client reads as the reason of a failed send.
func (s *send) failure() (code, message *string) {
	if s.phase != failed {
		return nil, nil
	}
	return s.code, s.message
}

// tell sets the time of the watermark from retained facts. Their writer knew the data point until
// its end. A replay that does not may have missed the watermark, or applied a later one.
func (s *send) tell(since time.Time) {
	var told *time.Time
	if !since.IsZero() {
		since = unnest.Instant(since)
		told = &since
	}
	if was := s.searchableAt; told == was || told != nil && was != nil && told.Equal(*was) {
		return
	}
	s.searchableAt, s.dirty = told, true
}

// charges is what a send is charged: for how many items, of how many bytes, and how much.
type charges struct{ ingestions, bytes, creditTenths int64 }

// charge adds an item.
func (c *charges) charge(bytes, creditTenths int64) {
	c.ingestions++
	c.bytes += bytes
	c.creditTenths += creditTenths
}

// decide takes a verdict of the send's own stream.
func (s *send) decide(verdict string, at time.Time) {
	s.verdict, s.verdictAt, s.code, s.message, s.dirty = verdict, &at, nil, nil, true
}

// readiness is what sends count for in the counters of their project.
type readiness struct{ raw, comprehension, failed int64 }

func (s *send) readiness() readiness {
	switch {
	case !s.known:
		return readiness{}
	case s.phase == queued:
		return readiness{raw: 1}
	case s.phase == processing, s.phase == captured:
		return readiness{comprehension: 1}
	case s.phase == failed && s.stands:
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
