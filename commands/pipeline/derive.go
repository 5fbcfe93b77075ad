package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/todo"
)

// derive makes one attempt at one item. The attempt is recorded before its work begins: whoever records it at the
// exact revision has the lock.
func (w *Worker) derive(ctx context.Context, item todo.Item) (result, error) {
	res := result{dataPoint: item.DataPoint}
	name := stream.Name(stream.Memory, item.DataPoint)
	meta := event.Meta{CommandID: uuid.New(), Principal: "pipeline", CorrelationID: item.IngestionID}

	at, attempt := eventstore.NoStream, 1
	// The first attempt at the first revision finds an empty stream; the append is refused where that is wrong.
	for look := item.Revision > 1 || item.Round > 0 || item.Attempt > 0; ; look = true {
		if look {
			last, ok, err := w.Log.Last(ctx, name)
			if errors.Is(err, eventstore.ErrDeleted) {
				return res, nil // erased meanwhile
			}
			if err != nil {
				return res, err
			}
			if ok {
				at = last.Revision
				if last, err = lastAttempt(ctx, w.Log, name, last); err != nil {
					return res, err
				}
				ended := false
				if attempt, ended = nextAttempt(last.Event, item); ended {
					res.position = last.Position // the queue lags; it will see
					return res, nil
				}
			}
		}
		if attempt > maxAttempts {
			// The process died in each attempt, so none of them could say why.
			failed := w.failed(item, maxAttempts, &Failure{Code: ingestion.Internal, Message: fmt.Sprintf("the work was cut off %d times", maxAttempts)})
			return w.end(ctx, res, name, at, meta, failed)
		}
		done, err := w.Log.Append(ctx, name, at, meta, memory.DerivationStarted{
			ProjectID: item.ProjectID, IngestionID: item.IngestionID, Ordinal: item.Ordinal, Revision: item.Revision,
			Attempt: attempt, Round: item.Round, StartedAt: w.Now(),
		})
		if errors.Is(err, eventstore.ErrConflict) && !look {
			meta.CommandID = uuid.New()
			continue
		}
		if errors.Is(err, eventstore.ErrConflict) || errors.Is(err, eventstore.ErrDeleted) {
			return res, nil // another worker was first, or it was erased
		}
		if err != nil {
			return res, err
		}
		res.position, at = done.Position, done.Revision
		break
	}
	meta.CommandID = uuid.New()

	derived, err := w.extract(ctx, item)
	if err == nil {
		e, err := w.derived(ctx, item, derived, meta)
		if err != nil {
			return res, err
		}
		return w.end(ctx, res, name, at, meta, e)
	}
	if ctx.Err() != nil || errors.Is(err, eventstore.ErrDeleted) {
		return res, nil // shutting down: the attempt is taken up again; or erased meanwhile
	}
	var failure *Failure
	if !errors.As(err, &failure) {
		w.Logger.ErrorContext(ctx, "derivation failed", "data_point", item.DataPoint, "revision", item.Revision, "attempt", attempt, "err", err)
		failure = &Failure{Code: ingestion.Internal, Message: "the work failed inside the service", Retryable: true}
	}
	failed := w.failed(item, attempt, failure)
	if !failed.Final && attempt > 1 {
		spent, err := w.spent(ctx, name, item)
		if errors.Is(err, eventstore.ErrDeleted) {
			return res, nil // erased meanwhile
		}
		if err != nil {
			return res, err
		}
		failed.Final = spent+firstBackoff<<(attempt-1) > lastStart
	}
	if !failed.Final {
		res.backoff = firstBackoff << (attempt - 1)
	}
	return w.end(ctx, res, name, at, meta, failed)
}

// nextAttempt is the number of the attempt to make after the last event of the stream. done is true where the item has ended.
func nextAttempt(last event.Event, item todo.Item) (attempt int, done bool) {
	switch e := last.(type) {
	case *memory.DerivationStarted:
		if e.Revision == item.Revision && e.Round == item.Round {
			return e.Attempt + 1, false
		}
		return 1, e.Revision > item.Revision && item.Round == 0
	case *memory.Failed:
		if e.Revision == item.Revision && e.Round == item.Round {
			return e.Attempt + 1, e.Final
		}
		return 1, e.Revision > item.Revision && item.Round == 0
	case *memory.Derived:
		return 1, e.Revision == item.Revision || (e.Revision > item.Revision && item.Round == 0)
	default:
		return 1, false
	}
}

