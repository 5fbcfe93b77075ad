package commands

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

// Directory reads the identity directory for writes. It reads the primary, and fails with
// service-unavailable while the projection is stopped.
type Directory interface {
	// RecordHeads returns up to where it has applied the streams of known records, removed ones too,
	// and their current records.
	RecordHeads(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]work.RecordHead, error)
	// OpenBulks returns the committed bulk writes without a complete fan-out that contain a row of any
	// of the records.
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

// PutIdentity creates a record or replaces all of its traits. name, keys and values are within
// their limits. It returns once recall shows the change. Its faults are traits-invalid for too many
// or too big traits, and service-unavailable.
func (s *Service) PutIdentity(
	ctx context.Context,
	call Call,
	name string,
	traits map[string]string,
) (IdentityReceipt, error) {
	if err := identity.CheckTraits(nil, traits); err != nil {
		return IdentityReceipt{}, err
	}
	var receipt IdentityReceipt
	done, err := s.changeIdentity(
		ctx,
		call,
		name,
		func(ctx context.Context, o owner, current *identity.Record) (event.Event, error) {
			placed, err := s.journal.externalizeTraits(ctx, o, traits)
			if err != nil {
				return nil, err
			}
			record := identity.Replace(current, name, placed, call.origin(), call.ReceivedAt)
			receipt = receiptOf(o.identity, record, traits)
			return identity.TraitsReplaced{ProjectID: o.project, Record: record}, nil
		},
	)
	if err != nil {
		return IdentityReceipt{}, err
	}
	return receipt, waitVisible(ctx, s.waiter, done.Position, projection.Directory)
}

// PatchIdentity changes some traits of a record, and creates the record if there is none. It sets
// the traits of set and removes those of removed; no key is in both. Otherwise it is as
// PutIdentity, with the limits applied to the traits after the change.
func (s *Service) PatchIdentity(
	ctx context.Context, call Call, name string, set map[string]string, removed []string,
) (IdentityReceipt, error) {
	if err := errors.Join(identity.CheckTraits(nil, set), identity.CheckRemoved(len(removed))); err != nil {
		return IdentityReceipt{}, err
	}
	var receipt IdentityReceipt
	patch := identity.Patch{Set: set, Removed: removed}
	done, err := s.changeIdentity(
		ctx,
		call,
		name,
		func(ctx context.Context, o owner, current *identity.Record) (event.Event, error) {
			var before map[string]string
			if current != nil {
				var err error
				if big := current.Traits.Blob; big != nil {
					if err := allowance.Reserve(ctx, patchCopies*big.Size); err != nil {
						return nil, err
					}
				}
				if before, err = s.journal.traitsOf(ctx, current.Traits); err != nil {
					return nil, err
				}
			}
			traits := patch.Apply(before)
			if err := identity.CheckTraits(before, traits); err != nil {
				return nil, err
			}
			placed, err := s.journal.externalizeTraits(ctx, o, traits)
			if err != nil {
				return nil, err
			}
			placedPatch, err := s.journal.externalizePatch(ctx, o, patch)
			if err != nil {
				return nil, err
			}
			record := identity.Replace(current, name, placed, call.origin(), call.ReceivedAt)
			receipt = receiptOf(o.identity, record, traits)
			return identity.TraitsMerged{ProjectID: o.project, Patch: placedPatch, Record: record}, nil
		},
	)
	if err != nil {
		return IdentityReceipt{}, err
	}
	return receipt, waitVisible(ctx, s.waiter, done.Position, projection.Directory)
}

// patchCopies is how many copies of the traits are in memory while a record is patched and
// answered.
const patchCopies = 4

// DeleteIdentity removes a record and its membership in every audience. Its data points stay. It
// returns once recall shows the change. Its fault is not-found.
func (s *Service) DeleteIdentity(ctx context.Context, call Call, name string) error {
	id := stream.IdentityID(call.Principal.Project.Namespace, name)
	// Forget the author even if the outcome is unknown.
	defer s.authors.forget(id)
	done, err := s.changeIdentity(
		ctx,
		call,
		name,
		func(_ context.Context, o owner, current *identity.Record) (event.Event, error) {
			if current == nil {
				return nil, fault.New(fault.NotFound, fault.CodeNotFound, "the project has no identity %q", name)
			}
			return identity.Removed{ProjectID: o.project, RequestID: call.RequestID, RemovedAt: call.ReceivedAt}, nil
		},
	)
	if err != nil {
		return s.refuseRemovalFrom(ctx, err, stream.Name(stream.Identity, id), projection.Directory)
	}
	if err := waitVisible(ctx, s.waiter, done.Position, projection.Directory); err != nil {
		return err
	}
	if err := s.truncateIdentity(ctx, call, id, done); err != nil {
		s.journal.Logger.WarnContext(ctx, "truncate of removed identity failed, the finisher will retry", "identity", id,
			"err", err)
	}
	return nil
}

// truncateIdentity truncates the text of a removed identity. The finisher purges it from the disk.
func (s *Service) truncateIdentity(ctx context.Context, call Call, id uuid.UUID, removed eventstore.Appended) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fanOutTimeout)
	defer cancel()
	project := call.Principal.Project
	owner, ids := auth.Project{ID: project.ID}, []uuid.UUID{id}
	if err := s.journal.fanOutRows(ctx, s.directory, owner, ids, call.ReceivedAt); err != nil {
		return err
	}
	return s.journal.streams().TruncateIdentity(ctx, work.Removal{
		ProjectID: project.ID, IdentityID: id, Revision: removed.Revision, RemovedAt: call.ReceivedAt,
		Position: removed.Position,
	})
}

// decideIdentity makes the event of a change from the current record, nil for none.
type decideIdentity func(ctx context.Context, o owner, current *identity.Record) (event.Event, error)

// changeIdentity decides on the current record, after the rows of every committed bulk write that
// is known, and appends.
func (s *Service) changeIdentity(
	ctx context.Context, call Call, name string, decide decideIdentity,
) (eventstore.Appended, error) {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	project := call.Principal.Project
	id := stream.IdentityID(project.Namespace, name)
	streamName := stream.Name(stream.Identity, id)
	release, err := s.journal.Serialize(ctx, streamName)
	if err != nil {
		return eventstore.Appended{}, unavailable(err)
	}
	defer release()
	if err := s.journal.fanOutRows(ctx, s.directory, project, []uuid.UUID{id}, call.ReceivedAt); err != nil {
		return eventstore.Appended{}, err
	}
	var done eventstore.Appended
	err = untilNoConflict(ctx, nil, func(bool) error {
		current, at, err := s.journal.currentRecord(ctx, streamName)
		if err != nil {
			return err
		}
		meta := call.newMeta()
		o := owner{project: project.ID, identity: id, deadline: call.ReceivedAt.Add(blob.Keep), meta: meta, blobs: &written{}}
		e, err := decide(ctx, o, current)
		if err != nil {
			return err
		}
		done, err = s.journal.appendReferring(ctx, o.blobs, streamName, at, meta, e)
		return err
	})
	return done, err
}

func receiptOf(id uuid.UUID, r identity.Record, traits map[string]string) IdentityReceipt {
	if traits == nil {
		traits = map[string]string{}
	}
	return IdentityReceipt{
		ID: id, Identity: r.Identity, Traits: traits, Origin: r.Origin, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
}
