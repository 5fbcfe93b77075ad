package erasure

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
)

// Rounds is how often a person is erased who keeps on writing.
const Rounds = 3

// Phase is what an erasure does next.
type Phase string

// The phases. A round passes Deleting (data points, then record and calls), Purging and Checking, which ends the
// process or begins the next round.
const (
	Deleting Phase = "deleting"
	Purging  Phase = "purging"
	Checking Phase = "checking"
	Done     Phase = "ended"
)

// Receipt is the receipt of one deletion.
type Receipt struct {
	OperationID uuid.UUID `json:"operationId"`
	DataPoints  int       `json:"dataPoints"`
}

// State is an erasure of a person as its stream records it. The zero value is one without events.
type State struct {
	// Events is how many events were folded: the stream revision of the next one.
	Events              int64
	ProjectID, RecordID uuid.UUID
	Phase               Phase
	// Receipts are those of all deletions, in order.
	Receipts []Receipt
	// Record and Called are true if any round found a record or a call as the person. Calls counts those of all rounds.
	Record, Called bool
	Calls          int
	// Rounds counts the rounds that were purged. Purge is the last purge, nil for none.
	Rounds     int
	Purge      *Purge
	WroteAgain bool
}

// Evolve folds one event.
func (s *State) Evolve(e event.Event) {
	s.Events++
	switch e := e.(type) {
	case *Requested:
		s.ProjectID, s.RecordID, s.Phase = e.ProjectID, e.RecordID, Deleting
	case *DataPointsDeleted:
		s.Receipts, s.Phase = append(s.Receipts, Receipt{e.DeletionID, e.DataPoints}), Deleting
	case *PersonForgotten:
		s.Record, s.Called, s.Calls = s.Record || e.Record, s.Called || e.Called, s.Calls+e.Calls
		s.Phase = Purging
	case *Purged:
		s.Rounds, s.Purge, s.Phase = s.Rounds+1, &e.Purge, Checking
	case *Ended:
		s.WroteAgain, s.Phase = e.WroteAgain, Done
	}
}

// DataPoints counts the data points that were deleted.
func (s *State) DataPoints() (n int) {
	for _, r := range s.Receipts {
		n += r.DataPoints
	}
	return n
}
