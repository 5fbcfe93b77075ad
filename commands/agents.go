package commands

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
)

// ApproveAgent lets an agent call for the member who makes the call, in a project of the organization or, without one,
// in all that the member may see. It may be repeated. Its faults are not-found, and conflict for an agent that was
// decided on otherwise and for too many agents.
func (s *Service) ApproveAgent(ctx context.Context, call Call, a organization.AgentApproved) error {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	if a.ProjectID != uuid.Nil {
		p, ok, err := s.journal.projectOf(ctx, a.ProjectID)
		if err != nil {
			return err
		}
		if !ok || p.organization != a.OrganizationID {
			return fault.New(fault.NotFound, fault.CodeNotFound, "the organization has no such project")
		}
	}
	a.MemberID, a.ApprovedAt = call.Principal.KeyID, call.ReceivedAt
	return s.changeMembers(ctx, call, a.OrganizationID, func(state *organization.State) ([]event.Event, error) {
		return state.ApproveAgent(a)
	})
}

// DenyAgent refuses an agent for good. It revokes one that the member approved before. The fault is not-found.
func (s *Service) DenyAgent(ctx context.Context, call Call, organizationID, agent uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	return s.changeMembers(ctx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		return state.DenyAgent(organization.AgentDenied{
			OrganizationID: organizationID, AgentID: agent, MemberID: call.Principal.KeyID, DeniedAt: call.ReceivedAt,
		})
	})
}

// RevokeAgent ends the registration of an agent: it gets no further token. of is the member whose agent it must be,
// zero for anybody's. The fault is not-found.
func (s *Service) RevokeAgent(ctx context.Context, call Call, organizationID, agent, of uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	return s.changeMembers(ctx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		return state.RevokeAgent(organization.AgentRevoked{
			OrganizationID: organizationID, AgentID: agent, RevokedAt: call.ReceivedAt,
		}, of)
	})
}

// StopAgent ends the registration of an agent, and its tokens from their next call. The fault is not-found.
func (s *Service) StopAgent(ctx context.Context, call Call, organizationID, agent uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	return s.changeMembers(ctx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		return state.StopAgent(organization.AgentStopped{
			OrganizationID: organizationID, AgentID: agent, StoppedAt: call.ReceivedAt,
		})
	})
}
