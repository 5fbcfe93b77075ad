package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/todo"
)

const (
	confirmSize = 512
	// confirmPause is how long sends may gather before the list is looked at.
	confirmPause = 50 * time.Millisecond
	// indexPatience is how long the index may take no writes before the sends that wait for it stop.
	indexPatience = 2 * time.Minute
)

// Confirmations lists the sends whose items have all ended.
type Confirmations interface {
	// Searchable returns the position up to which a watermark ends at most about limit of the sends
	// captured up to upTo, 0 if there is none.
	Searchable(ctx context.Context, upTo eventstore.Position, limit int) (eventstore.Position, error)
	// Unsearchable lists sends that wait for a watermark after a position.
	Unsearchable(ctx context.Context, behind eventstore.Position, limit int) ([]todo.Send, error)
	// Confirmable lists sends that no watermark ends.
	Confirmable(ctx context.Context, limit int) ([]todo.Send, error)
}

// Confirmer ends sends: as indexed once all of a send is searchable, else as failed with the first
// failure. A watermark ends many sends at once as indexed (pipeline.Searchable). The other sends
// end by events of their own.
type Confirmer struct {
	Log      *commands.Log
	Sends    Confirmations
	Progress Progress
	// IndexTrouble is what keeps the index from taking writes at the moment, nil for nothing.
	IndexTrouble func(ctx context.Context) error
	Logger       *slog.Logger
	Now          func() time.Time

	// answered remembers what was confirmed until the list shows it, and panicked how often the end of a send panicked.
	answered map[uuid.UUID]eventstore.Position
	panicked map[uuid.UUID]int
	// troubled is since when the index takes no writes, zero while it does.
	troubled time.Time
	mark     watermark
}

// Run confirms until the context ends.
func (c *Confirmer) Run(ctx context.Context) error {
	c.answered = make(map[uuid.UUID]eventstore.Position)
	moved, stop := c.watchAll(ctx, dataPoints, memories, recallIndex)
	defer stop()
	for ctx.Err() == nil {
		worked := false
		err := panics.Call(ctx, c.Logger, "confirmer panicked", func() (err error) { worked, err = c.round(ctx); return err })
		if err != nil && ctx.Err() == nil {
			c.Logger.WarnContext(ctx, "sends cannot be confirmed", "err", err)
		}
		if !worked || err != nil {
			await(ctx, moved, idlePoll)
		}
		await(ctx, nil, confirmPause)
	}
	return nil
}

// round confirms what can be confirmed now; worked is false where that is nothing.
func (c *Confirmer) round(ctx context.Context) (worked bool, err error) {
	seen, err := c.Progress.Position(ctx, dataPoints)
	if err != nil {
		return false, err
	}
	for id, position := range c.answered {
		if position <= seen {
			delete(c.answered, id)
		}
	}
	remembered, err := c.Progress.Position(ctx, memories)
	if err != nil {
		return false, err
	}
	indexed, err := c.Progress.Position(ctx, recallIndex)
	if err != nil {
		return false, err
	}
	searchable := min(remembered, indexed)
	marked := false
	markErr := panics.Call(ctx, c.Logger, "watermark panicked", func() (err error) {
		marked, err = c.advance(ctx, seen, searchable)
		return err
	})
	worked, err = c.endEach(ctx, searchable)
	return worked || marked, errors.Join(markErr, err)
}

