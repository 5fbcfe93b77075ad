package commands

import (
	"context"
	"errors"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
)

// refuseRemoval returns the refusal of a removal, once what was removed before is invisible. The caller
// may repeat a removal that was stored and did not become visible in time: "not found" must not be the
// answer while recall still shows what was removed.
func (s *Service) refuseRemoval(
	ctx context.Context, refusal error, removed eventstore.Position, projections ...string,
) error {
	if err := waitVisible(ctx, s.waiter, removed, projections...); err != nil {
		return err
	}
	return refusal
}

// refuseRemovalFrom is refuseRemoval for what a stream does not hold, or no longer. It returns errors
// other than the fault not-found as they are.
func (s *Service) refuseRemovalFrom(ctx context.Context, refusal error, name string, projections ...string) error {
	f, ok := errors.AsType[*fault.Error](refusal)
	if !ok || f.Kind != fault.NotFound {
		return refusal
	}
	last, ok, err := s.journal.Last(ctx, name)
	switch {
	case errors.Is(err, eventstore.ErrDeleted), err == nil && !ok:
		return refusal
	case err != nil:
		return err
	}
	return s.refuseRemoval(ctx, refusal, last.Position, projections...)
}
