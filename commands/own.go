package commands

import (
	"context"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// CodeIDTaken is the code of a call that is bound to what an identity wrote. No route of the API has it.
const CodeIDTaken = "id-taken"

// idTaken is the fault of a send whose id is not for its author. It is the same whether another wrote the data point or
// it was deleted.
func idTaken() error {
	return fault.New(fault.Conflict, CodeIDTaken, "the id is taken: take another id; nothing was changed")
}

// applyCall checks a single send against the bounds of its call, and finds its audience: that of its author alone if it
// is private, or that of its base if the call keeps it.
func (n *single) applyCall(ctx context.Context, base datapoint.Base, in DataPoint) error {
	if base.State == nil {
		if in.Private || n.call.PrivateIfNew && in.Audience == nil {
			return n.makePrivate(ctx)
		}
		return nil
	}
	if n.call.Own != nil {
		author, err := n.service.journal.authorOf(ctx, n.prepared.stream, *base.State, n.prepared.newest)
		if err != nil {
			return err
		}
		if author != *n.call.Own {
			return idTaken()
		}
	}
	switch {
	case in.Private:
		return n.makePrivate(ctx)
	case n.call.KeepsAudience && in.Audience == nil:
		n.prepared.ingest.Audience = base.State.Audience
	}
	return nil
}

// authorOf returns the author of the newest revision of a live data point; last is the last event of its stream, if it
// is known.
func (l *Journal) authorOf(
	ctx context.Context, name string, state datapoint.State, last eventstore.DecodedEvent,
) (string, error) {
	if body := eventstore.Revision(state.BodyAt); last.Event == nil || last.Revision != body {
		var err error
		if last, _, err = l.At(ctx, name, body); err != nil {
			return "", err
		}
	}
	accepted, _ := last.Event.(*datapoint.RevisionAccepted)
	if accepted == nil {
		return "", fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the author cannot be read now; retry")
	}
	return accepted.Author, nil
}

// isOwn reports whether a call may delete a target. Without a bound it may delete each.
func (l *Journal) isOwn(ctx context.Context, call Call, t target) (bool, error) {
	if call.Own == nil {
		return true, nil
	}
	if t.ended || !t.live() {
		return false, nil
	}
	author, err := l.authorOf(ctx, stream.Name(stream.DataPoint, t.dataPoint), t.head, eventstore.DecodedEvent{})
	return author == *call.Own, err
}
