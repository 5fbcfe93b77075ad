package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/todo"
)

const (
	// embedClaim is how many revisions are embedded at a time, embedTexts how many texts one call has at most.
	embedClaim = 32
	embedTexts = 64
	// embedPause lets what is new gather, and embedPoll is how often the list is looked at although nothing was reported.
	embedPause = 100 * time.Millisecond
	embedPoll  = 5 * time.Second
	// A failing endpoint is left alone for firstEmbedRest, then for twice as long, up to lastEmbedRest.
	firstEmbedRest = time.Second
	lastEmbedRest  = 2 * time.Minute
	// embeddings is the projection that the list is taken from.
	embeddings = "embeddings"
)

// Vectors makes vectors of texts.
type Vectors interface {
	// Name names the model: vectors of different names do not compare.
	Name() string
	// Embed answers a vector for each text, all of the same dimensions. An error is a *Failure, or the context's.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// Unembedded is the list of captured revisions without vectors of a model.
type Unembedded interface {
	Unembedded(ctx context.Context, model string, but []uuid.UUID, limit int) ([]todo.Embedding, error)
}

// Embedder stores where captured revisions point to in the space of meanings. No send waits for it, and none fails by it: what
// cannot be embedded now is recalled by its words, and embedded later.
type Embedder struct {
	Log      *commands.Log
	List     Unembedded
	Progress Progress
	Vectors  Vectors
	Logger   *slog.Logger
	Now      func() time.Time

	// panicked is how often work on a data point panicked. After maxAttempts its revision is stored without vectors.
	panicked map[uuid.UUID]int
}

// Run embeds until the context ends.
func (e *Embedder) Run(ctx context.Context) error {
	moved, stop := e.Progress.Watch(embeddings)
	defer stop()
	later := make(map[uuid.UUID]time.Time) // what is not to be looked at before
	rest := firstEmbedRest
	for ctx.Err() == nil {
		worked := false
		err := panics.Call(ctx, e.Logger, "embedder panicked", func() (err error) { worked, err = e.round(ctx, later); return err })
		switch {
		case ctx.Err() != nil:
		case err != nil:
			e.Logger.WarnContext(ctx, "texts cannot be embedded at the moment", "again_in", rest, "err", err)
			await(ctx, nil, rest)
			rest = min(2*rest, lastEmbedRest)
			continue
		case !worked:
			await(ctx, moved, embedPoll)
		}
		rest = firstEmbedRest
		await(ctx, nil, embedPause)
	}
	return nil
}

// round embeds what stands on the list; worked is false where that is nothing.
func (e *Embedder) round(ctx context.Context, later map[uuid.UUID]time.Time) (worked bool, err error) {
	var but []uuid.UUID
	for id, at := range later {
		if e.Now().After(at) {
			delete(later, id)
		} else {
			but = append(but, id)
		}
	}
	items, err := e.List.Unembedded(ctx, e.Vectors.Name(), but, embedClaim)
	if err != nil || len(items) == 0 {
		return false, err
	}
	var due []*embedding
	for _, item := range items {
		var work *embedding
		isDue := false
		err := e.guard(ctx, item.DataPoint, func() (err error) { work, isDue, err = e.prepare(ctx, item); return err })
		if err != nil {
			return false, err
		}
		if !isDue {
			later[item.DataPoint] = e.Now().Add(embedPoll) // the list lags, or somebody works on it
			continue
		}
		due = append(due, work)
	}
	if len(due) == 0 {
		return true, nil
	}
	if err := e.embed(ctx, due); err != nil {
		return false, err
	}
	var last eventstore.Position
	for _, work := range due {
		position := eventstore.Position(0)
		err := e.guard(ctx, work.DataPoint, func() (err error) { position, err = e.store(ctx, work); return err })
		if err != nil {
			return false, err
		}
		if position == 0 {
			later[work.DataPoint] = e.Now().Add(embedPoll)
		}
		last = max(last, position)
	}
	return true, e.Progress.Wait(ctx, last, embeddings)
}

// guard does work for one data point. A panic costs that data point a turn, and no other: it is logged and counted, and is no error.
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

// embed asks for the vectors of all, several texts in a call. A text that the model refuses has none.
func (e *Embedder) embed(ctx context.Context, due []*embedding) error {
	var texts []*passage
	for _, work := range due {
		for i := range work.passages {
			texts = append(texts, &work.passages[i])
		}
	}
	for len(texts) > 0 {
		n := min(len(texts), embedTexts)
		if err := e.call(ctx, texts[:n]); err != nil {
			return err
		}
		texts = texts[n:]
	}
	return nil
}

// ask calls the model. A panic of the client is an error of the call.
func (e *Embedder) ask(ctx context.Context, texts []string) (vectors [][]float32, err error) {
	defer panics.Recover(ctx, e.Logger, &err, "embedding call panicked", "texts", len(texts))
	return e.Vectors.Embed(ctx, texts)
}

// isRefusal reports whether a call failed because of its texts, or may have: the model refused them, or the client panicked.
func isRefusal(err error) bool {
	if _, panicked := errors.AsType[*panics.Error](err); panicked {
		return true
	}
	failure, ok := errors.AsType[*Failure](err)
	return ok && failure.Code == ingestion.ContentRejected
}

// call embeds some texts. Where the model refuses them it is asked for halves, so that one text spoils no other's vector.
func (e *Embedder) call(ctx context.Context, texts []*passage) error {
	asked := make([]string, len(texts))
	for i, p := range texts {
		asked[i] = p.text
	}
	vectors, err := e.ask(ctx, asked)
	if isRefusal(err) {
		if len(texts) == 1 {
			return e.takesAny(ctx)
		}
		half := len(texts) / 2
		if err := e.call(ctx, texts[:half]); err != nil {
			return err
		}
		return e.call(ctx, texts[half:])
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

// takesAny tells a text that the model refuses from an endpoint that refuses all of them, as one does that was given a wrong key.
func (e *Embedder) takesAny(ctx context.Context) error {
	_, err := e.ask(ctx, []string{"hello"})
	if isRefusal(err) {
		return &Failure{Code: ingestion.ModelUnavailable, Message: "the model refuses every text", Retryable: true}
	}
	return err
}
