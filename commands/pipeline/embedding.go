package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/todo"
)

const (
	// maxPassages is how many passages of a revision are embedded; a longer text gives evenly spread ones.
	maxPassages = 2048
	// partVectors bounds the bytes of codes in one event: as base64, with all else, they stay below blob.InlineLimit.
	partVectors = 128 << 10
	// vectorOverhead is about what a vector takes beside its code.
	vectorOverhead = 128
)

// embedding is a revision whose passages and memories are to be embedded.
type embedding struct {
	todo.Embedding
	// at is the revision of the memory stream that the vectors follow on.
	at       eventstore.Revision
	passages []passage
}

// passage is a text to embed, with its vector, whose code is empty while there is none.
type passage struct {
	text   string
	vector memory.Vector
}

// prepare reads what is to be embedded. It is not due where there is nothing to do, or an attempt at another revision is under way.
func (e *Embedder) prepare(ctx context.Context, item todo.Embedding) (work *embedding, due bool, err error) {
	name := stream.Name(stream.Memory, item.DataPoint)
	last, ok, err := e.Log.Last(ctx, name)
	if errors.Is(err, eventstore.ErrDeleted) || err == nil && !ok {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	at := last.Revision
	if last, err = lastAttempt(ctx, e.Log, name, last); err != nil {
		return nil, false, err
	}
	derived, ok := last.Event.(*memory.Derived)
	if !ok || derived.Revision != item.Revision {
		return nil, false, nil
	}
	reader := &Worker{Log: e.Log, Logger: e.Logger}
	text, err := reader.read(ctx, todo.Item{ProjectID: item.ProjectID, DataPoint: item.DataPoint, Revision: item.Revision})
	var failure *Failure
	switch {
	case errors.Is(err, eventstore.ErrDeleted):
		return nil, false, nil
	case errors.As(err, &failure):
		text = &todo.Text{} // a damaged blob is logged, and has no vectors
	case err != nil:
		return nil, false, err
	}
	memories := derived.Memories
	if derived.Blob != nil {
		if memories, err = e.memories(ctx, derived); err != nil {
			return nil, false, err
		}
	}
	work = &embedding{Embedding: item, at: at}
	if e.panicked[item.DataPoint] < maxAttempts {
		work.add(text, memories)
	}
	return work, true, nil
}

// lastAttempt is the last event of a memory stream that is about an attempt, given the last of all.
func lastAttempt(ctx context.Context, log *commands.Log, name string, last eventstore.Fact) (eventstore.Fact, error) {
	for from := last.Revision - 1; ; {
		if _, vectors := last.Event.(*memory.Embedded); !vectors || from < 0 {
			return last, nil
		}
		const page = 8
		records, err := log.Store.Read(ctx, name, from, eventstore.Backwards, page)
		if err != nil || len(records) == 0 {
			return last, err
		}
		for _, r := range records {
			last = log.Codec.Fact(r)
			if last.Err != nil {
				return last, last.Err
			}
			if _, vectors := last.Event.(*memory.Embedded); !vectors {
				return last, nil
			}
		}
		from = last.Revision - 1
	}
}

// memories are those of a blob; none where it is lost.
func (e *Embedder) memories(ctx context.Context, derived *memory.Derived) ([]memory.Memory, error) {
	data, err := eventstore.ReadBlob(ctx, e.Log.Store, e.Log.Codec, *derived.Blob)
	if _, lost := errors.AsType[*eventstore.BlobError](err); lost {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return memory.Decode(data)
}

// add notes the texts of a revision: what was said, by whom or under which title, and when.
func (w *embedding) add(text *todo.Text, memories []memory.Memory) {
	head := text.Author
	if head == "" {
		head = text.Label
	}
	head = strings.TrimSpace(head+" ("+text.OccurredAt.UTC().Format("2 January 2006")+")") + ": "
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
	for i := range min(len(spans), maxPassages) {
		n := i * len(spans) / min(len(spans), maxPassages)
		note(text.Content[spans[n].Start:spans[n].End], memory.Vector{Passage: n})
	}
	for _, m := range memories {
		note(m.Content, memory.Vector{Memory: m.ID})
	}
}

// store appends the vectors behind what they were read from. It is 0 where something came between, or it was erased.
func (e *Embedder) store(ctx context.Context, work *embedding) (eventstore.Position, error) {
	parts, dims := [][]memory.Vector{nil}, 0
	size := 0
	for _, p := range work.passages {
		if p.vector.Code == nil {
			continue
		}
		if size += len(p.vector.Code) + vectorOverhead; size > partVectors {
			parts, size = append(parts, nil), len(p.vector.Code)+vectorOverhead
		}
		dims = len(p.vector.Code)
		parts[len(parts)-1] = append(parts[len(parts)-1], p.vector)
	}
	name := stream.Name(stream.Memory, work.DataPoint)
	at := work.at
	var last eventstore.Position
	for i, vectors := range parts {
		meta := event.Meta{CommandID: uuid.New(), Principal: "pipeline"}
		done, err := e.Log.Append(ctx, name, at, meta, memory.Embedded{
			ProjectID: work.ProjectID, Revision: work.Revision, Model: e.Vectors.Name(), Dims: dims, Part: i + 1, Parts: len(parts),
			Vectors: vectors, EmbeddedAt: e.Now(),
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
