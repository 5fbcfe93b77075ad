package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

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
