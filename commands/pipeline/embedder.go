package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

const (
	// embedSize is how many revisions are embedded at a time, embedTexts how many texts one call has
	// at most.
	embedSize  = 32
	embedTexts = 64
	// embedPause is how long new revisions gather, and embedPoll how often the list is read although
	// the projection did not move.
	embedPause = 100 * time.Millisecond
	embedPoll  = 5 * time.Second
	// firstEmbedPause follows a failed call. Each further pause is twice as long, up to
	// longestEmbedPause.
	firstEmbedPause   = time.Second
	longestEmbedPause = 2 * time.Minute
)

// Vectors is a model that returns the vectors of texts.
type Vectors interface {
	// Name names the model. Vectors of different models do not compare.
	Name() string
	// Passages is how many passages of a revision are embedded at most, and Memories whether its memories are.
	Passages() int
	Memories() bool
	// Embed returns a vector for each text, all of the same dimensions. The error is a *Failure, or
	// that of the context.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// embedQueue lists captured revisions, at most limit of them and none of the data points of except.
type embedQueue interface {
	// Unembedded lists those without vectors.
	Unembedded(ctx context.Context, except []uuid.UUID, limit int) ([]work.Embedding, error)
	// EmbeddedByOthers lists those whose last vectors another model made.
	EmbeddedByOthers(ctx context.Context, model string, except []uuid.UUID, limit int) ([]work.Embedding, error)
}

// Live is the model whose vectors recall compares.
type Live interface {
	// Vectors returns it, nil if it can no longer be called.
	Vectors() Vectors
	// Switch makes the model of a name the one that recall uses, in all processes.
	Switch(ctx context.Context, name string) error
}

// Embedder stores the vectors of captured revisions, for semantic search. No send waits for it or
// fails because of it: until a revision is embedded, only lexical search finds it.
//
// While recall uses another model than Vectors, new revisions get the vectors of both, that of recall first. Those of
// Vectors are made of all other revisions meanwhile, in at most half of the time. Recall is switched when none lacks
// them.
type Embedder struct {
	Journal  *engine.Journal
	List     embedQueue
	Progress progress
	Vectors  Vectors
	Live     Live
	Logger   *slog.Logger
	Now      func() time.Time

	// panicked counts how often the work on a data point panicked. After maxAttempts its revision is
	// stored without vectors.
	panicked map[uuid.UUID]int
}

// Run embeds until the context ends.
func (e *Embedder) Run(ctx context.Context) error {
	moved, stop := e.Progress.Watch(projection.Embeddings)
	defer stop()
	later := make(map[uuid.UUID]time.Time) // data points that are not due before these times
	pause := firstEmbedPause
	for ctx.Err() == nil {
		worked := false
		err := panics.Call(ctx, e.Logger, "embedder panicked", func() (err error) {
			worked, err = e.round(ctx, later)
			return err
		})
		switch {
		case ctx.Err() != nil:
		case err != nil:
			e.Logger.WarnContext(ctx, "embedding of texts failed, will retry", "pause", pause, "err", err)
			_ = backoff.Pause(ctx, pause, nil)
			pause = min(2*pause, longestEmbedPause)
			continue
		case !worked:
			_ = backoff.Pause(ctx, embedPoll, moved)
		}
		pause = firstEmbedPause
		_ = backoff.Pause(ctx, embedPause, nil)
	}
	return nil
}

// round embeds the next revisions of the lists. worked is false if there are none.
func (e *Embedder) round(ctx context.Context, later map[uuid.UUID]time.Time) (worked bool, err error) {
	var except []uuid.UUID
	for id, at := range later {
		if e.Now().After(at) {
			delete(later, id)
		} else {
			except = append(except, id)
		}
	}
	start := time.Now()
	by, live := e.Vectors, e.Live.Vectors()
	if live != nil {
		by = live
	}
	items, err := e.List.Unembedded(ctx, except, embedSize)
	again := err == nil && len(items) == 0
	if again {
		by = e.Vectors
		items, err = e.List.EmbeddedByOthers(ctx, by.Name(), except, embedSize)
	}
	if err != nil {
		return false, err
	}
	if len(items) == 0 {
		if len(except) == 0 && (live == nil || live.Name() != e.Vectors.Name()) {
			return false, e.Live.Switch(ctx, e.Vectors.Name())
		}
		return false, nil
	}
	if err := e.embedItems(ctx, by, items, later); err != nil {
		return false, err
	}
	if again { // recall does not wait for these, others do for the processor
		_ = backoff.Pause(ctx, time.Since(start), nil)
	}
	return true, nil
}

// embedItems stores the vectors of some revisions by a model, and waits until they are projected.
func (e *Embedder) embedItems(
	ctx context.Context, by Vectors, items []work.Embedding, later map[uuid.UUID]time.Time,
) error {
	var due []*embedding
	for _, item := range items {
		var work *embedding
		isDue := false
		err := e.guard(ctx, item.DataPoint, func() (err error) {
			work, isDue, err = e.prepare(ctx, item, by)
			return err
		})
		if err != nil {
			return err
		}
		if !isDue {
			later[item.DataPoint] = e.Now().Add(embedPoll) // the list lags, or a worker derives the revision
			continue
		}
		due = append(due, work)
	}
	if len(due) == 0 {
		return nil
	}
	if err := e.embed(ctx, by, due); err != nil {
		return err
	}
	var last eventstore.Position
	for _, work := range due {
		position := eventstore.Position(0)
		err := e.guard(ctx, work.DataPoint, func() (err error) { position, err = e.store(ctx, by, work); return err })
		if err != nil {
			return err
		}
		if position == 0 {
			later[work.DataPoint] = e.Now().Add(embedPoll)
		}
		last = max(last, position)
	}
	return e.Progress.Wait(ctx, last, projection.Embeddings)
}

// guard works on one data point. A panic defers that data point and no other: it is logged and
// counted, and not returned.
func (e *Embedder) guard(ctx context.Context, dataPoint uuid.UUID, work func() error) error {
	err := panics.Call(ctx, e.Logger, "embedding panicked", work, "data_point", dataPoint)
	if _, panicked := errors.AsType[*panics.Error](err); panicked {
		if e.panicked == nil {
			e.panicked = make(map[uuid.UUID]int)
		}
		e.panicked[dataPoint]++
		return nil
	}
	return err
}

// embed calls the model for the vectors of all passages, several texts in a call. A text that the
// model refuses gets no vector.
func (e *Embedder) embed(ctx context.Context, by Vectors, due []*embedding) error {
	var texts []*passage
	for _, work := range due {
		for i := range work.passages {
			texts = append(texts, &work.passages[i])
		}
	}
	for len(texts) > 0 {
		n := min(len(texts), embedTexts)
		if err := e.call(ctx, by, texts[:n]); err != nil {
			return err
		}
		texts = texts[n:]
	}
	return nil
}

// callModel calls the model. A panic of the client is an error of the call.
func (e *Embedder) callModel(ctx context.Context, by Vectors, texts []string) (vectors [][]float32, err error) {
	defer panics.Recover(ctx, e.Logger, &err, "embedding call panicked", "texts", len(texts))
	return by.Embed(ctx, texts)
}

// isRefusal reports whether a call failed because of its texts, or may have: the model refused them,
// or the client panicked.
func isRefusal(err error) bool {
	if _, panicked := errors.AsType[*panics.Error](err); panicked {
		return true
	}
	failure, ok := errors.AsType[*Failure](err)
	return ok && failure.Code == ingestion.ContentRejected
}

// call embeds some texts. If the model refuses them it is called with halves, so that one text does
// not cost the others their vectors.
func (e *Embedder) call(ctx context.Context, by Vectors, texts []*passage) error {
	bodies := make([]string, len(texts))
	for i, p := range texts {
		bodies[i] = p.text
	}
	vectors, err := e.callModel(ctx, by, bodies)
	if isRefusal(err) {
		if len(texts) == 1 {
			return e.probe(ctx, by)
		}
		half := len(texts) / 2
		if err := e.call(ctx, by, texts[:half]); err != nil {
			return err
		}
		return e.call(ctx, by, texts[half:])
	}
	if err != nil {
		return err
	}
	for i, vector := range vectors {
		if scale, code, ok := memory.Quantize(vector); ok {
			texts[i].vector.Scale, texts[i].vector.Code = scale, code
		}
	}
	return nil
}

// probe returns an error if the model refuses every text, as an endpoint does with a wrong key.
func (e *Embedder) probe(ctx context.Context, by Vectors) error {
	_, err := e.callModel(ctx, by, []string{"hello"})
	if isRefusal(err) {
		every := &Failure{Code: ingestion.ModelUnavailable, Message: "the model refuses every text", Retryable: true}
		if failure, ok := errors.AsType[*Failure](err); ok {
			every.Settings = failure.Settings
		}
		return every
	}
	return err
}

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
	ctx context.Context, journal *engine.Journal, name string, last eventstore.DecodedEvent,
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
