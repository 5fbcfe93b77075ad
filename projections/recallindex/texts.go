package recallindex

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/eventstore"
)

// Texts reads customer text from the event log. eventstore.Journal implements it.
type Texts interface {
	// At reads the event at one revision of a stream. ok is false if there is no such event.
	At(ctx context.Context, stream string, at eventstore.Revision) (e eventstore.DecodedEvent, ok bool, err error)
	eventstore.BlobReader
}

// eventAt reads the event at one revision of a stream. It returns nil if there is no such event, or
// the stream was tombstoned.
func (p *Projector) eventAt(ctx context.Context, name string, at eventstore.Revision) (event.Event, error) {
	found, _, err := p.texts.At(ctx, name, at)
	if errors.Is(err, eventstore.ErrDeleted) {
		return nil, nil //nolint:nilnil // no event
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return found.Event, nil
}

// blob reads a whole blob. ok is false if it is gone or damaged.
func (p *Projector) blob(ctx context.Context, ref blob.Ref) (data []byte, ok bool, err error) {
	data, err = p.texts.ReadBlob(ctx, ref)
	if _, lost := errors.AsType[*eventstore.BlobError](err); lost {
		return nil, false, nil
	}
	return data, err == nil, err
}

// textSize returns the bytes of text that an event brings.
func textSize(e event.Event) int64 {
	switch e := e.(type) {
	case *datapoint.RevisionAccepted:
		if e.Content.Blob != nil {
			return e.Content.Blob.Size
		}
		return int64(len(e.Content.Inline))
	case *memory.Derived:
		if e.Blob != nil {
			return e.Blob.Size
		}
		var size int64
		for _, m := range e.Memories {
			size += int64(len(m.Content))
		}
		return size
	}
	return 0
}

// content returns the text of a revision. ok is false if it was erased.
func (p *Projector) content(
	ctx context.Context, id uuid.UUID, e *datapoint.RevisionAccepted,
) (content string, ok bool, err error) {
	if e.Content.Blob == nil {
		return e.Content.Inline, true, nil
	}
	data, ok, err := p.blob(ctx, *e.Content.Blob)
	if err == nil && !ok {
		p.log.WarnContext(ctx, "content of a revision is missing, it is not indexed", "data_point", id, "revision",
			e.Effect.Revision, "blob", e.Content.Blob.Stream)
	}
	return string(data), ok, err
}

// memories returns what was derived from a revision; nothing if it was erased.
func (p *Projector) memories(ctx context.Context, id uuid.UUID, e *memory.Derived) ([]memory.Memory, error) {
	if e.Blob == nil {
		return e.Memories, nil
	}
	data, ok, err := p.blob(ctx, *e.Blob)
	if err != nil {
		return nil, err
	}
	if !ok {
		p.log.WarnContext(ctx, "memories of a revision are missing, they are not indexed", "data_point", id, "revision",
			e.Revision, "blob", e.Blob.Stream)
		return nil, nil
	}
	memories, err := memory.Decode(data)
	if err != nil {
		p.log.WarnContext(ctx, "memories of a revision are unreadable, they are not indexed", "data_point", id, "revision",
			e.Revision, "blob", e.Blob.Stream)
		return nil, nil
	}
	return memories, nil
}
