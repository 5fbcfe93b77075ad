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

// derive makes one attempt at one item. With a pure extractor, the append of the memories at the
// exact revision is the lock: of two workers, one gets a conflict. Otherwise, and if an earlier
// attempt was cut off, the attempt is recorded before its work begins, and that append is the lock.
func (w *Worker) derive(ctx context.Context, item todo.Item) (res result, err error) {
	// The first attempt at the first revision expects an empty stream; if that is wrong, the append
	// fails.
	look := item.Revision > 1 || item.Round > 0 || item.Attempt > 0
	res, err = w.try(ctx, item, look)
	if errors.Is(err, eventstore.ErrConflict) && !look {
		res, err = w.try(ctx, item, true)
	}
	if errors.Is(err, eventstore.ErrConflict) || errors.Is(err, eventstore.ErrDeleted) {
		return res, nil // another worker was first, or the data point was erased
	}
	return res, err
}

// try is derive on the current stream or, without look, on a stream that it expects to be empty. It
// returns a conflict if another append preceded its first one.
func (w *Worker) try(ctx context.Context, item todo.Item, look bool) (result, error) {
	a := attempt{
		item: item, stream: stream.Name(stream.Memory, item.DataPoint), at: eventstore.NoStream, number: 1,
		meta: event.Meta{CommandID: uuid.New(), Principal: "pipeline", CorrelationID: item.IngestionID},
		res:  result{dataPoint: item.DataPoint},
	}
	if look {
		if ended, err := w.look(ctx, &a); ended || err != nil {
			return a.res, err
		}
	}
	if a.number > maxAttempts {
		// The process died in each attempt, so no attempt could record why.
		message := fmt.Sprintf("the work was cut off %d times", maxAttempts)
		return a.res, w.append(ctx, &a, w.failed(item, maxAttempts, &Failure{Code: ingestion.Internal, Message: message}))
	}
	recorded := item.Suspect || !pure(w.Extractor)
	if recorded {
		err := w.append(ctx, &a, memory.DerivationStarted{
			ProjectID: item.ProjectID, IngestionID: item.IngestionID, Ordinal: item.Ordinal, Revision: item.Revision,
			Attempt: a.number, Round: item.Round, StartedAt: w.Now(),
		})
		if err != nil {
			return a.res, err
		}
		a.meta.CommandID = uuid.New()
	}
	outcome, backoff, err := w.work(ctx, &a)
	if outcome == nil || err != nil {
		return a.res, err
	}
	err = w.append(ctx, &a, outcome)
	if err == nil {
		a.res.backoff = backoff
	}
	if recorded && errors.Is(err, eventstore.ErrConflict) {
		err = nil // another worker took over the attempt
	}
	return a.res, err
}

// attempt is an attempt at an item, with the stream and the revision of its next event.
type attempt struct {
	item   todo.Item
	stream string
	at     eventstore.Revision
	number int
	meta   event.Meta
	res    result
}

// look reads the number of the attempt from the stream. ended reports that the item has ended.
func (w *Worker) look(ctx context.Context, a *attempt) (ended bool, err error) {
	last, ok, err := w.Log.Last(ctx, a.stream)
	if !ok || err != nil {
		return false, err
	}
	a.at = last.Revision
	if last, err = lastAttempt(ctx, w.Log, a.stream, last); err != nil {
		return false, err
	}
	if a.number, ended = nextAttempt(last.Event, a.item); ended {
		a.res.position = last.Position // the queue lags behind this event
	}
	return ended, nil
}

// work does the work of an attempt. The outcome is the event that ends it, nil if the attempt ends
// without one; backoff is the pause before the next attempt.
func (w *Worker) work(ctx context.Context, a *attempt) (outcome event.Event, backoff time.Duration, err error) {
	read, err := w.extract(ctx, a.item)
	if err == nil {
		derived, err := w.derived(ctx, a.item, read, a.meta)
		if err != nil {
			return nil, 0, err
		}
		return derived, 0, nil
	}
	if errors.Is(err, eventstore.ErrDeleted) {
		return nil, 0, err
	}
	if ctx.Err() != nil {
		return nil, 0, nil // shutting down: a later attempt continues
	}
	var failure *Failure
	if !errors.As(err, &failure) {
		w.Logger.ErrorContext(ctx, "derivation failed", "data_point", a.item.DataPoint, "revision", a.item.Revision,
			"attempt", a.number, "err", err)
		failure = &Failure{Code: ingestion.Internal, Message: "the work failed inside the service", Retryable: true}
	}
	failed := w.failed(a.item, a.number, failure)
	if !failed.Final && a.number > 1 {
		spent, err := w.spent(ctx, a.stream, a.item)
		if err != nil {
			return nil, 0, err
		}
		failed.Final = spent+firstBackoff<<(a.number-1) > lastStart
	}
	if !failed.Final {
		backoff = firstBackoff << (a.number - 1)
	}
	return failed, backoff, nil
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

// append appends the next event of an attempt. If that is refused, it ends the blob of the event.
func (w *Worker) append(ctx context.Context, a *attempt, e event.Event) error {
	done, err := w.Log.Append(ctx, a.stream, a.at, a.meta, e)
	if err == nil {
		a.at, a.res.position = done.Revision, max(a.res.position, done.Position)
		return nil
	}
	refused := errors.Is(err, eventstore.ErrConflict) || errors.Is(err, eventstore.ErrDeleted)
	if d, is := e.(memory.Derived); is && d.Blob != nil && refused {
		// Nothing will refer to the blob, and it may hold text that was erased meanwhile.
		endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
		defer cancel()
		if _, err := w.Log.EndBlobs(endCtx, []string{d.Blob.Stream}); err != nil {
			return err
		}
	}
	return err
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
