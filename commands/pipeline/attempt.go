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

const (
	// maxAttempts is how often an item is attempted before its send stops.
	maxAttempts = 5
	// firstBackoff is the pause after a failed attempt. It doubles with each.
	firstBackoff = time.Second
	// retryBudget is the time after the first attempt within which another one may begin. A call
	// returns within 30 seconds or is cut off, so attempts that are not cut off end within 60
	// seconds in total.
	retryBudget = 30 * time.Second
	// attemptTimeout is the least duration of an attempt that was cut off. It counts towards
	// maxAttempts, but not towards retryBudget.
	attemptTimeout = 30 * time.Second
)

// attempt is one attempt at an item, with the stream and the revision of its next event.
type attempt struct {
	item   work.Item
	stream string
	at     eventstore.Revision
	number int
	meta   event.Meta
	res    result
}

// derive makes one attempt at one item. With a pure extractor, the append of the memories at the
// exact revision is the lock: of two workers, one gets a conflict. Otherwise, and if an earlier
// attempt was cut off, the attempt is recorded before its work begins, and that append is the lock.
func (w *Worker) derive(ctx context.Context, item work.Item) (res result, err error) {
	// The first attempt at the first revision expects an empty stream. At a later revision it expects the
	// stream to end where the queue knows of no attempt at it. If that is wrong, the append fails.
	mustRead := item.Revision > 1 && item.MemoryHead == nil || item.Round > 0 || item.Attempt > 0
	res, err = w.try(ctx, item, mustRead)
	if errors.Is(err, eventstore.ErrConflict) && !mustRead {
		res, err = w.try(ctx, item, true)
	}
	if errors.Is(err, eventstore.ErrConflict) {
		return res, nil // another worker was first
	}
	if errors.Is(err, eventstore.ErrDeleted) {
		return w.failEnded(ctx, item)
	}
	return res, err
}

