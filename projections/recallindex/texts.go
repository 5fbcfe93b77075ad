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

// Texts reads customer text where the log keeps it.
type Texts interface {
	// Event reads one event of a stream. ok is false where it is not there any more.
	Event(ctx context.Context, stream string, at eventstore.Revision) (e event.Event, ok bool, err error)
	// Blob reads a blob whole. ok is false where it is gone, or is not what it was.
	Blob(ctx context.Context, ref blob.Ref) (data []byte, ok bool, err error)
}

// Log implements Texts on an event store.
type Log struct {
	Store eventstore.Store
	Codec *eventstore.Codec
}

// Event implements Texts.
func (l Log) Event(ctx context.Context, name string, at eventstore.Revision) (event.Event, bool, error) {
	found, err := l.Store.Read(ctx, name, at, eventstore.Forwards, 1)
	if errors.Is(err, eventstore.ErrDeleted) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", name, err)
	}
	if len(found) == 0 || found[0].Revision != at {
		return nil, false, nil
	}
	e, err := l.Codec.Decode(found[0])
	if err != nil {
		return nil, false, err
	}
	return e, true, nil
}

// Blob implements Texts.
func (l Log) Blob(ctx context.Context, ref blob.Ref) ([]byte, bool, error) {
	data, err := eventstore.ReadBlob(ctx, l.Store, l.Codec, ref)
	if _, lost := errors.AsType[*eventstore.BlobError](err); lost {
		return nil, false, nil
	}
	return data, err == nil, err
}

// textSize is how many bytes of text an event brings.
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

// content is the text of a revision. ok is false where it was erased.
func (p *Projector) content(ctx context.Context, id uuid.UUID, e *datapoint.RevisionAccepted) (content string, ok bool, err error) {
	if e.Content.Blob == nil {
		return e.Content.Inline, true, nil
	}
	data, ok, err := p.texts.Blob(ctx, *e.Content.Blob)
	if err == nil && !ok {
		p.log.WarnContext(ctx, "content of a revision is missing", "data_point", id, "revision", e.Effect.Revision, "blob", e.Content.Blob.Stream)
	}
	return string(data), ok, err
}

// memories are what was derived from a revision; none where they were erased.
func (p *Projector) memories(ctx context.Context, id uuid.UUID, e *memory.Derived) ([]memory.Memory, error) {
	if e.Blob == nil {
		return e.Memories, nil
	}
	data, ok, err := p.texts.Blob(ctx, *e.Blob)
	if err != nil {
		return nil, err
	}
	if !ok {
		p.log.WarnContext(ctx, "memories of a revision are missing", "data_point", id, "revision", e.Revision, "blob", e.Blob.Stream)
		return nil, nil
	}
	memories, err := memory.Decode(data)
	if err != nil {
		p.log.WarnContext(ctx, "memories of a revision are unreadable", "data_point", id, "revision", e.Revision, "blob", e.Blob.Stream)
		return nil, nil
	}
	return memories, nil
}
