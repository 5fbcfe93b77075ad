package organization

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/metering"
)

// State is what decisions need of an organization.
type State struct {
	// Events is how many events were folded, which is the revision that the next one will have.
	Events  int64
	Members int
	// OwnerEmail is the first owner's, "" while there is none.
	OwnerEmail string
	// Plan is "" until one was set.
	Plan           metering.Plan
	SpendCapTenths *int64
	// Started reports that starting credits were granted, which happens once.
	Started  bool
	Prepared bool
	// KeyHashes are those of every management key that the organization ever had, the current one
	// last.
	KeyHashes []string
}

// Evolve folds one event.
func (s *State) Evolve(e event.Event) {
	s.Events++
	switch e := e.(type) {
	case *ManagementKeySet:
		s.KeyHashes = append(s.KeyHashes, e.Hash)
	case *MemberAdded:
		s.Members++
		if e.Role == Owner && s.OwnerEmail == "" {
			s.OwnerEmail = e.Email
		}
	case *PlanSet:
		s.Plan = e.Plan
	case *CreditsGranted:
		s.Started = s.Started || e.Kind == metering.Starting
	case *SpendCapSet:
		s.SpendCapTenths = e.Tenths
	case *Prepared:
		s.Prepared = true
	}
}

// Held reports whether a hash is that of a management key that the organization has or had.
func (s *State) Held(hash string) bool { return slices.Contains(s.KeyHashes, hash) }

// Parts are the parts of a prepared organization.
type Parts struct {
	OrganizationID uuid.UUID
	Plan           metering.Plan
	// OwnerEmail is "" for no owner. MemberID is the id that the owner gets.
	OwnerEmail string
	MemberID   uuid.UUID
	// Key is the management key, nil if its clear value is unknown: then the organization gets a key
	// when it is rotated.
	Key *ManagementKeySet
	At  time.Time
}

// Missing returns the events that add the parts that the organization lacks.
func (s *State) Missing(p Parts) []event.Event {
	var events []event.Event
	if s.Members == 0 && p.OwnerEmail != "" {
		events = append(events,
			MemberAdded{OrganizationID: p.OrganizationID, MemberID: p.MemberID, Email: p.OwnerEmail, Role: Owner, AddedAt: p.At})
	}
	plan := s.Plan
	if plan == "" {
		plan = p.Plan
		events = append(events,
			PlanSet{OrganizationID: p.OrganizationID, Plan: plan, Month: metering.Month(p.At), SetAt: p.At})
	}
	events = append(events, s.starting(p.OrganizationID, plan, cmp.Or(s.OwnerEmail, p.OwnerEmail), p.At)...)
	if len(s.KeyHashes) == 0 && p.Key != nil {
		events = append(events, *p.Key)
	}
	return events
}

// Change is a change of plan.
type Change struct {
	OrganizationID uuid.UUID
	Plan           metering.Plan
	// ChargedTenths is what the organization was charged in the month of At so far.
	ChargedTenths int64
	At            time.Time
}

// SetPlan returns the events that put the organization on a plan, none if it is on it.
func (s *State) SetPlan(c Change) []event.Event {
	if s.Plan == c.Plan {
		return nil
	}
	set := PlanSet{
		OrganizationID: c.OrganizationID,
		Plan:           c.Plan,
		Month:          metering.Month(c.At),
		ChargedTenths:  c.ChargedTenths,
		SetAt:          c.At,
	}
	return append([]event.Event{set}, s.starting(c.OrganizationID, c.Plan, s.OwnerEmail, c.At)...)
}

// starting grants the starting credits, once and on a metered plan only.
func (s *State) starting(id uuid.UUID, plan metering.Plan, owner string, at time.Time) []event.Event {
	if s.Started || !plan.Metered() {
		return nil
	}
	return []event.Event{CreditsGranted{
		OrganizationID: id, Kind: metering.Starting, Tenths: StartingTenths(owner), Month: metering.Month(at), GrantedAt: at,
	}}
}