// try is derive on the current stream or, without mustRead, at the end that it expects. It returns a
// conflict if another append preceded its first one.
func (w *Worker) try(ctx context.Context, item work.Item, mustRead bool) (result, error) {
	a := attempt{
		item: item, stream: stream.Name(stream.Memory, item.DataPoint), at: eventstore.NoStream, number: 1,
		meta: event.NewMeta("pipeline", w.Now()).Of(item.IngestionID),
		res:  result{dataPoint: item.DataPoint},
	}
	if item.MemoryHead != nil {
		a.at = *item.MemoryHead
	}
	if mustRead {
		a.at = eventstore.NoStream
		if ended, err := w.readNumber(ctx, &a); ended || err != nil {
			return a.res, err
		}
	}
	if a.number > maxAttempts {
		// The process died in each attempt, so no attempt could record why.
		message := fmt.Sprintf("the work was cut off %d times", maxAttempts)
		return a.res, w.append(ctx, &a, w.failed(item, maxAttempts, &Failure{Code: ingestion.Internal, Message: message}))
	}
	recorded := item.Suspect || !isPure(w.Extractor)
	if recorded {
		err := w.append(ctx, &a, memory.DerivationStarted{
			ProjectID: item.ProjectID, IngestionID: item.IngestionID, Ordinal: item.Ordinal, Revision: item.Revision,
			Attempt: a.number, Round: item.Round, StartedAt: w.Now(),
		})
		if err != nil {
			return a.res, err
		}
		a.meta = event.NewMeta("pipeline", w.Now()).Of(item.IngestionID)
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

// readNumber reads the number of the attempt from the stream. ended reports that the item has ended.
func (w *Worker) readNumber(ctx context.Context, a *attempt) (ended bool, err error) {
	last, ok, err := w.Journal.Last(ctx, a.stream)
	if err != nil {
		return false, err
	}
	if a.at = last.Revision; !ok {
		return false, nil
	}
	if last, err = lastAttempt(ctx, w.Journal, a.stream, last); err != nil {
		return false, err
	}
	if a.number, ended = memory.NextAttempt(last.Event, a.item.Revision, a.item.Round); ended {
		a.res.position = last.Position // the queue has not applied this event yet
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
		elapsed, err := w.elapsed(ctx, a.stream, a.item)
		if err != nil {
			return nil, 0, err
		}
		failed.Final = elapsed+firstBackoff<<(a.number-1) > retryBudget
	}
	if !failed.Final {
		backoff = firstBackoff << (a.number - 1)
	}
	return failed, backoff, nil
}

// elapsed returns the time since the first attempt of the item's round, without the time of attempts
// that were cut off. The current attempt is the last on the stream.
func (w *Worker) elapsed(ctx context.Context, name string, item work.Item) (time.Duration, error) {
	events, err := w.Journal.Read(ctx, name, eventstore.EndOfStream, eventstore.Backwards, 2*maxAttempts)
	if err != nil {
		return 0, err
	}
	now := w.Now()
	first, ended := now, now
	var cutOff time.Duration
	for _, f := range events {
		switch e := f.Event.(type) {
		case *memory.Failed:
			if e.Revision != item.Revision || e.Round != item.Round {
				return now.Sub(first) - cutOff, nil
			}
			first, ended = e.FailedAt, e.FailedAt // the start of a pure attempt is not recorded
		case *memory.DerivationStarted:
			if e.Revision != item.Revision || e.Round != item.Round {
				return now.Sub(first) - cutOff, nil
			}
			if took := ended.Sub(e.StartedAt); took >= attemptTimeout {
				cutOff += took
			}
			first, ended = e.StartedAt, e.StartedAt
		}
	}
	return now.Sub(first) - cutOff, nil
}

// append appends the next event of an attempt. If that is refused, it tombstones the blob of the
// event: nothing will refer to it, and it may hold text that was erased since.
func (w *Worker) append(ctx context.Context, a *attempt, e event.Event) error {
	done, err := w.Journal.Append(ctx, a.stream, a.at, a.meta, e)
	if err == nil {
		a.at, a.res.position = done.Revision, max(a.res.position, done.Position)
		return nil
	}
	refused := errors.Is(err, eventstore.ErrConflict) || errors.Is(err, eventstore.ErrDeleted)
	if d, is := e.(memory.Derived); is && d.Blob != nil && refused {
		blobCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
		defer cancel()
		if _, err := w.Journal.TombstoneBlob(blobCtx, d.Blob.Stream); err != nil {
			return err
		}
	}
	return err
}

func (w *Worker) failed(item work.Item, attempt int, failure *Failure) memory.Failed {
	return memory.Failed{
		ProjectID: item.ProjectID, IngestionID: item.IngestionID, Ordinal: item.Ordinal, Revision: item.Revision,
		Attempt: attempt, Round: item.Round, Code: failure.Code, Message: failure.Message, FailedAt: w.Now(),
		Final: !failure.Retryable || attempt >= maxAttempts,
	}
}

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

// Extractor reads memories in one revision.
type Extractor interface {
	// Name is stored with what the extractor derived. It includes the extractor's version.
	Name() string
	// Extract fails with a *Failure if it is known how the attempt ends. Any other error is a
	// retryable failure inside the service.
	Extract(ctx context.Context, in comprehend.Input) ([]memory.Memory, error)
}

// pure is an Extractor that is cheap and deterministic, so that the start of an attempt needs no
// record.
type pure interface {
	Pure() bool
}

func isPure(e Extractor) bool {
	p, ok := e.(pure)
	return ok && p.Pure()
}

// Failure is a failed attempt with its public code. Retryable is false if another attempt would fail
// the same way.
type Failure struct {
	Code      string
	Message   string
	Retryable bool
	// Settings are the ends of the names of the settings that may be wrong, such as KEY. Only operators read them: they
	// are not stored.
	Settings []string
}

// Error implements error.
func (f *Failure) Error() string { return f.Code + ": " + f.Message }

// Builtin is the extractor that needs no model.
type Builtin struct{}

// Name implements Extractor.
func (Builtin) Name() string { return comprehend.Extractor }

// Pure reports that the extractor is cheap and deterministic.
func (Builtin) Pure() bool { return true }

// Extract implements Extractor.
func (Builtin) Extract(_ context.Context, in comprehend.Input) ([]memory.Memory, error) {
	return comprehend.Extract(in), nil
}

// endedElsewhere is the message of an item that cannot be derived since a stream of its data point is tombstoned.
const endedElsewhere = "somebody else deleted a stream of the data point in the event store: nothing can be derived"

// failEnded ends an item that met a tombstone. Erasure tombstones the streams of a data point after its deletion, and
// no item waits for that; before, somebody else did. The stream of the memories may take no event any more, so the
// failure is recorded in the stream of the send.
func (w *Worker) failEnded(ctx context.Context, item work.Item) (res result, err error) {
	res.dataPoint = item.DataPoint
	last, _, err := w.Journal.Last(ctx, stream.Name(stream.DataPoint, item.DataPoint))
	if _, deleted := last.Event.(*datapoint.Deleted); deleted {
		return res, nil
	}
	if err != nil && !errors.Is(err, eventstore.ErrDeleted) {
		return res, err
	}
	failed := w.failed(item, item.Attempt+1, &Failure{Code: ingestion.Internal, Message: endedElsewhere})
	name, at := stream.Name(stream.Ingestion, item.IngestionID), eventstore.NoStream
	meta := event.NewMeta("pipeline", w.Now()).Of(item.IngestionID)
	for {
		done, err := w.Journal.Append(ctx, name, at, meta, failed)
		if !errors.Is(err, eventstore.ErrConflict) {
			res.position = done.Position
			return res, err
		}
		last, _, err := w.Journal.Last(ctx, name)
		if err != nil {
			return res, err
		}
		if e, is := last.Event.(*memory.Failed); is && e.Ordinal == item.Ordinal && e.Round == item.Round {
			res.position = last.Position // by another worker
			return res, nil
		}
		at = last.Revision
	}
}
