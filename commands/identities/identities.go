package identities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
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
	call engine.Call,
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
			placed, err := externalizeTraits(ctx, s.journal, o, traits)
			if err != nil {
				return nil, err
			}
			record := identity.Replace(current, name, placed, call.IdentityOrigin(), call.ReceivedAt)
			receipt = receiptOf(o.identity, record, traits)
			return identity.TraitsReplaced{ProjectID: o.project, Record: record}, nil
		},
	)
	if err != nil {
		return IdentityReceipt{}, err
	}
	return receipt, engine.WaitVisible(ctx, s.waiter, done.Position, projection.Directory)
}

// PatchIdentity changes some traits of a record, and creates the record if there is none. It sets
// the traits of set and removes those of removed; no key is in both. Otherwise it is as
// PutIdentity, with the limits applied to the traits after the change.
func (s *Service) PatchIdentity(
	ctx context.Context, call engine.Call, name string, set map[string]string, removed []string,
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
				if before, err = traitsOf(ctx, s.journal, current.Traits); err != nil {
					return nil, err
				}
			}
			traits := patch.Apply(before)
			if err := identity.CheckTraits(before, traits); err != nil {
				return nil, err
			}
			placed, err := externalizeTraits(ctx, s.journal, o, traits)
			if err != nil {
				return nil, err
			}
			placedPatch, err := externalizePatch(ctx, s.journal, o, patch)
			if err != nil {
				return nil, err
			}
			record := identity.Replace(current, name, placed, call.IdentityOrigin(), call.ReceivedAt)
			receipt = receiptOf(o.identity, record, traits)
			return identity.TraitsMerged{ProjectID: o.project, Patch: placedPatch, Record: record}, nil
		},
	)
	if err != nil {
		return IdentityReceipt{}, err
	}
	return receipt, engine.WaitVisible(ctx, s.waiter, done.Position, projection.Directory)
}

// patchCopies is how many copies of the traits are in memory while a record is patched and
// answered.
const patchCopies = 4

// DeleteIdentity removes a record and its membership in every audience. Its data points stay. It
// returns once recall shows the change. Its fault is not-found.
func (s *Service) DeleteIdentity(ctx context.Context, call engine.Call, name string) error {
	id := stream.IdentityID(call.Principal.Project.Namespace, name)
	// Forget the author even if the outcome is unknown.
	defer s.Authors.forget(id)
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
		return engine.RefuseRemovalFrom(ctx, s.journal, s.waiter, err, stream.Name(stream.Identity, id), projection.Directory)
	}
	if err := engine.WaitVisible(ctx, s.waiter, done.Position, projection.Directory); err != nil {
		return err
	}
	if err := s.truncateIdentity(ctx, call, id, done); err != nil {
		s.journal.Logger.WarnContext(ctx, "truncate of removed identity failed, the finisher will retry", "identity", id,
			"err", err)
	}
	return nil
}

// truncateIdentity truncates the text of a removed identity. The finisher purges it from the disk.
func (s *Service) truncateIdentity(
	ctx context.Context, call engine.Call, id uuid.UUID, removed eventstore.Appended,
) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.FanOutTimeout)
	defer cancel()
	project := call.Principal.Project
	owner, ids := auth.Project{ID: project.ID}, []uuid.UUID{id}
	if err := fanOutRows(ctx, s.journal, s.directory, owner, ids, call.ReceivedAt); err != nil {
		return err
	}
	return erasure.On(s.journal, s.journal.Now).TruncateIdentity(ctx, work.Removal{
		ProjectID: project.ID, IdentityID: id, Revision: removed.Revision, RemovedAt: call.ReceivedAt,
		Position: removed.Position,
	})
}

// decideIdentity makes the event of a change from the current record, nil for none.
type decideIdentity func(ctx context.Context, o owner, current *identity.Record) (event.Event, error)

