package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/work"
)

const (
	// partVectors bounds the bytes of codes in one event. As base64, with the rest of the event, they
	// stay below blob.InlineLimit.
	partVectors = 128 << 10
	// vectorOverhead is about how many bytes of an event a vector takes in addition to its code.
	vectorOverhead = 128
)

// embedding is a revision whose passages and memories are to be embedded.
type embedding struct {
	work.Embedding
	// at is the revision of the memory stream after which the vectors are appended.
	at       eventstore.Revision
	passages []passage
}

// passage is a text to embed, with its vector. The code of the vector is empty until it is embedded.
type passage struct {
	text   string
	vector memory.Vector
}

// prepare reads what is to be embedded. The item is not due if there is nothing to do, or if an
// attempt at another revision is in progress.
func (e *Embedder) prepare(
	ctx context.Context, item work.Embedding, by Vectors,
) (pending *embedding, due bool, err error) {
	name := stream.Name(stream.Memory, item.DataPoint)
	last, ok, err := e.Journal.Last(ctx, name)
	if errors.Is(err, eventstore.ErrDeleted) || err == nil && !ok {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	at := last.Revision
	if last, err = lastAttempt(ctx, e.Journal, name, last); err != nil {
		return nil, false, err
	}
	derived, ok := last.Event.(*memory.Derived)
	if !ok || derived.Revision != item.Revision {
		return nil, false, nil
	}
	reader := &Worker{Journal: e.Journal, Logger: e.Logger}
	text, err := reader.read(ctx, work.Item{ProjectID: item.ProjectID, DataPoint: item.DataPoint, Revision: item.Revision})
	var failure *Failure
	switch {
	case errors.Is(err, eventstore.ErrDeleted):
		return nil, false, nil
	case errors.As(err, &failure):
		text = &work.Text{} // a damaged blob is logged and gets no vectors
	case err != nil:
		return nil, false, err
	}
	memories := derived.Memories
	if !by.Memories() {
		memories = nil
	} else if derived.Blob != nil {
		if memories, err = e.memories(ctx, derived); err != nil {
			return nil, false, err
		}
	}
	pending = &embedding{Embedding: item, at: at}
	if e.panicked[item.DataPoint] < maxAttempts {
		pending.add(text, memories, by.Passages())
	}
	return pending, true, nil
}

// lastAttempt returns the last event of a memory stream that is about an attempt. last is the last
// event of the stream.
func lastAttempt(
	ctx context.Context, journal *commands.Journal, name string, last eventstore.DecodedEvent,
) (eventstore.DecodedEvent, error) {
	for from := last.Revision - 1; ; {
		if _, vectors := last.Event.(*memory.Embedded); !vectors || from < 0 {
			return last, nil
		}
		const page = 8
		events, err := journal.Read(ctx, name, from, eventstore.Backwards, page)
		if err != nil || len(events) == 0 {
			return last, err
		}
		for _, last = range events {
			if _, vectors := last.Event.(*memory.Embedded); !vectors && !last.IsPassedOver() {
				return last, nil
			}
		}
		from = last.Revision - 1
	}
}

// memories reads the memories of a revision from their blob. It returns none if the blob is lost.
func (e *Embedder) memories(ctx context.Context, derived *memory.Derived) ([]memory.Memory, error) {
	data, err := e.Journal.ReadBlob(ctx, *derived.Blob)
	if _, lost := errors.AsType[*eventstore.BlobError](err); lost {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return memory.Decode(data)
}

// add adds the texts of a revision. Each begins with the label. Author and time are left out: in a short text they are
// half of what the model reads, and are no part of what it states. If a text has more passages than most, those are
// evenly spread.
func (w *embedding) add(text *work.Text, memories []memory.Memory, most int) {
	head := text.Label
	if head != "" {
		head += ": "
	}
	note := func(body string, v memory.Vector) {
		if body = strings.TrimSpace(strings.ToValidUTF8(body, "")); body == "" {
			return
		}
		body = head + body
		sum := sha256.Sum256([]byte(body))
		v.Hash = hex.EncodeToString(sum[:])
		w.passages = append(w.passages, passage{text: body, vector: v})
	}
	var spans []recall.Span
	for span := range recall.Split(text.Content) {
		spans = append(spans, span)
	}
	for i := range min(len(spans), most) {
		n := i * len(spans) / min(len(spans), most)
		note(text.Content[spans[n].Start:spans[n].End], memory.Vector{Passage: n})
	}
	for _, m := range memories {
		note(m.Content, memory.Vector{Memory: m.ID})
	}
}

// store appends the vectors after the events that they were computed from. The position is 0 if
// another event was appended since, or the data point was erased.
func (e *Embedder) store(ctx context.Context, by Vectors, pending *embedding) (eventstore.Position, error) {
	parts, dims := [][]memory.Vector{nil}, 0
	size := 0
	for _, p := range pending.passages {
		if p.vector.Code == nil {
			continue
		}
		if size += len(p.vector.Code) + vectorOverhead; size > partVectors {
			parts, size = append(parts, nil), len(p.vector.Code)+vectorOverhead
		}
		dims = len(p.vector.Code)
		parts[len(parts)-1] = append(parts[len(parts)-1], p.vector)
	}
	name := stream.Name(stream.Memory, pending.DataPoint)
	at := pending.at
	var last eventstore.Position
	for i, vectors := range parts {
		now := e.Now()
		done, err := e.Journal.Append(ctx, name, at, event.NewMeta("pipeline", now), memory.Embedded{
			ProjectID: pending.ProjectID, Revision: pending.Revision, Model: by.Name(), Dims: dims,
			Part: i + 1, Parts: len(parts), Vectors: vectors, EmbeddedAt: now,
		})
		if errors.Is(err, eventstore.ErrConflict) || errors.Is(err, eventstore.ErrDeleted) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		at, last = done.Revision, done.Position
	}
	return last, nil
}