// endEach ends the sends that no watermark ends.
func (c *Confirmer) endEach(ctx context.Context, searchable eventstore.Position) (worked bool, err error) {
	limit := confirmSize + len(c.answered)
	sends, err := c.Sends.Confirmable(ctx, limit)
	if err != nil {
		return false, err
	}
	unwritable := c.unwritable(ctx)
	if unwritable {
		waiting, err := c.Sends.Unsearchable(ctx, searchable, limit)
		if err != nil {
			return false, err
		}
		sends = append(sends, waiting...)
	}
	var group errgroup.Group
	group.SetLimit(width)
	ended, errs := make([]eventstore.Position, len(sends)), make([]error, len(sends))
	for i, send := range sends {
		e := c.endOf(send, searchable, unwritable)
		if e == nil {
			continue
		}
		group.Go(func() error {
			errs[i] = panics.Call(ctx, c.Logger, "confirmation panicked", func() (err error) {
				ended[i], err = c.end(ctx, send, e)
				return err
			}, "send", send.IngestionID)
			return nil
		})
	}
	_ = group.Wait() // the goroutines return no error: each is in errs
	for i, send := range sends {
		if _, panicked := errors.AsType[*panics.Error](errs[i]); panicked {
			if c.panicked == nil {
				c.panicked = make(map[uuid.UUID]int)
			}
			c.panicked[send.IngestionID]++
		}
		if ended[i] > 0 {
			c.answered[send.IngestionID] = ended[i]
			delete(c.panicked, send.IngestionID)
			worked = true
		}
	}
	return worked, errors.Join(errs...)
}

// endOf returns the event that ends a send now, nil if it does not end yet.
func (c *Confirmer) endOf(send todo.Send, searchable eventstore.Position, unwritable bool) event.Event {
	failed := func(code, message string) event.Event {
		return ingestion.Failed{ProjectID: send.ProjectID, Code: code, Message: message, FailedAt: c.Now()}
	}
	switch _, done := c.answered[send.IngestionID]; {
	case done || c.panicked[send.IngestionID] >= 2*maxAttempts:
		return nil
	case c.panicked[send.IngestionID] >= maxAttempts:
		return failed(ingestion.Internal, "the work failed inside the service")
	case send.Failure != nil:
		return failed(send.Failure.Code, send.Failure.Message)
	case send.Position <= searchable:
		return ingestion.Indexed{ProjectID: send.ProjectID, IndexedAt: c.Now()}
	case unwritable:
		return failed(ingestion.IndexUnavailable, "the search index takes no writes")
	default:
		return nil
	}
}

// end appends the event that ends a send. It appends nothing if the stream has such an event
// already, or if the send was retried since: the decision was then about an earlier round, and the
// position is 0.
func (c *Confirmer) end(ctx context.Context, send todo.Send, e event.Event) (eventstore.Position, error) {
	name := stream.Name(stream.Ingestion, send.IngestionID)
	meta := event.Meta{CommandID: uuid.New(), Principal: "pipeline", CorrelationID: send.IngestionID}
	at := eventstore.NoStream // a keyless single send has no stream before its end
	for {
		done, err := c.Log.Append(ctx, name, at, meta, e)
		if !errors.Is(err, eventstore.ErrConflict) {
			return done.Position, err
		}
		last, _, err := c.Log.Last(ctx, name)
		if err != nil {
			return 0, err
		}
		switch e := last.Event.(type) {
		case *ingestion.Indexed, *ingestion.Failed:
			return last.Position, nil
		case *ingestion.Retried:
			if e.Round != send.Round {
				return 0, nil
			}
		}
		at = last.Revision
	}
}

// unwritable reports whether the index has taken no writes for longer than a send is to wait.
func (c *Confirmer) unwritable(ctx context.Context) bool {
	if c.IndexTrouble(ctx) == nil {
		c.troubled = time.Time{}
		return false
	}
	if c.troubled.IsZero() {
		c.troubled = c.Now()
	}
	return c.Now().Sub(c.troubled) > indexPatience
}

// watchAll wakes after every move of any of the projections.
func (c *Confirmer) watchAll(ctx context.Context, names ...string) (moved <-chan struct{}, stop func()) {
	any := make(chan struct{}, 1)
	done := make(chan struct{})
	stops := []func(){func() { close(done) }}
	for _, name := range names {
		one, stopOne := c.Progress.Watch(name)
		stops = append(stops, stopOne)
		panics.Go(ctx, c.Logger, "watch panicked", func() {
			for {
				select {
				case <-one:
				case <-done:
					return
				}
				select {
				case any <- struct{}{}:
				default: // the last wake-up was not taken yet
				}
			}
		})
	}
	return any, func() {
		for _, s := range stops {
			s()
		}
	}
}