// changeIdentity decides on the current record, after the rows of every committed bulk write that
// is known, and appends.
func (s *Service) changeIdentity(
	ctx context.Context, call engine.Call, name string, decide decideIdentity,
) (eventstore.Appended, error) {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	project := call.Principal.Project
	id := stream.IdentityID(project.Namespace, name)
	streamName := stream.Name(stream.Identity, id)
	release, err := s.journal.Serialize(ctx, streamName)
	if err != nil {
		return eventstore.Appended{}, engine.Unavailable(err)
	}
	defer release()
	if err := fanOutRows(ctx, s.journal, s.directory, project, []uuid.UUID{id}, call.ReceivedAt); err != nil {
		return eventstore.Appended{}, err
	}
	var done eventstore.Appended
	err = engine.UntilNoConflict(ctx, nil, func(bool) error {
		current, at, err := currentRecord(ctx, s.journal, streamName)
		if err != nil {
			return err
		}
		meta := call.NewMeta()
		o := owner{
			project: project.ID, identity: id, deadline: call.ReceivedAt.Add(blob.Keep), meta: meta, blobs: &engine.Written{},
		}
		e, err := decide(ctx, o, current)
		if err != nil {
			return err
		}
		done, err = s.journal.AppendReferring(ctx, o.blobs, streamName, at, meta, e)
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

// currentRecord reads the record in a stream and the last revision of the stream. The record is nil
// if there is none, or it was removed.
func currentRecord(ctx context.Context, l *engine.Journal, name string) (*identity.Record, eventstore.Revision, error) {
	last, ok, err := l.Last(ctx, name)
	if err != nil || !ok {
		return nil, last.Revision, err
	}
	record, err := recordAt(ctx, l, last)
	return record, last.Revision, err
}

// recordAt returns the record after an event of its stream, which may refer to the events before
// it.
func recordAt(ctx context.Context, l *engine.Journal, f eventstore.DecodedEvent) (*identity.Record, error) {
	const page = 8
	unread := []event.Event{f.Event} // newest first
	for at := f.Revision; at > 0 && !identity.IsSelfContained(unread[len(unread)-1]); {
		events, err := l.Read(ctx, f.Stream, at-1, eventstore.Backwards, page)
		if err != nil {
			return nil, engine.Unavailable(err)
		}
		if len(events) == 0 {
			break // the earlier ones are truncated
		}
		for _, before := range events {
			if at = before.Revision; before.Position >= f.Position { // f was the last that is not passed over
				continue
			}
			unread = append(unread, before.Event)
			if identity.IsSelfContained(before.Event) {
				break
			}
		}
	}
	var record *identity.Record
	for _, e := range slices.Backward(unread) {
		record = identity.Evolve(record, e)
	}
	return record, nil
}

// traitsOf reads the traits of a record, also from a blob. The result is never nil.
func traitsOf(ctx context.Context, l *engine.Journal, t identity.Traits) (map[string]string, error) {
	if t.Blob == nil {
		if t.Inline == nil {
			return map[string]string{}, nil
		}
		return t.Inline, nil
	}
	data, err := l.ReadBlob(ctx, *t.Blob)
	if err != nil {
		return nil, engine.Unavailable(err)
	}
	traits := map[string]string{}
	if err := json.Unmarshal(data, &traits); err != nil {
		return nil, &eventstore.BlobError{Stream: t.Blob.Stream, Detail: err.Error()}
	}
	return traits, nil
}

// patchOf reads a patch, also from a blob.
func patchOf(ctx context.Context, l *engine.Journal, p identity.Patch) (identity.Patch, error) {
	if p.Blob == nil {
		return p, nil
	}
	data, err := l.ReadBlob(ctx, *p.Blob)
	if err != nil {
		return p, engine.Unavailable(err)
	}
	var changes map[string]*string
	if err := json.Unmarshal(data, &changes); err != nil {
		return p, &eventstore.BlobError{Stream: p.Blob.Stream, Detail: err.Error()}
	}
	read := identity.Patch{Set: map[string]string{}}
	for key, value := range changes {
		if value == nil {
			read.Removed = append(read.Removed, key)
		} else {
			read.Set[key] = *value
		}
	}
	return read, nil
}

// owner is the record that owns a blob, and until when the blob is retained without a reference.
type owner struct {
	project, identity uuid.UUID
	deadline          time.Time
	meta              event.Meta
	blobs             *engine.Written
}

// externalizeTraits returns traits for an event: inline or, if they are too big, in a blob of the
// record.
func externalizeTraits(
	ctx context.Context, l *engine.Journal, o owner, traits map[string]string,
) (identity.Traits, error) {
	if len(traits) == 0 {
		return identity.Traits{}, nil
	}
	text, err := json.Marshal(traits)
	if err != nil {
		return identity.Traits{}, err
	}
	if len(text) <= engine.InlineBody {
		return identity.Traits{Inline: traits}, nil
	}
	ref, err := identityBlob(ctx, l, o, text)
	return identity.Traits{Blob: ref}, err
}

// externalizePatch is externalizeTraits for a patch.
func externalizePatch(ctx context.Context, l *engine.Journal, o owner, p identity.Patch) (identity.Patch, error) {
	changes := make(map[string]*string, len(p.Set)+len(p.Removed))
	for key, value := range p.Set {
		changes[key] = &value
	}
	for _, key := range p.Removed {
		changes[key] = nil
	}
	text, err := json.Marshal(changes)
	if err != nil || len(text) <= engine.InlineBody {
		return p, err
	}
	ref, err := identityBlob(ctx, l, o, text)
	return identity.Patch{Blob: ref}, err
}

// identityBlob writes text of a record to a new blob: another decision has another text.
func identityBlob(ctx context.Context, l *engine.Journal, o owner, text []byte) (*blob.Ref, error) {
	ref, err := l.StoreBlob(ctx, o.blobs, o.identity, uuid.New(), o.project, o.deadline, o.meta, text)
	if err != nil {
		return nil, fmt.Errorf("write blob: %w", engine.Unavailable(err))
	}
	return &ref, nil
}

// ensureIdentityIn creates a record without traits, unless there is one.
func ensureIdentityIn(
	ctx context.Context, l *engine.Journal, call engine.Call, id uuid.UUID, name string, origin identity.Origin,
) error {
	streamName := stream.Name(stream.Identity, id)
	return engine.UntilNoConflict(ctx, nil, func(bool) error {
		record, at, err := currentRecord(ctx, l, streamName)
		if err != nil || record != nil {
			return err
		}
		appeared := identity.Appeared{
			ProjectID: call.Principal.Project.ID, Identity: name, Origin: origin, AppearedAt: call.ReceivedAt,
		}
		_, err = l.Append(ctx, streamName, at, call.NewMeta(), appeared)
		return err
	})
}
