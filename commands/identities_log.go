package commands

import (
	"context"
	"encoding/json"
	"errors"
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

// standing reads the directory record that a stream holds and the last revision of the stream; the record is nil where there is none,
// or none any more.
func (l *Log) standing(ctx context.Context, name string) (*identity.Record, eventstore.Revision, error) {
	last, ok, err := l.Last(ctx, name)
	if err != nil || !ok {
		return nil, eventstore.NoStream, err
	}
	record, err := l.recordAt(ctx, last)
	return record, last.Revision, err
}

// recordAt is the record as it stands behind an event of its stream, which says so itself or leaves it to those before it.
func (l *Log) recordAt(ctx context.Context, f eventstore.Fact) (*identity.Record, error) {
	const page = 8
	behind := []event.Event{f.Event} // newest first
	for at := f.Revision; at > 0 && !identity.Settles(behind[len(behind)-1]); {
		records, err := l.Store.Read(ctx, f.Stream, at-1, eventstore.Backwards, page)
		if err != nil {
			return nil, unavailable(err)
		}
		if len(records) == 0 {
			break // the rest is cut off
		}
		for _, r := range records {
			before := l.Codec.Fact(r)
			if err := sound(before); err != nil {
				return nil, err
			}
			behind, at = append(behind, before.Event), r.Revision
			if identity.Settles(before.Event) {
				break
			}
		}
	}
	var record *identity.Record
	for _, e := range slices.Backward(behind) {
		record = identity.Evolve(record, e)
	}
	return record, nil
}

// traitsOf reads the traits of a record, also those in a blob. It is never nil.
func (l *Log) traitsOf(ctx context.Context, t identity.Traits) (map[string]string, error) {
	if t.Blob == nil {
		if t.Inline == nil {
			return map[string]string{}, nil
		}
		return t.Inline, nil
	}
	data, err := eventstore.ReadBlob(ctx, l.Store, l.Codec, *t.Blob)
	if err != nil {
		return nil, unavailable(err)
	}
	traits := map[string]string{}
	if err := json.Unmarshal(data, &traits); err != nil {
		return nil, &eventstore.BlobError{Stream: t.Blob.Stream, Detail: err.Error()}
	}
	return traits, nil
}

// patchOf reads a patch, also one in a blob.
func (l *Log) patchOf(ctx context.Context, p identity.Patch) (identity.Patch, error) {
	if p.Blob == nil {
		return p, nil
	}
	data, err := eventstore.ReadBlob(ctx, l.Store, l.Codec, *p.Blob)
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

// owner is whose blobs a directory record's text goes to, and until when one is kept that nothing refers to.
type owner struct {
	project, identity uuid.UUID
	deadline          time.Time
	meta              event.Meta
	blobs             *written
}

// placeTraits decides whether traits stand in the event, and else writes them to a blob of the record.
func (l *Log) placeTraits(ctx context.Context, o owner, traits map[string]string) (identity.Traits, error) {
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

// placePatch is placeTraits of a patch.
func (l *Log) placePatch(ctx context.Context, o owner, p identity.Patch) (identity.Patch, error) {
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

// identityBlob writes text of a record to a blob of its own: what is decided again is another text.
func (l *Log) identityBlob(ctx context.Context, o owner, text []byte) (*blob.Ref, error) {
	ref, err := l.writeBlob(ctx, o.blobs, o.identity, uuid.New(), o.project, o.deadline, o.meta, text)
	if err != nil {
		return nil, fmt.Errorf("write blob: %w", unavailable(err))
	}
	return &ref, nil
}

// appearIn makes a record without traits in a stream that holds none; one that is there stays as it is.
func (l *Log) appearIn(ctx context.Context, call Call, id uuid.UUID, name string, origin identity.Origin) error {
	streamName := stream.Name(stream.Identity, id)
	for {
		record, at, err := l.standing(ctx, streamName)
		if err != nil || record != nil {
			return err
		}
		appeared := identity.Appeared{ProjectID: call.Principal.Project.ID, Identity: name, Origin: origin, AppearedAt: call.ReceivedAt}
		_, err = l.Append(ctx, streamName, at, call.meta(uuid.New()), appeared)
		if !errors.Is(err, eventstore.ErrConflict) {
			return err
		}
	}
}
