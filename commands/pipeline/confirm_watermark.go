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
	// watermarkSize is how many sends a watermark ends at most: what one event changes is bounded.
	watermarkSize = 4096
	// watermarkEvery is how often there is a watermark in the long run; watermarkBurst may come one right after the
	// other.
	watermarkEvery = 250 * time.Millisecond
	watermarkBurst = 4
)

// watermark is what a confirmer knows of stream pipeline.
type watermark struct {
	known bool
	// revision and position are those of the last watermark, NoStream and 0 for none, and upTo is what that said.
	revision       eventstore.Revision
	position, upTo eventstore.Position
	// due is when the next one may be appended; it lies in the past where there was none for a while.
	due time.Time
}

// spend reports whether a watermark may be appended now. A clock that was put back does not hold it up.
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

// advance appends a watermark where sends wait for one. again is true where it is worth to look again soon: one was
// appended, by this process or another, or one is not due yet. Nothing is appended while nothing waits.
func (c *Confirmer) advance(ctx context.Context, seen, searchable eventstore.Position) (again bool, err error) {
	if !c.mark.known {
		if err := c.readMark(ctx); err != nil {
			return false, err
		}
	}
	// The sends that the last one ended are on the list until the projection has come to it. An index that is behind
	// the last one is built anew: what was searchable is so again once that is done.
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
	// They wait behind the last one only where that was set aside.
	upTo = max(upTo, c.mark.upTo)
	e := pipeline.Searchable{Position: uint64(upTo), SearchableAt: now}
	meta := event.Meta{CommandID: uuid.New(), Principal: "pipeline"}
	done, err := c.Log.Append(ctx, stream.Pipeline, c.mark.revision, meta, e)
	if err != nil {
		c.mark.known = false
		if errors.Is(err, eventstore.ErrConflict) { // another process was first: what it said may be enough
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
