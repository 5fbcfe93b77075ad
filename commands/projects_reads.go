package commands

import (
	"context"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/internal/projection"
)

// SetReads sets whether the reads of the project of the call are recorded, from the next call on, and for how many
// days. The fault is invalid-request.
func (s *Service) SetReads(ctx context.Context, call Call, reads project.Reads) error {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	id := call.Principal.Project.ID
	at, err := s.decideProject(ctx, call, id, func(state project.State) ([]event.Event, error) {
		return state.SetReads(id, reads, call.ReceivedAt)
	})
	if err != nil {
		return err
	}
	return waitVisible(ctx, s.waiter, at, projection.Access)
}
