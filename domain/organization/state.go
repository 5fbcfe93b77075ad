package organization

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
)

// State is what decisions need of an organization.
type State struct {
	// Events is how many events were folded, which is the revision that the next one will have.
	Events int64
	// Members are the current members. Staffed reports that there ever was one, or that its creator was
	// erased before being one.
	Members map[uuid.UUID]Role
	Staffed bool
	// Access is what members may do in projects, by member and project, for the role Member only.
	Access map[uuid.UUID]map[uuid.UUID]Access
	// Agents are those that were decided on, by the id of the registration.
	Agents map[uuid.UUID]Agent
	// Grants are those that were approved, by id.
	Grants map[uuid.UUID]Grant
	// Offers are those that are open, by id. One that has expired stays until its end is recorded.
	Offers map[uuid.UUID]Offer
	// offered are the times of the offers within an hour before the newest, accepted are the people who accepted one.
	offered  []time.Time
	accepted map[uuid.UUID]acceptance
	// SecondFactor reports that members need a second factor to sign in.
	SecondFactor bool
	// AuditorTexts reports that auditors may read texts.
	AuditorTexts bool
	// visitDays is 0 until it was set.
	visitDays int
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
		s.setRole(e.MemberID, e.Role)
	case *MemberRoleSet:
		s.setRole(e.MemberID, e.Role)
	case *MemberRemoved:
		delete(s.Members, e.MemberID)
		delete(s.Access, e.MemberID)
		s.endAgentsOf(e.MemberID)
		s.endGrantsOf(e.MemberID)
		s.Staffed = true
	case *ProjectAccessSet:
		s.setAccess(e.MemberID, e.ProjectID, e.Access)
	case *AgentApproved:
		s.setAgent(e.AgentID, Agent{Member: e.MemberID, Scopes: e.Scopes, Project: e.ProjectID})
	case *AgentDenied:
		s.setAgent(e.AgentID, Agent{Member: e.MemberID, Revoked: true, Stopped: true})
	case *AgentRevoked:
		s.endAgent(e.AgentID, false)
	case *AgentStopped:
		s.endAgent(e.AgentID, true)
	case *GrantApproved:
		s.setGrant(e.GrantID, Grant{Member: e.MemberID})
	case *GrantRevoked:
		s.setGrant(e.GrantID, Grant{Member: e.MemberID, Ended: true})
	case *MemberOffered, *OfferEnded:
		s.evolveOffer(e)
	case *SecondFactorSet:
		s.SecondFactor = e.Required
	case *VisitsKeptSet:
		s.visitDays = e.Days
	case *AuditorTextsSet:
		s.AuditorTexts = e.Allowed
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
	// OwnerID is zero for no owner. WorkEmail is as in registry.OrganizationCreated.
	OwnerID   uuid.UUID
	WorkEmail bool
	// Key is the management key, nil if its clear value is unknown: then the organization gets a key
	// when it is rotated.
	Key *ManagementKeySet
	At  time.Time
}

// Missing returns the events that add the parts that the organization lacks.
func (s *State) Missing(p Parts) []event.Event {
	var events []event.Event
	if !s.Staffed && p.OwnerID != uuid.Nil {
		events = append(events,
			MemberAdded{OrganizationID: p.OrganizationID, MemberID: p.OwnerID, Role: Owner, AddedAt: p.At})
	}
	plan := s.Plan
	if plan == "" {
		plan = p.Plan
		events = append(events,
			PlanSet{OrganizationID: p.OrganizationID, Plan: plan, Month: metering.Month(p.At), SetAt: p.At})
	}
	events = append(events, s.starting(p.OrganizationID, plan, p.WorkEmail, p.At)...)
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
	// WorkEmail is as in registry.OrganizationCreated.
	WorkEmail bool
	At        time.Time
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
	return append([]event.Event{set}, s.starting(c.OrganizationID, c.Plan, c.WorkEmail, c.At)...)
}

// starting grants the starting credits, once and on a metered plan only.
func (s *State) starting(id uuid.UUID, plan metering.Plan, workEmail bool, at time.Time) []event.Event {
	if s.Started || !plan.Metered() {
		return nil
	}
	return []event.Event{CreditsGranted{
		OrganizationID: id, Kind: metering.Starting, Tenths: StartingTenths(workEmail), Month: metering.Month(at),
		GrantedAt: at,
	}}
}

// ValidName reports whether a text can name an organization: up to limit.OrganizationName
// characters, at least two of them letters or digits, without control characters, without a space
// at either end, and not an id, since commands take a name or an id.
func ValidName(name string) bool {
	telling := 0
	for _, r := range name {
		if unicode.IsControl(r) {
			return false
		}
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			telling++
		}
	}
	_, err := uuid.Parse(name)
	return err != nil && utf8.ValidString(name) && utf8.RuneCountInString(name) <= limit.OrganizationName &&
		telling >= 2 &&
		strings.TrimSpace(name) == name
}

// GrantApproved lets a client (OAuth) act for a member. ProjectID is zero for all projects of the member. The name of
// the client is not in it, since a stranger chose it.
type GrantApproved struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	MemberID       uuid.UUID `json:"memberId"`
	GrantID        uuid.UUID `json:"grantId"`
	ProjectID      uuid.UUID `json:"projectId,omitzero"`
	Scopes         []string  `json:"scopes"`
	ApprovedAt     time.Time `json:"approvedAt"`
}

func (GrantApproved) EventType() string { return "organization.grant-approved.v1" }

// GrantRevoked ends what GrantApproved allowed.
type GrantRevoked struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	MemberID       uuid.UUID `json:"memberId"`
	GrantID        uuid.UUID `json:"grantId"`
	RevokedAt      time.Time `json:"revokedAt"`
}

func (GrantRevoked) EventType() string { return "organization.grant-revoked.v1" }

// Grant is what decisions need of a grant.
type Grant struct {
	Member uuid.UUID
	Ended  bool
}

func (s *State) setGrant(id uuid.UUID, g Grant) {
	if s.Grants == nil {
		s.Grants = make(map[uuid.UUID]Grant)
	}
	s.Grants[id] = g
}

// endGrantsOf ends the grants of a member who left. They do not come back with the member.
func (s *State) endGrantsOf(member uuid.UUID) {
	for id, g := range s.Grants {
		if g.Member == member {
			s.setGrant(id, Grant{Member: member, Ended: true})
		}
	}
}

// ApproveGrant records what a member lets a client do. Its faults are not-found for somebody who is no member, and
// conflict for a grant that has ended: its tokens would work again.
func (s *State) ApproveGrant(approved GrantApproved) ([]event.Event, error) {
	if _, is := s.Members[approved.MemberID]; !is {
		return nil, noMember()
	}
	if s.Grants[approved.GrantID].Ended {
		return nil, fault.New(fault.Conflict, fault.CodeConflict, "the grant has ended; make another one")
	}
	return []event.Event{approved}, nil
}