// end appends what ended the attempt.
func (w *Worker) end(ctx context.Context, res result, name string, at eventstore.Revision, meta event.Meta, e event.Event) (result, error) {
	done, err := w.Log.Append(ctx, name, at, meta, e)
	if errors.Is(err, eventstore.ErrConflict) || errors.Is(err, eventstore.ErrDeleted) {
		if d, is := e.(memory.Derived); is && d.Blob != nil {
			// Nothing will refer to it, and it may hold what was erased meanwhile.
			endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
			defer cancel()
			_, err = w.Log.EndBlobs(endCtx, []string{d.Blob.Stream})
			return res, err
		}
		return res, nil
	}
	res.position = max(res.position, done.Position)
	return res, err
}

func (w *Worker) failed(item todo.Item, attempt int, failure *Failure) memory.Failed {
	return memory.Failed{
		ProjectID: item.ProjectID, IngestionID: item.IngestionID, Ordinal: item.Ordinal, Revision: item.Revision, Attempt: attempt,
		Round: item.Round, Code: failure.Code, Message: failure.Message, FailedAt: w.Now(), Final: !failure.Retryable || attempt >= maxAttempts,
	}
}

// extraction is what an attempt read, with the time of the revision.
type extraction struct {
	memories   []memory.Memory
	occurredAt time.Time
}

// extract loads the revision and asks the extractor, which is given this one revision and nothing else. A panic is an error of
// the attempt.
func (w *Worker) extract(ctx context.Context, item todo.Item) (found extraction, err error) {
	defer panics.Recover(ctx, w.Logger, &err, "extractor panicked", "data_point", item.DataPoint, "revision", item.Revision)
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

// read reads the text of the item's revision from the data point's stream.
func (w *Worker) read(ctx context.Context, item todo.Item) (*todo.Text, error) {
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
	text := &todo.Text{Content: content, Metadata: json.RawMessage(metadata), Author: accepted.Author, OccurredAt: accepted.Effect.OccurredAt}
	if accepted.Effect.Label != nil {
		text.Label = *accepted.Effect.Label
	}
	return text, nil
}

// revision finds the event of the item's revision, from the end of the stream, where it nearly always is.
func (w *Worker) revision(ctx context.Context, item todo.Item) (*datapoint.RevisionAccepted, error) {
	const page = 32
	from := commands.EndOfStream
	for {
		records, err := w.Log.Store.Read(ctx, stream.Name(stream.DataPoint, item.DataPoint), from, eventstore.Backwards, page)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			e, err := w.Log.Codec.Decode(r)
			if err != nil {
				return nil, err
			}
			if accepted, ok := e.(*datapoint.RevisionAccepted); ok && accepted.Effect.Revision == item.Revision {
				return accepted, nil
			}
		}
		if len(records) < page {
			return nil, fmt.Errorf("revision %d of data point %s is not in its stream", item.Revision, item.DataPoint)
		}
		from = records[len(records)-1].Revision - 1
	}
}

// text is a text of the revision, wherever it stands. A blob that is gone fails the send, not the worker.
func (w *Worker) text(ctx context.Context, t *datapoint.Text) (string, error) {
	if t == nil || t.Blob == nil {
		if t == nil {
			return "", nil
		}
		return t.Inline, nil
	}
	data, err := eventstore.ReadBlob(ctx, w.Log.Store, w.Log.Codec, *t.Blob)
	var damaged *eventstore.BlobError
	if errors.As(err, &damaged) {
		w.Logger.ErrorContext(ctx, "a blob is missing or damaged", "stream", t.Blob.Stream, "err", err)
		return "", &Failure{Code: ingestion.Internal, Message: "the stored text cannot be read"}
	}
	return string(data), err
}

// derived is the event of what was read; a long list of memories is put into a blob first.
func (w *Worker) derived(ctx context.Context, item todo.Item, read extraction, meta event.Meta) (memory.Derived, error) {
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
	ref, err := eventstore.WriteBlob(ctx, w.Log.Store, w.Log.Codec, item.DataPoint, meta.CommandID, item.ProjectID, w.Now().Add(commands.BlobKeep), meta, encoded)
	if err != nil {
		return e, err
	}
	e.Blob = &ref
	return e, nil
}

// indexable reports whether a text has anything to find it by.
func indexable(text string) bool {
	for _, r := range text {
		if unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsSymbol(r) {
			return true
		}
	}
	return false
}
