package ingestion

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
)

// State is a send as its own stream records it. The zero value is a send without events.
type State struct {
	// Events is how many events were folded: the stream revision of the next one.
	Events int64
	// Claim is the idempotency claim of a single send, nil for none.
	Claim *Claimed
	// Batch is the commit of a batch, nil for a single send.
	Batch *Accepted
	// Outcomes are those of a complete fan-out, nil before.
	Outcomes []Outcome
	// Stopped reports a failure that no retry followed.
	Stopped bool
	// Round counts the retries.
	Round int
}

// Evolve folds one event.
func (s *State) Evolve(e event.Event) {
	first := s.Events == 0
	s.Events++
	switch e := e.(type) {
	case *Claimed:
		if first {
			s.Claim = e
		}
	case *Accepted:
		if first {
			s.Batch = e
		}
	case *FannedOut:
		if s.Outcomes == nil {
			s.Outcomes = e.Outcomes
		}
	case *Failed:
		s.Stopped = true
	case *Retried:
		s.Stopped = false
		s.Round++
	}
}

// PendingFanOut reports whether the send is a committed batch whose fan-out is not complete. An
// abandoned batch is one, too.
func (s *State) PendingFanOut() bool { return s.Batch != nil && s.Outcomes == nil }

// Abandoned reports whether the send is a batch that ended without a fan-out.
func (s *State) Abandoned() bool { return s.PendingFanOut() && s.Stopped }

// Matches reports whether the send has the payload of a fingerprint. A batch and a single send
// never have the same one.
func (s *State) Matches(fingerprint string) bool {
	switch {
	case s.Claim != nil:
		return s.Claim.Fingerprint == fingerprint
	case s.Batch != nil:
		return s.Batch.Fingerprint == fingerprint
	default:
		return false
	}
}

// CompleteFanOut decides how a fan-out ends: its outcomes are stored, unless another run stored
// some.
func (s *State) CompleteFanOut(outcomes []Outcome) []event.Event {
	if !s.PendingFanOut() {
		return nil
	}
	return []event.Event{&FannedOut{ProjectID: s.Batch.ProjectID, Outcomes: outcomes}}
}

// Abandon decides how a batch ends whose stage cannot be read: as failed, unless its fan-out is
// complete or it is abandoned already.
func (s *State) Abandon(at time.Time) []event.Event {
	if !s.PendingFanOut() || s.Stopped {
		return nil
	}
	return []event.Event{&Failed{
		ProjectID: s.Batch.ProjectID, Code: Internal, Message: "the stored text cannot be read", FailedAt: at,
	}}
}

// Retry is a caller's wish to repeat the failed items of a stopped send.
type Retry struct {
	ProjectID uuid.UUID
	RequestID uuid.UUID
	At        time.Time
	// AllDeleted reports that the send created revisions, and that all of their data points are
	// deleted.
	AllDeleted bool
	// Completed reports that polls show the send as completed although it stopped: a watermark found
	// it searchable, or it was deleted as a whole.
	Completed bool
}

// Retry decides a retry. Its faults are data-point-deleted and ingestion-not-stopped.
func (s *State) Retry(c Retry) ([]event.Event, error) {
	// Before its fan-out, a batch may lack data points that it is still to create.
	if c.AllDeleted && !s.PendingFanOut() {
		return nil, fault.New(fault.Conflict, fault.CodeDataPointDeleted, "every data point of the send is deleted")
	}
	if !s.Stopped || c.Completed {
		return nil, fault.New(fault.Conflict, fault.CodeIngestionNotStopped, "the send has not stopped")
	}
	return []event.Event{&Retried{
		ProjectID: c.ProjectID, Round: s.Round + 1, RequestID: c.RequestID, RetriedAt: c.At,
	}}, nil
}
