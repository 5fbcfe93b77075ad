package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// Correction changes a data point that a person has seen. A nil field keeps what is stored, also the audience: unlike a
// send without one, a correction publishes nothing.
type Correction struct {
	SourceID string
	// Revision is the newest one that the person saw.
	Revision  int
	Content   *string
	Label     *string
	Timestamp *time.Time
	// Metadata is JSON.
	Metadata json.RawMessage
	Audience *string
	// Identity is the author, "" for none.
	Identity *string
}

// correction is what a send that corrects is decided against.
type correction struct {
	revision int
	// keepsAudience is true if the data point stays in whichever audience it is in by then.
	keepsAudience bool
	// reauthored is true if the author is another one. Otherwise the record of the author is left alone: it may have
	// been removed, and the author sends nothing now.
	reauthored bool
}

// Correct stores a correction as a new revision, and returns once reads show it. Its faults are those of Ingest,
// data-point-not-found, conflict if the person saw an older revision, with the newest one, and invalid-request if it
// changes nothing.
func (s *Service) Correct(ctx context.Context, call engine.Call, in Correction) (Receipt, error) {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	name := stream.Name(stream.DataPoint, stream.DataPointID(call.Principal.Project.Namespace, in.SourceID))
	state, newest, err := newestRevision(decideCtx, s.journal, name, in.SourceID)
	if err != nil {
		return Receipt{}, err
	}
	against := &correction{
		revision: in.Revision, keepsAudience: in.Audience == nil,
		reauthored: in.Identity != nil && *in.Identity != newest.Author,
	}
	if err := against.check(&state, in.SourceID); err != nil {
		return Receipt{}, err
	}
	if in.Content == nil && in.Label == nil && in.Timestamp == nil && in.Metadata == nil && in.Audience == nil &&
		in.Identity == nil {
		return Receipt{}, fault.New(fault.Invalid, fault.CodeInvalidRequest, "nothing was changed")
	}
	point := DataPoint{
		ID: &in.SourceID, Label: in.Label, Timestamp: in.Timestamp, Metadata: in.Metadata, Audience: in.Audience,
		Identity: in.Identity,
	}
	if in.Identity == nil && newest.Author != "" {
		point.Identity = &newest.Author
	} else if in.Identity != nil && *in.Identity == "" {
		point.Identity = nil
	}
	if in.Content != nil {
		point.Content = *in.Content
	} else if point.Content, err = text(decideCtx, s.journal, newest.Content); err != nil {
		return Receipt{}, err
	}
	return s.ingest(ctx, call, point, "", against)
}

// newestRevision reads the state of a live data point, and the event of its newest revision. Its faults are
// data-point-not-found and data-point-deleted.
func newestRevision(
	ctx context.Context, l *engine.Journal, name, sourceID string,
) (state datapoint.State, newest *datapoint.RevisionAccepted, err error) {
	last, ok, err := l.Last(ctx, name)
	if errors.Is(err, eventstore.ErrDeleted) {
		return state, nil, dataPointDeleted(sourceID)
	}
	if err != nil {
		return state, nil, err
	}
	if !ok {
		return state, nil, noDataPoint(sourceID)
	}
	_, states, live := datapoint.SendOf(last.Event)
	if !live {
		return state, nil, dataPointDeleted(sourceID)
	}
	state = states.Head()
	if body := eventstore.Revision(state.BodyAt); last.Revision != body {
		if last, _, err = l.At(ctx, name, body); err != nil {
			return state, nil, err
		}
	}
	newest, is := last.Event.(*datapoint.RevisionAccepted)
	if !is {
		return state, nil, fmt.Errorf("event %d of %s is no revision", state.BodyAt, name)
	}
	return state, newest, nil
}

// text reads a text of an event.
func text(ctx context.Context, l *engine.Journal, t datapoint.Text) (string, error) {
	if t.Blob == nil {
		return t.Inline, nil
	}
	data, err := l.ReadBlob(ctx, *t.Blob)
	if err != nil {
		return "", fmt.Errorf("read the text of a revision: %w", err)
	}
	return string(data), nil
}

func noDataPoint(sourceID string) error {
	return fault.New(fault.NotFound, fault.CodeDataPointNotFound, "the project has no data point with this id").
		With("ids", []string{sourceID})
}

// check refuses a correction of another revision than the newest.
func (c *correction) check(state *datapoint.State, sourceID string) error {
	if state == nil {
		return noDataPoint(sourceID)
	}
	if state.Revision != c.revision {
		return fault.New(fault.Conflict, fault.CodeConflict,
			"revision %d was corrected, but the newest is %d: look at that and correct it", c.revision, state.Revision).
			With("revision", state.Revision)
	}
	return nil
}

// applyTo checks a correction on the base of a try, and keeps the audience of that base.
func (c *correction) applyTo(base datapoint.Base, in *datapoint.Ingest) error {
	if err := c.check(base.State, in.SourceID); err != nil {
		return err
	}
	in.Reauthored = c.reauthored
	if c.keepsAudience {
		in.Audience = base.State.Audience
	}
	return nil
}
