package deletion

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
)

// State is a deletion as its own stream records it. The zero value is a deletion without events.
//
// The deletion of one source id has no commit: its stream begins with the facts that it retains.
type State struct {
	// Events is how many events were folded: the stream revision of the next one.
	Events    int64
	ProjectID uuid.UUID
	// Commit is that of a deletion of several ids, or of a send; nil for one id.
	Commit *Accepted
	// Deleted are the data points that the fan-out deleted.
	Deleted []uuid.UUID
	// Retaining are the data points whose facts the deletion retains, in order.
	Retaining []uuid.UUID
	Cleaned   bool

	// It holds no facts and no names of blobs: there may be millions. They are read from the stream again.
	fannedOut bool
	retained  map[uuid.UUID]*Retained
}

// Retained is how much of the facts of a data point is stored.
type Retained struct {
	// Next is the stream revision of the data point up to which, exclusive, its facts are stored.
	Next int64
	// NextMemory is the revision of the stream of its memories up to which, exclusive, these are counted.
	NextMemory int64
	// Complete reports that all of them are.
	Complete bool
}

// Evolve folds one event.
func (s *State) Evolve(e event.Event) {
	s.Events++
	switch e := e.(type) {
	case *Accepted:
		s.ProjectID, s.Commit = e.ProjectID, e
	case *FannedOut:
		s.Deleted, s.fannedOut = append(s.Deleted, e.Deleted...), true
	case *FactsKept:
		s.ProjectID = e.ProjectID
		s.retain(e)
	case *Cleaned:
		s.Cleaned = true
	}
}

func (s *State) retain(e *FactsKept) {
	r := s.retained[e.DataPoint]
	if r == nil {
		if s.retained == nil {
			s.retained = make(map[uuid.UUID]*Retained)
		}
		r = &Retained{}
		s.retained[e.DataPoint] = r
		s.Retaining = append(s.Retaining, e.DataPoint)
	}
	r.Next, r.NextMemory, r.Complete = max(r.Next, e.To), max(r.NextMemory, e.MemoriesTo), r.Complete || e.Complete
}

// PendingFanOut reports whether the deletion is committed and its fan-out is not complete.
func (s *State) PendingFanOut() bool { return s.Commit != nil && !s.fannedOut }

// Retained returns how much of the facts of a data point is stored, nil for nothing.
func (s *State) Retained(dataPoint uuid.UUID) *Retained { return s.retained[dataPoint] }

// Others returns the deleted data points whose facts another deletion retains. That deletion erases
// them.
func (s *State) Others() []uuid.UUID {
	return slices.DeleteFunc(slices.Clone(s.Deleted), func(id uuid.UUID) bool { return s.retained[id] != nil })
}

// EndedFacts decides the first of the retained facts of at most limit targets whose streams are ended, and that have
// none. They delete the data points: the rest of the facts follows.
func (s *State) EndedFacts(limit int) []event.Event {
	if !s.PendingFanOut() {
		return nil
	}
	var events []event.Event
	for _, t := range s.Commit.Targets {
		if t.Decided == Ended && s.retained[t.DataPoint] == nil && len(events) < limit {
			events = append(events, &FactsKept{
				ProjectID: s.ProjectID, DataPoint: t.DataPoint, Facts: []RetainedFact{}, DeletedAt: s.Commit.AcceptedAt,
				RequestID: s.Commit.RequestID,
			})
		}
	}
	return events
}

// CompleteFanOut decides how a fan-out ends: with the deleted and the retained data points, unless
// another run ended it.
func (s *State) CompleteFanOut(deleted, retained []uuid.UUID) []event.Event {
	if !s.PendingFanOut() {
		return nil
	}
	return []event.Event{&FannedOut{ProjectID: s.ProjectID, Deleted: deleted, Kept: retained}}
}

// Clean decides the last event: nothing is left on the disks that the service cleans. It decides
// nothing if there is no such deletion, if its fan-out is pending, or if it is cleaned already.
func (s *State) Clean(at time.Time) []event.Event {
	if s.Events == 0 || s.PendingFanOut() || s.Cleaned {
		return nil
	}
	return []event.Event{&Cleaned{ProjectID: s.ProjectID, CleanedAt: at}}
}
