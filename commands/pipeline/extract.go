package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/work"
)

// extraction is what an attempt extracted, with the time of the revision.
type extraction struct {
	memories   []memory.Memory
	occurredAt time.Time
}

// extract reads the revision and passes it, and nothing else, to the extractor. A panic is an error
// of the attempt.
func (w *Worker) extract(ctx context.Context, item work.Item) (found extraction, err error) {
	defer panics.Recover(ctx, w.Logger, &err, "extractor panicked",
		"data_point", item.DataPoint, "revision", item.Revision)
	text := item.Text
	if text == nil {
		if text, err = w.read(ctx, item); err != nil {
			return extraction{}, err
		}
	}
	if !indexable(text.Content) {
		return extraction{}, &Failure{Code: ingestion.ContentRejected, Message: "the text holds nothing to index"}
	}
	memories, err := w.Extractor.Extract(ctx, comprehend.Input{
		DataPoint: item.DataPoint, Revision: item.Revision, Content: text.Content, Metadata: text.Metadata,
		Label: text.Label, Author: text.Author, OccurredAt: text.OccurredAt,
	})
	return extraction{memories: memories, occurredAt: text.OccurredAt}, err
}

// read reads the text of the item's revision from the stream of the data point.
func (w *Worker) read(ctx context.Context, item work.Item) (*work.Text, error) {
	accepted, err := w.revision(ctx, item)
	if err != nil {
		return nil, err
	}
	content, err := w.text(ctx, &accepted.Content)
	if err != nil {
		return nil, err
	}
	metadata, err := w.text(ctx, accepted.Metadata)
	if err != nil {
		return nil, err
	}
	text := &work.Text{
		Content: content, Metadata: json.RawMessage(metadata), Author: accepted.Author,
		OccurredAt: accepted.Effect.OccurredAt,
	}
	if accepted.Effect.Label != nil {
		text.Label = *accepted.Effect.Label
	}
	return text, nil
}

// revision finds the event of the item's revision. It reads from the end of the stream, where the
// event nearly always is.
func (w *Worker) revision(ctx context.Context, item work.Item) (*datapoint.RevisionAccepted, error) {
	const page = 32
	from := eventstore.EndOfStream
	for {
		name := stream.Name(stream.DataPoint, item.DataPoint)
		events, err := w.Journal.Read(ctx, name, from, eventstore.Backwards, page)
		if err != nil {
			return nil, err
		}
		for _, f := range events {
			if accepted, ok := f.Event.(*datapoint.RevisionAccepted); ok && accepted.Effect.Revision == item.Revision {
				return accepted, nil
			}
		}
		if len(events) < page {
			return nil, fmt.Errorf("revision %d of data point %s is not in its stream", item.Revision, item.DataPoint)
		}
		from = events[len(events)-1].Revision - 1
	}
}

// text reads a text of the revision, from its blob if it has one. A missing blob fails the send, not
// the worker.
func (w *Worker) text(ctx context.Context, t *datapoint.Text) (string, error) {
	if t == nil {
		return "", nil
	}
	if t.Blob == nil {
		return t.Inline, nil
	}
	data, err := w.Journal.ReadBlob(ctx, *t.Blob)
	if _, damaged := errors.AsType[*eventstore.BlobError](err); damaged {
		w.Logger.ErrorContext(ctx, "blob is missing or damaged, the send fails", "stream", t.Blob.Stream, "err", err)
		return "", &Failure{Code: ingestion.Internal, Message: "the stored text cannot be read"}
	}
	return string(data), err
}

// derived makes the event of an extraction. It first writes a long list of memories to a blob.
func (w *Worker) derived(
	ctx context.Context, item work.Item, read extraction, meta event.Meta,
) (memory.Derived, error) {
	e := memory.Derived{
		ProjectID: item.ProjectID, IngestionID: item.IngestionID, Ordinal: item.Ordinal, Revision: item.Revision,
		Extractor: w.Extractor.Name(), DerivedAt: w.Now(), OccurredAt: read.occurredAt,
	}
	encoded, err := memory.Encode(read.memories)
	if err != nil {
		return e, err
	}
	if len(encoded) <= blob.InlineLimit {
		e.Memories = read.memories
		return e, nil
	}
	deadline := w.Now().Add(blob.Keep)
	ref, err := w.Journal.WriteBlob(ctx, item.DataPoint, meta.CommandID, item.ProjectID, deadline, meta, encoded)
	if err != nil {
		return e, err
	}
	e.Blob = &ref
	return e, nil
}

// indexable reports whether a text has anything that a search can find.
func indexable(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsSymbol(r)
	})
}
