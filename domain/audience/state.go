package audience

import (
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
)

// State is what decisions need of the audiences of a project: their slugs, not their members.
type State struct {
	// Events is how many events were folded, which is the revision that the next one will have.
	Events int64
	// bytes is the size of all definitions.
	bytes int64
	live  map[uuid.UUID]Live
	slugs map[string]uuid.UUID
}

// Live is a live audience.
type Live struct {
	ID        uuid.UUID
	Slug      string
	Name      string
	Kind      Kind
	CreatedAt time.Time
	bytes     int64
}

// Evolve folds one event.
func (s *State) Evolve(e event.Event) {
	s.Events++
	switch e := e.(type) {
	case *Put:
		if s.live == nil {
			s.live, s.slugs = make(map[uuid.UUID]Live), make(map[string]uuid.UUID)
		}
		next := Live{
			ID: e.AudienceID, Slug: e.Slug, Name: e.Name, Kind: e.Kind, CreatedAt: e.CreatedAt, bytes: e.DefinitionBytes(),
		}
		s.bytes += next.bytes - s.live[e.AudienceID].bytes
		s.live[e.AudienceID] = next
		s.slugs[e.Slug] = e.AudienceID
	case *Removed:
		s.bytes -= s.live[e.AudienceID].bytes
		delete(s.slugs, s.live[e.AudienceID].Slug)
		delete(s.live, e.AudienceID)
	}
}

// Clone is a copy that shares nothing.
func (s *State) Clone() State {
	return State{Events: s.Events, bytes: s.bytes, live: maps.Clone(s.live), slugs: maps.Clone(s.slugs)}
}

// Len is how many audiences are live.
func (s *State) Len() int { return len(s.live) }

// Find returns the live audience with a slug. The default slug is not found.
func (s *State) Find(slug string) (Live, bool) {
	id, ok := s.slugs[slug]
	return s.live[id], ok
}
