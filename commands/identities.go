package commands

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/todo"
)

// Directory is what writes of identities ask the directory projection. It asks the primary, and fails with service-unavailable
// while the projection is stopped.
type Directory interface {
	// Standing is how far it has applied the streams of the records that it knows, also of removed ones, and what stands there.
	Standing(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]todo.Standing, error)
	// OpenBulks are the bulk writes that are committed, not fanned out, and hold a row of any of the records.
	OpenBulks(ctx context.Context, project auth.Project, ids []uuid.UUID) ([]uuid.UUID, error)
}

// IdentityReceipt is a directory record as a write left it. Traits is never nil.
type IdentityReceipt struct {
	ID        uuid.UUID
	Identity  string
	Traits    map[string]string
	Origin    identity.Origin
	CreatedAt time.Time
	UpdatedAt time.Time
}

// PutIdentity creates a record or replaces all of its traits. Name, keys and values are within their limits. It answers once recall
// follows it. Its faults are traits-invalid for too many or too big traits, and service-unavailable.
func (s *Service) PutIdentity(ctx context.Context, call Call, name string, traits map[string]string) (IdentityReceipt, error) {
	if err := identity.CheckTraits(nil, traits); err != nil {
		return IdentityReceipt{}, err
	}
	var receipt IdentityReceipt
	done, err := s.changeIdentity(ctx, call, name, func(ctx context.Context, o owner, standing *identity.Record) (event.Event, error) {
		placed, err := s.Log.placeTraits(ctx, o, traits)
		if err != nil {
			return nil, err
		}
		record := identity.Replace(standing, name, placed, identity.OriginAPI, call.ReceivedAt)
		receipt = receiptOf(o.identity, record, traits)
		return identity.TraitsReplaced{ProjectID: o.project, Record: record}, nil
	})
	if err != nil {
		return IdentityReceipt{}, err
	}
	return receipt, visible(ctx, s.Waiter, done.Position, projectionDirectory)
}

// PatchIdentity changes some traits of a record, which it creates where there is none: those of set are set, those of removed go.
// No key is in both. It answers as PutIdentity does, and its faults are the same; the limits are those of the traits after the change.
func (s *Service) PatchIdentity(ctx context.Context, call Call, name string, set map[string]string, removed []string) (IdentityReceipt, error) {
	if err := errors.Join(identity.CheckTraits(nil, set), identity.CheckRemoved(len(removed))); err != nil {
		return IdentityReceipt{}, err
	}
	var receipt IdentityReceipt
	patch := identity.Patch{Set: set, Removed: removed}
	done, err := s.changeIdentity(ctx, call, name, func(ctx context.Context, o owner, standing *identity.Record) (event.Event, error) {
		var before map[string]string
		if standing != nil {
			var err error
			if big := standing.Traits.Blob; big != nil {
				if err := allowance.Reserve(ctx, patchCopies*big.Size); err != nil {
					return nil, err
				}
			}
			if before, err = s.Log.traitsOf(ctx, standing.Traits); err != nil {
				return nil, err
			}
		}
		traits := patch.Apply(before)
		if err := identity.CheckTraits(before, traits); err != nil {
			return nil, err
		}
		placed, err := s.Log.placeTraits(ctx, o, traits)
		if err != nil {
			return nil, err
		}
		placedPatch, err := s.Log.placePatch(ctx, o, patch)
		if err != nil {
			return nil, err
		}
		record := identity.Replace(standing, name, placed, identity.OriginAPI, call.ReceivedAt)
		receipt = receiptOf(o.identity, record, traits)
		return identity.TraitsMerged{ProjectID: o.project, Patch: placedPatch, Record: record}, nil
	})
	if err != nil {
		return IdentityReceipt{}, err
	}
	return receipt, visible(ctx, s.Waiter, done.Position, projectionDirectory)
}

// patchCopies is how often the traits of a record are in memory while it is patched and answered.
const patchCopies = 4

// DeleteIdentity removes a record and with it its membership in every audience; what it sent stays. It answers once recall follows
// it. Its fault is not-found.
func (s *Service) DeleteIdentity(ctx context.Context, call Call, name string) error {
	id := stream.IdentityID(call.Principal.Project.Namespace, name)
	// Whatever comes of the append: where nobody knows whether it happened, the record may be gone.
	defer s.authors.forget(id)
	done, err := s.changeIdentity(ctx, call, name, func(_ context.Context, o owner, standing *identity.Record) (event.Event, error) {
		if standing == nil {
			return nil, fault.New(fault.NotFound, fault.CodeNotFound, "the project has no identity %q", name)
		}
		return identity.Removed{ProjectID: o.project, RequestID: call.RequestID, RemovedAt: call.ReceivedAt}, nil
	})
	if err != nil {
		return err
	}
	if err := visible(ctx, s.Waiter, done.Position, projectionDirectory); err != nil {
		return err
	}
	// The removal is done; that its text goes as well is the finisher's where it does not succeed here, and that it goes from the disk always.
	cutCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fanOutTimeout)
	defer cancel()
	removal := todo.Removal{ProjectID: call.Principal.Project.ID, IdentityID: id, Revision: done.Revision, RemovedAt: call.ReceivedAt, Position: done.Position}
	if err := s.Log.CutIdentity(cutCtx, s.Directory, removal, call.ReceivedAt); err != nil {
		s.Log.Logger.WarnContext(ctx, "the text of a removed identity is left to the finisher", "identity", id, "err", err)
	}
	return nil
}

// decideIdentity makes the event of a change, from the record that stands; nil for none.
type decideIdentity func(ctx context.Context, o owner, standing *identity.Record) (event.Event, error)

// changeIdentity decides on the record as it stands with every bulk write that is known to be committed, and appends.
func (s *Service) changeIdentity(ctx context.Context, call Call, name string, decide decideIdentity) (eventstore.Appended, error) {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	project := call.Principal.Project
	id := stream.IdentityID(project.Namespace, name)
	streamName := stream.Name(stream.Identity, id)
	release, err := s.Log.Serialize(ctx, streamName)
	if err != nil {
		return eventstore.Appended{}, unavailable(err)
	}
	defer release()
	if err := s.Log.completeRows(ctx, s.Directory, project, []uuid.UUID{id}, call.ReceivedAt); err != nil {
		return eventstore.Appended{}, err
	}
	for {
		standing, at, err := s.Log.standing(ctx, streamName)
		if err != nil {
			return eventstore.Appended{}, err
		}
		meta := call.meta(uuid.New())
		o := owner{
			project: project.ID, identity: id, deadline: call.ReceivedAt.Add(BlobKeep), meta: meta, blobs: &written{},
		}
		e, err := decide(ctx, o, standing)
		if err != nil {
			return eventstore.Appended{}, err
		}
		done, err := s.Log.appendReferring(ctx, o.blobs, streamName, at, meta, e)
		if !errors.Is(err, eventstore.ErrConflict) {
			return done, err
		}
	}
}

func receiptOf(id uuid.UUID, r identity.Record, traits map[string]string) IdentityReceipt {
	if traits == nil {
		traits = map[string]string{}
	}
	return IdentityReceipt{ID: id, Identity: r.Identity, Traits: traits, Origin: r.Origin, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
}
