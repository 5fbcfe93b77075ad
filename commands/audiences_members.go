package commands

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// appearMember makes sure that a member of a fixed audience has a directory record. A record that was removed appears anew.
func (s *Service) appearMember(ctx context.Context, call Call, name string, id uuid.UUID) error {
	record := stream.Name(stream.Identity, id)
	for {
		last, some, err := s.Log.Last(ctx, record)
		if err != nil {
			return err
		}
		at := eventstore.NoStream
		if some {
			if hasRecord(last.Event) {
				return nil
			}
			at = last.Revision
		}
		appeared := identity.Appeared{ProjectID: call.Principal.Project.ID, Identity: name, Origin: identity.OriginAudience, AppearedAt: call.ReceivedAt}
		_, err = s.Log.Append(ctx, record, at, call.meta(uuid.New()), appeared)
		if errors.Is(err, eventstore.ErrConflict) {
			continue
		}
		return err
	}
}

// hasRecord reports whether there is a record behind the last event of an identity's stream.
func hasRecord(last event.Event) bool {
	switch e := last.(type) {
	case *identity.Removed, *identity.Cleared:
		return false
	case *identity.BulkRowApplied:
		return e.Record != nil
	default:
		return true
	}
}
