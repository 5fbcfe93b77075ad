package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// currentRecord reads the record in a stream and the last revision of the stream. The record is nil
// if there is none, or it was removed.
func (l *Journal) currentRecord(ctx context.Context, name string) (*identity.Record, eventstore.Revision, error) {
	last, ok, err := l.Last(ctx, name)
	if err != nil || !ok {
		return nil, last.Revision, err
	}
	record, err := l.recordAt(ctx, last)
	return record, last.Revision, err
}

// recordAt returns the record after an event of its stream, which may refer to the events before
// it.
func (l *Journal) recordAt(ctx context.Context, f eventstore.DecodedEvent) (*identity.Record, error) {
	const page = 8
	unread := []event.Event{f.Event} // newest first
	for at := f.Revision; at > 0 && !identity.IsSelfContained(unread[len(unread)-1]); {
		events, err := l.Read(ctx, f.Stream, at-1, eventstore.Backwards, page)
		if err != nil {
			return nil, unavailable(err)
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
func (l *Journal) traitsOf(ctx context.Context, t identity.Traits) (map[string]string, error) {
	if t.Blob == nil {
		if t.Inline == nil {
			return map[string]string{}, nil
		}
		return t.Inline, nil
	}
	data, err := l.ReadBlob(ctx, *t.Blob)
	if err != nil {
		return nil, unavailable(err)
	}
	traits := map[string]string{}
	if err := json.Unmarshal(data, &traits); err != nil {
		return nil, &eventstore.BlobError{Stream: t.Blob.Stream, Detail: err.Error()}
	}
	return traits, nil
}

// patchOf reads a patch, also from a blob.
func (l *Journal) patchOf(ctx context.Context, p identity.Patch) (identity.Patch, error) {
	if p.Blob == nil {
		return p, nil
	}
	data, err := l.ReadBlob(ctx, *p.Blob)
	if err != nil {
		return p, unavailable(err)
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
	blobs             *written
}

// externalizeTraits returns traits for an event: inline or, if they are too big, in a blob of the
// record.
func (l *Journal) externalizeTraits(ctx context.Context, o owner, traits map[string]string) (identity.Traits, error) {
	if len(traits) == 0 {
		return identity.Traits{}, nil
	}
	text, err := json.Marshal(traits)
	if err != nil {
		return identity.Traits{}, err
	}
	if len(text) <= inlineBody {
		return identity.Traits{Inline: traits}, nil
	}
	ref, err := l.identityBlob(ctx, o, text)
	return identity.Traits{Blob: ref}, err
}

// externalizePatch is externalizeTraits for a patch.
func (l *Journal) externalizePatch(ctx context.Context, o owner, p identity.Patch) (identity.Patch, error) {
	changes := make(map[string]*string, len(p.Set)+len(p.Removed))
	for key, value := range p.Set {
		changes[key] = &value
	}
	for _, key := range p.Removed {
		changes[key] = nil
	}
	text, err := json.Marshal(changes)
	if err != nil || len(text) <= inlineBody {
		return p, err
	}
	ref, err := l.identityBlob(ctx, o, text)
	return identity.Patch{Blob: ref}, err
}

// identityBlob writes text of a record to a new blob: another decision has another text.
func (l *Journal) identityBlob(ctx context.Context, o owner, text []byte) (*blob.Ref, error) {
	ref, err := l.writeBlob(ctx, o.blobs, o.identity, uuid.New(), o.project, o.deadline, o.meta, text)
	if err != nil {
		return nil, fmt.Errorf("write blob: %w", unavailable(err))
	}
	return &ref, nil
}

// ensureIdentityIn creates a record without traits, unless there is one.
func (l *Journal) ensureIdentityIn(
	ctx context.Context, call Call, id uuid.UUID, name string, origin identity.Origin,
) error {
	streamName := stream.Name(stream.Identity, id)
	return untilNoConflict(ctx, nil, func(bool) error {
		record, at, err := l.currentRecord(ctx, streamName)
		if err != nil || record != nil {
			return err
		}
		appeared := identity.Appeared{
			ProjectID: call.Principal.Project.ID, Identity: name, Origin: origin, AppearedAt: call.ReceivedAt,
		}
		_, err = l.Append(ctx, streamName, at, call.newMeta(), appeared)
		return err
	})
}
