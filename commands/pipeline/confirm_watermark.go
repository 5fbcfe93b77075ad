package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

const (
	// watermarkSize bounds the sends that a watermark ends, and so the work that one event causes.
	watermarkSize = 4096
	// watermarkEvery is the least average time between watermarks; watermarkBurst of them may come
	// at once.
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

// spend reports whether a watermark may be appended now. A clock that was set back does not delay
// it.
func (m *watermark) spend(now time.Time) bool {
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

// advance appends a watermark if sends wait for one. again reports that another look soon is
// worthwhile: this or another process appended one, or one is not due yet.
func (c *Confirmer) advance(ctx context.Context, seen, searchable eventstore.Position) (again bool, err error) {
	if !c.mark.known {
		if err := c.readMark(ctx); err != nil {
			return false, err
		}
	}
	// The list still has the sends that the last watermark ended until the projection has applied
	// it. An index that lags the last watermark is being rebuilt; what was searchable is so again
	// after that.
	if c.mark.position > seen || c.mark.upTo > searchable {
		return false, nil
	}
	upTo, err := c.Sends.Searchable(ctx, searchable, watermarkSize)
	if err != nil || upTo == 0 {
		return false, err
	}
	now := c.Now()
	if !c.mark.spend(now) {
		return true, nil
	}
	// Sends wait before the last watermark only if that event was set aside.
	upTo = max(upTo, c.mark.upTo)
	e := pipeline.Searchable{Position: uint64(upTo), SearchableAt: now}
	meta := event.Meta{CommandID: uuid.New(), Principal: "pipeline"}
	done, err := c.Log.Append(ctx, stream.Pipeline, c.mark.revision, meta, e)
	if err != nil {
		c.mark.known = false
		if errors.Is(err, eventstore.ErrConflict) { // the watermark of another process may be enough
			return true, nil
		}
		return false, err
	}
	c.mark.revision, c.mark.position, c.mark.upTo = done.Revision, done.Position, upTo
	return true, nil
}

// readMark reads the last watermark.
func (c *Confirmer) readMark(ctx context.Context) error {
	last, ok, err := c.Log.Last(ctx, stream.Pipeline)
	if err != nil {
		return err
	}
	m := watermark{known: true, revision: eventstore.NoStream, due: c.mark.due}
	if ok {
		e, is := last.Event.(*pipeline.Searchable)
		if !is {
			return fmt.Errorf("stream %s ends with %s", stream.Pipeline, last.Type)
		}
		m.revision, m.position, m.upTo = last.Revision, last.Position, eventstore.Position(e.Position)
	}
	c.mark = m
	return nil
}
