package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

const (
	// confirmSize is how many sends are read from the list at a time.
	confirmSize = 512
	// confirmPause is how long sends gather before the list is read.
	confirmPause = 50 * time.Millisecond
	// indexTimeout is how long the index may refuse writes before the sends that wait for it stop.
	indexTimeout = 2 * time.Minute
)

// confirmQueue lists the sends whose items have all ended.
type confirmQueue interface {
	// Searchable returns the position up to which a watermark ends at most about limit of the sends
	// captured after a position and up to upTo, 0 if there is none.
	Searchable(ctx context.Context, after, upTo eventstore.Position, limit int) (eventstore.Position, error)
	// Unsearchable lists sends that wait for a watermark after a position.
	Unsearchable(ctx context.Context, after eventstore.Position, limit int) ([]work.Send, error)
	// Confirmable lists sends that no watermark ends.
	Confirmable(ctx context.Context, limit int) ([]work.Send, error)
}

// Confirmer ends sends: as indexed once all of a send is searchable, else as failed with the first
// failure. A watermark ends many sends at once as indexed (pipeline.Searchable). The other sends
// end by events of their own.
type Confirmer struct {
	Journal  *engine.Journal
	Sends    confirmQueue
	Progress progress
	// IndexErr returns why the index refuses writes at the moment, nil if it does not.
	IndexErr func(ctx context.Context) error
	// SendFailed is called after each send that this process ended as failed. It may be nil.
	SendFailed func(ctx context.Context, code, message string)
	Logger     *slog.Logger
	Now        func() time.Time

	// ended holds the positions at which sends ended, until the list shows that. panicked counts how
	// often the end of a send panicked.
	ended    map[uuid.UUID]eventstore.Position
	panicked map[uuid.UUID]int
	// indexDownSince is when the index began to refuse writes, zero while it accepts them.
	indexDownSince time.Time
	watermark      watermark
}

// Run confirms until the context ends.
func (c *Confirmer) Run(ctx context.Context) error {
	c.ended = make(map[uuid.UUID]eventstore.Position)
	moved := make(chan struct{}, 1)
	stop := watchAll(ctx, c.Progress, c.Logger, moved,
		projection.DataPoints, projection.Memories, projection.RecallIndex)
	defer stop()
	for ctx.Err() == nil {
		worked := false
		err := panics.Call(ctx, c.Logger, "confirmer panicked, will retry", func() (err error) {
			worked, err = c.round(ctx)
			return err
		})
		if err != nil && ctx.Err() == nil {
			c.Logger.WarnContext(ctx, "confirmation of sends failed, will retry", "err", err)
		}
		if !worked || err != nil {
			_ = backoff.Pause(ctx, idlePoll, moved)
		}
		_ = backoff.Pause(ctx, confirmPause, nil)
	}
	return nil
}

// round ends the sends that end now. worked is false if there are none.
func (c *Confirmer) round(ctx context.Context) (worked bool, err error) {
	seen, err := c.Progress.Position(ctx, projection.DataPoints)
	if err != nil {
		return false, err
	}
	for id, position := range c.ended {
		if position <= seen {
			delete(c.ended, id)
		}
	}
	derived, err := c.Progress.Position(ctx, projection.Memories)
	if err != nil {
		return false, err
	}
	indexed, err := c.Progress.Position(ctx, projection.RecallIndex)
	if err != nil {
		return false, err
	}
	searchable := min(derived, indexed)
	marked := false
	markErr := panics.Call(ctx, c.Logger, "watermark panicked", func() (err error) {
		marked, err = c.advanceWatermark(ctx, seen, searchable)
		return err
	})
	worked, err = c.endEach(ctx, searchable)
	return worked || marked, errors.Join(markErr, err)
}

