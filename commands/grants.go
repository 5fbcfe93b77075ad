package commands

import (
	"context"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/organization"
)

// ApproveGrant records what a member lets a client do, before the client may. Its faults are not-found, and
// conflict for a grant that has ended.
func (s *Service) ApproveGrant(ctx context.Context, call Call, approved organization.GrantApproved) error {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	return s.changeMembers(ctx, call, approved.OrganizationID, func(state *organization.State) ([]event.Event, error) {
		approved.ApprovedAt = call.ReceivedAt
		return state.ApproveGrant(approved)
	})
}

// RevokeGrant records the end of a grant, before it ends. The person may be a member no more.
func (s *Service) RevokeGrant(ctx context.Context, call Call, revoked organization.GrantRevoked) error {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	return s.changeMembers(ctx, call, revoked.OrganizationID, func(*organization.State) ([]event.Event, error) {
		revoked.RevokedAt = call.ReceivedAt
		return []event.Event{revoked}, nil
	})
}
