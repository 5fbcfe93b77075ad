// Package people registers persons and makes them members of organizations, by addition or by an offer. It records what
// members let clients and agents do, and what people did without a change.
package people

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

// Service is the commands on persons, members, offers, agents and grants.
type Service struct {
	journal  *engine.Journal
	waiter   engine.Waiter
	registry *engine.RegistryReader
	// memberLimits bound members and offers.
	memberLimits organization.Limits
}

// New makes a Service. The zero value of limits is organization.DefaultLimits.
func New(
	journal *engine.Journal, w engine.Waiter, registry *engine.RegistryReader, limits organization.Limits,
) *Service {
	return &Service{
		journal: journal, waiter: w, registry: registry, memberLimits: cmp.Or(limits, organization.DefaultLimits()),
	}
}

// A person takes appends on up to four streams, in this order:
//
//  1. The stream of the address claims it for a random id. It holds no address. A crash here leaves
//     a claim that a repeat continues, or that the finisher releases.
//  2. The stream of the person holds the address, with the organization that the person begins to
//     join. A crash here leaves a person without an organization: a repeat makes that person a
//     member, or the finisher removes the person after a minute. The claim names the person, so that no address is
//     ever in a stream that nothing refers to.
//  3. The stream of the organization makes the person a member; for the owner of a new organization,
//     the registry creates it. From here on the finisher, or the preparation, completes what is left.
//
// A membership ends on the stream of the organization. Whether it was the last one is decided on the
// stream of the person (SettlePerson): everybody who adds a member appends there before, so that
// an addition at the same time is a conflict, and is decided again. A removed person's memberships
// end, then the stream is tombstoned, and at last, once the disks are purged, the claim is released.
// Each step may be repeated. The list of people to settle is a hint.
//
// A change of the address (ChangeAddress) claims the new address, appends it to the stream of the person,
// and releases the old one. A crash before the second append leaves two claims and the old address, one after it two
// claims and the new address. A repeat continues, or the finisher releases the address that the person does not have,
// a minute after the claim. Until then, nobody is found or added by it.

// NewMember is a person to add to an organization.
type NewMember struct {
	Email string
	Role  organization.Role
}

// RegisterPerson returns the id of the person with an address, and registers one if there is none.
// It returns once the person is shown. A person who is a member of no organization within an hour is erased. Its faults
// are invalid-request, and service-unavailable while a person with the address is being erased.
func (s *Service) RegisterPerson(ctx context.Context, call engine.Call, email string) (uuid.UUID, error) {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	now := s.journal.Now()
	id, at, err := EnterPerson(decideCtx, s.journal, call, email, func(p *person.State, id uuid.UUID) []event.Event {
		return p.Register(id, email, now)
	})
	if err != nil {
		return uuid.Nil, err
	}
	return id, engine.WaitVisible(ctx, s.waiter, at, projection.Access)
}

// FindPerson returns the id of the person with an address. It is for a sign-in: a tenant must not
// learn of it who is known.
func (s *Service) FindPerson(ctx context.Context, email string) (id uuid.UUID, found bool, err error) {
	_, id, err = holderOf(ctx, s.journal, email)
	return id, id != uuid.Nil, err
}

// PersonLives reports whether somebody is registered and not removed.
func (s *Service) PersonLives(ctx context.Context, id uuid.UUID) (bool, error) {
	return lives(ctx, s.journal, id)
}

// personState returns what decisions need of a person, zero for one whose stream is tombstoned.
func personState(ctx context.Context, l *engine.Journal, id uuid.UUID) (person.State, error) {
	p, _, err := engine.Fold[person.State](ctx, l, stream.Name(stream.Person, id))
	if errors.Is(err, eventstore.ErrDeleted) {
		return person.State{}, nil
	}
	return p, err
}

// AddMember makes the person with an address a member of an organization without an offer, which is the operator's
// right, and registers the person if there is none. It returns the member's id, and may be repeated. Its faults are
// invalid-request, not-found, conflict for a member with another role and for too many members, and
// service-unavailable.
func (s *Service) AddMember(
	ctx context.Context, call engine.Call, organizationID uuid.UUID, in NewMember,
) (uuid.UUID, error) {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	if err := checkRole(in.Role); err != nil {
		return uuid.Nil, err
	}
	if err := s.checkRegistered(decideCtx, organizationID); err != nil {
		return uuid.Nil, err
	}
	id, _, err := EnterPerson(decideCtx, s.journal, call, in.Email, Joining(organizationID, in.Email, s.journal.Now()))
	if err != nil {
		return uuid.Nil, err
	}
	return id, s.changeMembers(decideCtx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		return state.Add(organization.MemberAdded{
			OrganizationID: organizationID, MemberID: id, Role: in.Role, AddedAt: call.ReceivedAt,
		}, s.memberLimits)
	})
}