// endEach ends the sends that no watermark ends.
func (c *Confirmer) endEach(ctx context.Context, searchable eventstore.Position) (worked bool, err error) {
	limit := confirmSize + len(c.ended)
	sends, err := c.Sends.Confirmable(ctx, limit)
	if err != nil {
		return false, err
	}
	indexDown := c.isIndexDown(ctx)
	if indexDown {
		waiting, err := c.Sends.Unsearchable(ctx, searchable, limit)
		if err != nil {
			return false, err
		}
		sends = append(sends, waiting...)
	}
	var group errgroup.Group
	group.SetLimit(width)
	positions, errs := make([]eventstore.Position, len(sends)), make([]error, len(sends))
	for i, send := range sends {
		e := c.endEvent(send, searchable, indexDown)
		if e == nil {
			continue
		}
		group.Go(func() error {
			errs[i] = panics.Call(ctx, c.Logger, "confirmation panicked", func() (err error) {
				positions[i], err = c.end(ctx, send, e)
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
		if positions[i] > 0 {
			c.ended[send.IngestionID] = positions[i]
			delete(c.panicked, send.IngestionID)
			worked = true
		}
	}
	return worked, errors.Join(errs...)
}

// endEvent returns the event that ends a send now, nil if it does not end yet.
func (c *Confirmer) endEvent(send work.Send, searchable eventstore.Position, indexDown bool) event.Event {
	failed := func(code, message string) event.Event {
		return ingestion.Failed{ProjectID: send.ProjectID, Code: code, Message: message, FailedAt: c.Now()}
	}
	switch _, done := c.ended[send.IngestionID]; {
	case done || c.panicked[send.IngestionID] >= 2*maxAttempts:
		return nil
	case c.panicked[send.IngestionID] >= maxAttempts:
		return failed(ingestion.Internal, "the work failed inside the service")
	case send.Failure != nil:
		return failed(send.Failure.Code, send.Failure.Message)
	case send.Position <= searchable:
		return ingestion.Indexed{ProjectID: send.ProjectID, IndexedAt: c.Now()}
	case indexDown:
		return failed(ingestion.IndexUnavailable, "the search index refuses writes")
	default:
		return nil
	}
}

// end appends the event that ends a send. It appends nothing if the stream has such an event
// already, or if the send was retried since: the decision was then about an earlier round, and the
// position is 0.
func (c *Confirmer) end(ctx context.Context, send work.Send, e event.Event) (eventstore.Position, error) {
	name := stream.Name(stream.Ingestion, send.IngestionID)
	meta := event.NewMeta("pipeline", c.Now()).Of(send.IngestionID)
	at := eventstore.NoStream // a single send without an idempotency key has no stream before its end
	for {
		done, err := c.Journal.Append(ctx, name, at, meta, e)
		if failed, is := e.(ingestion.Failed); is && err == nil && c.SendFailed != nil {
			c.SendFailed(ctx, failed.Code, failed.Message)
		}
		if !errors.Is(err, eventstore.ErrConflict) {
			return done.Position, err
		}
		last, _, err := c.Journal.Last(ctx, name)
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
		case *memory.Failed: // of an item (failEnded)
			if e.Round != send.Round {
				return 0, nil
			}
		}
		at = last.Revision
	}
}

// isIndexDown reports whether the index has refused writes for longer than indexTimeout.
func (c *Confirmer) isIndexDown(ctx context.Context) bool {
	if c.IndexErr(ctx) == nil {
		c.indexDownSince = time.Time{}
		return false
	}
	if c.indexDownSince.IsZero() {
		c.indexDownSince = c.Now()
	}
	return c.Now().Sub(c.indexDownSince) > indexTimeout
}

// watchAll signals moves of any of the projections. Moves while nobody receives count as one.
func watchAll(
	ctx context.Context, progress progress, logger *slog.Logger, moved chan<- struct{}, names ...string,
) (stop func()) {
	done := make(chan struct{})
	stops := []func(){func() { close(done) }}
	for _, name := range names {
		one, stopOne := progress.Watch(name)
		stops = append(stops, stopOne)
		panics.Go(ctx, logger, "watch panicked", func() {
			for {
				select {
				case <-one:
				case <-done:
					return
				}
				signal(moved)
			}
		})
	}
	return func() {
		for _, s := range stops {
			s()
		}
	}
}

// signal sends on a channel of one element, unless the last signal is not received yet.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

const (
	// watermarkSize bounds the sends that a watermark ends, and so the work that one event causes.
	watermarkSize = 4096
	// watermarkEvery is the least average time between watermarks. At most watermarkBurst of them
	// come at once.
	watermarkEvery = 250 * time.Millisecond
	watermarkBurst = 4
)

// watermark is the state of stream pipeline that a confirmer knows.
type watermark struct {
	known bool
	// revision and position are those of the last watermark, NoStream and 0 if there is none. upTo
	// is the position up to which it declares sends searchable.
	revision       eventstore.Revision
	position, upTo eventstore.Position
	// due is when the next watermark may be appended; it is in the past if there was none for a
	// while.
	due time.Time
}

// take reports whether a watermark may be appended now, and counts it. A clock that was set back
// does not delay it.
func (m *watermark) take(now time.Time) bool {
	earliest := now.Add(-(watermarkBurst - 1) * watermarkEvery)
	if m.due.Before(earliest) || m.due.After(now.Add(watermarkEvery)) {
		m.due = earliest
	}
	if m.due.After(now) {
		return false
	}
	m.due = m.due.Add(watermarkEvery)
	return true
}

// advanceWatermark appends a watermark if sends wait for one. again reports that the next round is
// due soon: this or another process appended a watermark, or one is not due yet.
func (c *Confirmer) advanceWatermark(
	ctx context.Context, seen, searchable eventstore.Position,
) (again bool, err error) {
	if !c.watermark.known {
		if err := c.readWatermark(ctx); err != nil {
			return false, err
		}
	}
	// An index that lags the last watermark is being rebuilt; what was searchable is so again after
	// that.
	if c.watermark.upTo > searchable {
		return false, nil
	}
	// The list still has the sends that the last watermark ended until the projection has applied it.
	after := eventstore.Position(0)
	if c.watermark.position > seen {
		after = c.watermark.upTo
	}
	upTo, err := c.Sends.Searchable(ctx, after, searchable, watermarkSize)
	if err != nil || upTo == 0 {
		return false, err
	}
	now := c.Now()
	if !c.watermark.take(now) {
		return true, nil
	}
	// Sends wait before the last watermark only if that event was set aside.
	upTo = max(upTo, c.watermark.upTo)
	e := pipeline.Searchable{Position: uint64(upTo), SearchableAt: now}
	meta := event.NewMeta("pipeline", now)
	done, err := c.Journal.Append(ctx, stream.Pipeline, c.watermark.revision, meta, e)
	if err != nil {
		c.watermark.known = false
		if errors.Is(err, eventstore.ErrConflict) { // the watermark of another process may be enough
			return true, nil
		}
		return false, err
	}
	c.watermark.revision, c.watermark.position, c.watermark.upTo = done.Revision, done.Position, upTo
	return true, nil
}

// readWatermark reads the last watermark.
func (c *Confirmer) readWatermark(ctx context.Context) error {
	last, ok, err := c.Journal.Last(ctx, stream.Pipeline)
	if err != nil {
		return err
	}
	m := watermark{known: true, revision: last.Revision, due: c.watermark.due}
	if ok {
		e, is := last.Event.(*pipeline.Searchable)
		if !is {
			return fmt.Errorf("stream %s ends with %s", stream.Pipeline, last.Type)
		}
		m.position, m.upTo = last.Position, eventstore.Position(e.Position)
	}
	c.watermark = m
	return nil
}
