package project

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
)

// State is what decisions need of a project.
type State struct {
	LiveKeys map[uuid.UUID]bool
	// Webhooks are those that are not deleted, by id.
	Webhooks map[string]Webhook
	Archived bool
	// Name is "" until the name is changed. Until then, it is that of the creation.
	Name, Description string
	// IngestionCap and CreditCapTenths are the monthly caps, nil for none.
	IngestionCap    *int64
	CreditCapTenths *int64
	reads           Reads
}

// Evolve folds one event.
func (s *State) Evolve(e event.Event) {
	switch e := e.(type) {
	case *KeyCreated:
		if s.LiveKeys == nil {
			s.LiveKeys = make(map[uuid.UUID]bool)
		}
		s.LiveKeys[e.KeyID] = true
	case *KeyRevoked:
		delete(s.LiveKeys, e.KeyID)
	case *Archived:
		s.Archived = true
	case *Unarchived:
		s.Archived = false
	case *Described:
		s.Name, s.Description = e.Name, e.Description
	case *CapsSet:
		s.IngestionCap, s.CreditCapTenths = e.IngestionCap, e.CreditCapTenths
	case *ReadsSet:
		s.reads = Reads{e.Mode, e.Days}
	default:
		s.evolveWebhook(e)
	}
}