// SetMemberRole changes the role of a member. Its faults are invalid-request, not-found, and conflict
// for the last owner.
func (s *Service) SetMemberRole(
	ctx context.Context, call engine.Call, organizationID, member uuid.UUID, role organization.Role,
) error {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	if err := checkRole(role); err != nil {
		return err
	}
	return s.changeMembers(ctx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		return state.SetRole(organization.MemberRoleSet{
			OrganizationID: organizationID, MemberID: member, Role: role, SetAt: call.ReceivedAt,
		})
	})
}

// SetProjectAccess sets what a member with the role Member may do in a project of the organization. Its
// faults are invalid-request, not-found, and conflict for an owner or admin and for too many projects.
func (s *Service) SetProjectAccess(
	ctx context.Context, call engine.Call, organizationID, member, projectID uuid.UUID, access organization.Access,
) error {
	return s.SetAccess(ctx, call, organizationID, member, map[uuid.UUID]organization.Access{projectID: access})
}

// SetAccess is SetProjectAccess for some projects at once: for all of them, or for none.
func (s *Service) SetAccess(
	ctx context.Context, call engine.Call, organizationID, member uuid.UUID, projects map[uuid.UUID]organization.Access,
) error {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	if err := s.checkAccess(ctx, organizationID, projects); err != nil {
		return err
	}
	order := slices.SortedFunc(maps.Keys(projects), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return s.changeMembers(ctx, call, organizationID, func(state *organization.State) (all []event.Event, err error) {
		for _, id := range order {
			set, err := state.SetAccess(organization.ProjectAccessSet{
				OrganizationID: organizationID, MemberID: member, ProjectID: id, Access: projects[id], SetAt: call.ReceivedAt,
			})
			if err != nil {
				return nil, err
			}
			for _, e := range set {
				changed := e.(organization.ProjectAccessSet)
				state.Evolve(&changed)
			}
			all = append(all, set...)
		}
		return all, nil
	})
}

// checkAccess returns the fault of accesses that cannot be given in an organization.
func (s *Service) checkAccess(
	ctx context.Context, organizationID uuid.UUID, projects map[uuid.UUID]organization.Access,
) error {
	for id, access := range projects {
		if !access.Valid() {
			return fault.New(fault.Invalid, fault.CodeInvalidRequest, "there is no access %q: want %s, %s or none",
				string(access), organization.ReadAccess, organization.WriteAccess)
		}
		p, ok, err := s.journal.ProjectOf(ctx, id)
		if err != nil {
			return err
		}
		if !ok || p.Organization != organizationID {
			return fault.New(fault.NotFound, fault.CodeNotFound, "the organization has no such project")
		}
	}
	return nil
}

// RecordReset records that somebody resets how a member signs in, before that is done. The fault is
// not-found.
func (s *Service) RecordReset(
	ctx context.Context, call engine.Call, organizationID, member uuid.UUID, reset organization.Reset,
) error {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	return s.changeMembers(ctx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		return state.RecordReset(organization.SignInReset{
			OrganizationID: organizationID, MemberID: member, Reset: reset, ResetAt: call.ReceivedAt,
		})
	})
}

// SetSecondFactor sets whether members of an organization need a second factor to sign in. The fault is
// not-found.
func (s *Service) SetSecondFactor(
	ctx context.Context, call engine.Call, organizationID uuid.UUID, required bool,
) error {
	return s.changeSettings(ctx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		return state.SetSecondFactor(organization.SecondFactorSet{
			OrganizationID: organizationID, Required: required, SetAt: call.ReceivedAt,
		}), nil
	})
}

// RemoveMember ends a membership. With the last one, the person is erased. Its faults are not-found,
// and conflict for the last owner of the organization.
func (s *Service) RemoveMember(ctx context.Context, call engine.Call, organizationID, member uuid.UUID) error {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	err := s.changeMembers(decideCtx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		return state.Remove(member, organizationID, call.ReceivedAt)
	})
	if err != nil {
		return err
	}
	s.settleOrLeave(ctx, member)
	return nil
}

// RemovePerson erases a person who asks for it: all memberships end, also that of the last owner of an
// organization. It returns once the address is shown no more. Its fault is not-found.
func (s *Service) RemovePerson(ctx context.Context, call engine.Call, id uuid.UUID) error {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	remove := func(p *person.State) ([]event.Event, error) { return p.Remove(id, call.ReceivedAt), nil }
	removed, position, err := decidePerson(decideCtx, s.journal, id, call.NewMeta, remove)
	if errors.Is(err, eventstore.ErrDeleted) || err == nil && !removed {
		return noPerson()
	}
	if err != nil {
		return err
	}
	if err := engine.WaitVisible(ctx, s.waiter, position, projection.Access); err != nil {
		return err
	}
	s.settleOrLeave(ctx, id)
	return nil
}

func (s *Service) checkRegistered(ctx context.Context, organizationID uuid.UUID) error {
	registered, err := s.registry.Read(ctx)
	if err != nil {
		return err
	}
	if _, ok := registered.Organization(organizationID.String()); !ok {
		return fault.New(fault.NotFound, fault.CodeNotFound, "there is no such organization")
	}
	return nil
}

func checkRole(role organization.Role) error {
	if role.Valid() {
		return nil
	}
	return fault.New(fault.Invalid, fault.CodeInvalidRequest, "there is no role %q: want %s, %s, %s or %s",
		string(role), organization.Owner, organization.Admin, organization.Member, organization.Auditor)
}

// changeMembers decides on the members of an organization, and returns once the change is shown.
func (s *Service) changeMembers(ctx context.Context, call engine.Call, organizationID uuid.UUID,
	decide func(*organization.State) ([]event.Event, error),
) error {
	at, err := s.journal.DecideOrganization(ctx, organizationID, call.NewMeta,
		func(state organization.State) ([]event.Event, error) { return decide(&state) })
	if err != nil {
		return err
	}
	return engine.WaitVisible(ctx, s.waiter, at, projection.Access)
}

// Joining begins to join an organization.
func Joining(organization uuid.UUID, email string, at time.Time) func(*person.State, uuid.UUID) []event.Event {
	return func(p *person.State, id uuid.UUID) []event.Event { return p.Join(id, organization, email, at) }
}

// EnterPerson finds the person with an address or claims the address for a new one, and appends to the
// stream of that person, until position at. A removed person is erased first.
func EnterPerson(
	ctx context.Context, l *engine.Journal, call engine.Call, email string,
	enter func(*person.State, uuid.UUID) []event.Event,
) (id uuid.UUID, at eventstore.Position, err error) {
	if !person.ValidEmail(email) {
		return uuid.Nil, at, fault.New(fault.Invalid, fault.CodeInvalidRequest, "%q is no email address", email)
	}
	name, _, err := holderOf(ctx, l, email)
	if err != nil {
		return uuid.Nil, at, err
	}
	for dead := uuid.Nil; ; {
		id, err := claimAddress(ctx, l, call, name, uuid.New(), dead)
		if err != nil {
			return uuid.Nil, at, err
		}
		former := ""
		removed, at, err := decidePerson(ctx, l, id, call.NewMeta, func(p *person.State) ([]event.Event, error) {
			if former = ""; p.Had(email) {
				former = p.Email
				return nil, nil
			}
			if p.Lives() && !p.Has(email) {
				return nil, fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
					"the person with this address is changing it; repeat in a minute")
			}
			return enter(p, id), nil
		})
		if err == nil && former != "" {
			if err := moveAddress(ctx, l, call, id, former, name); err != nil {
				return uuid.Nil, at, err
			}
			continue
		}
		if err == nil && !removed {
			return id, at, nil
		}
		if err != nil && !errors.Is(err, eventstore.ErrDeleted) {
			return uuid.Nil, at, err
		}
		if err := settleHolder(ctx, l, id); err != nil {
			return uuid.Nil, at, err
		}
		dead = id
	}
}

// settleHolder completes the erasure of a removed person whose address is to be claimed.
func settleHolder(ctx context.Context, l *engine.Journal, id uuid.UUID) error {
	erased, err := SettlePerson(ctx, l, work.Person{ID: id}, l.Now())
	if err == nil && !erased {
		err = fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the person with this address is being erased; repeat in a minute")
	}
	return err
}

// claimAddress claims an address for id, and returns the person of the address: another one than id if that is
// not dead.
func claimAddress(
	ctx context.Context, l *engine.Journal, call engine.Call, name string, id, dead uuid.UUID,
) (holder uuid.UUID, err error) {
	err = decideAddress(ctx, l, name, call.NewMeta, func(address *person.Address) []event.Event {
		claim := address.Claim(id, dead, l.Now())
		if holder = id; len(claim) == 0 {
			holder = address.Holder
		}
		return claim
	})
	return holder, err
}

// settleOrLeave settles a person, or leaves that to the finisher.
func (s *Service) settleOrLeave(ctx context.Context, id uuid.UUID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.FanOutTimeout)
	defer cancel()
	if _, err := SettlePerson(ctx, s.journal, work.Person{ID: id}, s.journal.Now()); err != nil {
		s.journal.Logger.WarnContext(ctx, "erasure of a person failed, the finisher will retry", "person", id, "err", err)
	}
}

// ApproveAgent lets an agent call for the member who makes the call, in a project of the organization or, without one,
// in all that the member may see. It may be repeated. Its faults are not-found, and conflict for an agent that was
// decided on otherwise and for too many agents.
func (s *Service) ApproveAgent(ctx context.Context, call engine.Call, a organization.AgentApproved) error {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	if a.ProjectID != uuid.Nil {
		p, ok, err := s.journal.ProjectOf(ctx, a.ProjectID)
		if err != nil {
			return err
		}
		if !ok || p.Organization != a.OrganizationID {
			return fault.New(fault.NotFound, fault.CodeNotFound, "the organization has no such project")
		}
	}
	a.MemberID, a.ApprovedAt = call.Principal.KeyID, call.ReceivedAt
	return s.changeMembers(ctx, call, a.OrganizationID, func(state *organization.State) ([]event.Event, error) {
		return state.ApproveAgent(a)
	})
}

// DenyAgent refuses an agent for good. It revokes one that the member approved before. The fault is not-found.
func (s *Service) DenyAgent(ctx context.Context, call engine.Call, organizationID, agent uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	return s.changeMembers(ctx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		return state.DenyAgent(organization.AgentDenied{
			OrganizationID: organizationID, AgentID: agent, MemberID: call.Principal.KeyID, DeniedAt: call.ReceivedAt,
		})
	})
}

// RevokeAgent ends the registration of an agent: it gets no further token. of is the member whose agent it must be,
// zero for anybody's. The fault is not-found.
func (s *Service) RevokeAgent(ctx context.Context, call engine.Call, organizationID, agent, of uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	return s.changeMembers(ctx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		return state.RevokeAgent(organization.AgentRevoked{
			OrganizationID: organizationID, AgentID: agent, RevokedAt: call.ReceivedAt,
		}, of)
	})
}

// StopAgent ends the registration of an agent, and its tokens from their next call. The fault is not-found.
func (s *Service) StopAgent(ctx context.Context, call engine.Call, organizationID, agent uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	return s.changeMembers(ctx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		return state.StopAgent(organization.AgentStopped{
			OrganizationID: organizationID, AgentID: agent, StoppedAt: call.ReceivedAt,
		})
	})
}

// ApproveGrant records what a member lets a client do, before the client may. Its faults are not-found, and
// conflict for a grant that has ended.
func (s *Service) ApproveGrant(ctx context.Context, call engine.Call, approved organization.GrantApproved) error {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	return s.changeMembers(ctx, call, approved.OrganizationID, func(state *organization.State) ([]event.Event, error) {
		approved.ApprovedAt = call.ReceivedAt
		return state.ApproveGrant(approved)
	})
}

// RevokeGrant records the end of a grant, before it ends. The person may be a member no more.
func (s *Service) RevokeGrant(ctx context.Context, call engine.Call, revoked organization.GrantRevoked) error {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	return s.changeMembers(ctx, call, revoked.OrganizationID, func(*organization.State) ([]event.Event, error) {
		revoked.RevokedAt = call.ReceivedAt
		return []event.Event{revoked}, nil
	})
}
