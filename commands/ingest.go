package commands

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// Ingest accepts one data point. The key is the idempotency key, "" for none. One append to the data point's stream is the send.
//
// Its faults are audience-unknown, data-point-deleted, idempotency-conflict and service-unavailable.
func (s *Service) Ingest(ctx context.Context, call Call, in DataPoint, key string) (Receipt, error) {
	defer s.Foreground.enter(1)()
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	send := single{service: s, call: call, command: uuid.New(), texts: uuid.New(), claimed: eventstore.NoStream, key: key}
	if key != "" {
		var err error
		if send.fingerprint, err = s.fingerprint("single", []DataPoint{in}); err != nil {
			return Receipt{}, err
		}
		send.id = stream.IngestionID(call.Principal.Project.Namespace, key)
		// What the key stands for comes before anything else is looked at, the audience too.
		if first, done, err := send.replay(ctx, in); done || err != nil {
			return first, err
		}
	} else {
		send.id = uuid.Must(uuid.NewV7())
	}
	var err error
	if send.prepared, err = s.prepare(ctx, call, in, s.audienceNames(call)); err != nil {
		return Receipt{}, err
	}
	send.prepared.ingest.IngestionID = send.id
	send.quota = s.quotaOf(call, send.id)
	defer send.quota.give(ctx)
	release, err := s.Log.Serialize(ctx, send.prepared.stream)
	if err != nil {
		return Receipt{}, unavailable(err)
	}
	defer release()
	return send.run(ctx, in)
}

// single is one send of one data point on its way.
type single struct {
	service     *Service
	call        Call
	command     uuid.UUID
	texts       uuid.UUID // command of the blobs, which stay when the send is decided again
	id          uuid.UUID
	key         string
	fingerprint string
	hasClaim    bool
	// claimed is the revision that the first try with this key read: the send stands above it, if it stands.
	claimed  eventstore.Revision
	prepared prepared
	quota    *quota
}

// run decides and appends until the send stands or is refused.
//
// Most sends bring a source id for the first time. Where nothing but the append itself would be done for that, it is decided
// on an empty stream without a look at it: the store refuses the append where the stream is not empty, and then it is read.
func (n *single) run(ctx context.Context, in DataPoint) (Receipt, error) {
	for look := !n.guessable(); ; look = true {
		base, read := datapoint.Base{}, eventstore.NoStream
		if look {
			var err error
			if base, read, err = n.load(ctx); err != nil {
				return Receipt{}, err
			}
		}
		if n.hasClaim {
			// Another try with this key may have landed since the claim was read.
			if receipt, found, err := n.find(ctx); found || err != nil {
				return receipt, err
			}
		}
		if err := n.reserve(ctx, base); err != nil {
			return Receipt{}, err
		}
		if err := n.service.appear(ctx, n.call, n.prepared.ingest.Author); err != nil {
			return Receipt{}, err
		}
		if n.key != "" && !n.hasClaim {
			first, done, err := n.claim(ctx, read, in)
			if done || err != nil {
				return first, err
			}
			if n.hasClaim {
				continue // somebody else's claim of the same payload: look for the send first
			}
			n.hasClaim, n.claimed = true, read
		}
		e, err := n.decide(ctx, base)
		if err != nil {
			return Receipt{}, err
		}
		done, err := n.service.Log.appendReferring(ctx, &n.prepared.blobs, n.prepared.stream, read, n.call.meta(n.command), e)
		n.quota.appended(err)
		switch {
		case err == nil && moves(base, n.prepared.ingest):
			outcome := outcomeOfDecision(e)
			return n.receipt(outcome), n.service.followed(ctx, done.Position, outcome)
		case err == nil:
			return n.receipt(outcomeOfDecision(e)), nil
		case errors.Is(err, eventstore.ErrDeleted):
			return Receipt{}, dataPointDeleted(n.prepared.ingest.SourceID)
		case !errors.Is(err, eventstore.ErrConflict):
			return Receipt{}, err
		}
		// Decided anew, it is another event: the store must not take it for the one that lost.
		n.command = uuid.New()
	}
}

// reserve takes what the send costs on this base; one that brings no revision costs nothing.
func (n *single) reserve(ctx context.Context, base datapoint.Base) error {
	if !brings(base, n.prepared.ingest) {
		n.quota.give(ctx)
		return nil
	}
	return n.quota.take(ctx, 1, n.prepared.ingest.CreditTenths)
}

// guessable reports whether a wrong guess costs nothing but the refused append: no limit is asked, no key spent, no record made,
// no blob written.
func (n *single) guessable() bool {
	author := n.prepared.ingest.Author
	return !n.quota.binds() && n.key == "" && (author == "" || n.service.authors.has(stream.IdentityID(n.call.Principal.Project.Namespace, author))) &&
		jsonSize(n.prepared.content)+jsonSize(string(n.prepared.metadata)) <= inlineBody
}

// load reads what the decision stands on. A deleted data point is refused.
func (n *single) load(ctx context.Context) (datapoint.Base, eventstore.Revision, error) {
	last, ok, err := n.service.Log.Last(ctx, n.prepared.stream)
	if errors.Is(err, eventstore.ErrDeleted) {
		return datapoint.Base{}, 0, dataPointDeleted(n.prepared.ingest.SourceID)
	}
	if err != nil {
		return datapoint.Base{}, 0, err
	}
	if !ok {
		return datapoint.Base{}, eventstore.NoStream, nil
	}
	_, standing, live := datapoint.SendOf(last.Event)
	if !live {
		return datapoint.Base{}, 0, dataPointDeleted(n.prepared.ingest.SourceID)
	}
	head := standing.Head()
	return datapoint.Base{State: &head, LastNumber: head.LastNumber, Next: int64(last.Revision) + 1}, last.Revision, nil
}

// decide places the texts where the send brings a revision, and makes the event.
func (n *single) decide(ctx context.Context, base datapoint.Base) (event.Event, error) {
	return n.service.Log.decideItem(ctx, base, &n.prepared, n.texts, n.call.meta(n.command))
}

// decideItem makes the event of one item on a base: texts are placed, stored metadata is taken over where the send omits it.
func (l *Log) decideItem(ctx context.Context, base datapoint.Base, p *prepared, texts uuid.UUID, meta event.Meta) (event.Event, error) {
	switch base.Outcome(p.ingest) {
	case ingestion.Created, ingestion.Updated:
		if err := l.place(ctx, p, texts, meta); err != nil {
			return nil, err
		}
	}
	var stored *datapoint.Text
	if base.NeedsStoredMetadata(p.ingest) {
		at, ok, err := l.At(ctx, p.stream, eventstore.Revision(base.State.BodyAt))
		if err != nil {
			return nil, err
		}
		if accepted, is := at.Event.(*datapoint.RevisionAccepted); ok && is {
			stored = accepted.Metadata
		}
	}
	return base.Decide(p.ingest, stored), nil
}

// claim ties the key to the payload, once every check has passed. Where another try was first, its send (or its conflict) is the answer.
func (n *single) claim(ctx context.Context, read eventstore.Revision, in DataPoint) (Receipt, bool, error) {
	claimed := ingestion.Claimed{
		ProjectID: n.call.Principal.Project.ID, Fingerprint: n.fingerprint, DataPoint: n.prepared.dataPoint,
		RevisionRead: int64(read), ClaimedAt: n.call.ReceivedAt,
	}
	_, err := n.service.Log.Append(ctx, stream.Name(stream.Ingestion, n.id), eventstore.NoStream, n.call.meta(uuid.New()), claimed)
	if errors.Is(err, eventstore.ErrConflict) {
		return n.replay(ctx, in)
	}
	return Receipt{}, false, err
}

// replay answers what the key stands for: done is true where a send stands behind it. A claim without a send is taken over.
func (n *single) replay(ctx context.Context, in DataPoint) (Receipt, bool, error) {
	facts, err := n.service.Log.ReadFrom(ctx, stream.Name(stream.Ingestion, n.id), 0)
	if err != nil || len(facts) == 0 {
		return Receipt{}, false, err
	}
	claim, ok := facts[0].Event.(*ingestion.Claimed)
	if !ok || claim.Fingerprint != n.fingerprint {
		return Receipt{}, false, idempotencyConflict(n.key, n.id)
	}
	n.hasClaim, n.claimed = true, eventstore.Revision(claim.RevisionRead)
	n.prepared.dataPoint = claim.DataPoint
	n.prepared.stream = stream.Name(stream.DataPoint, claim.DataPoint)
	n.prepared.ingest.SourceID = datapoint.Digest([]byte(in.Content))
	if in.ID != nil {
		n.prepared.ingest.SourceID = *in.ID
	}
	return n.find(ctx)
}

// find looks for the send among the events above the claim.
func (n *single) find(ctx context.Context) (Receipt, bool, error) {
	facts, err := n.service.Log.ReadFrom(ctx, n.prepared.stream, n.claimed+1)
	if errors.Is(err, eventstore.ErrDeleted) {
		return Receipt{}, false, dataPointDeleted(n.prepared.ingest.SourceID)
	}
	if err != nil {
		return Receipt{}, false, err
	}
	var receipt Receipt
	var moved eventstore.Position
	var last ingestion.Outcome
	found := false
	for _, f := range facts {
		if _, gone := f.Event.(*datapoint.Deleted); gone {
			return Receipt{}, false, dataPointDeleted(n.prepared.ingest.SourceID)
		}
		if send, _, ok := datapoint.SendOf(f.Event); ok && send.IngestionID == n.id {
			outcome, _ := datapoint.OutcomeOf(f.Event)
			receipt, found, last = n.receipt(outcome), true, outcome
			if outcome.Outcome != ingestion.Created {
				moved = f.Position
			}
		}
	}
	return receipt, found, n.service.followed(ctx, moved, last)
}

func (n *single) receipt(outcome ingestion.Outcome) Receipt {
	r := Receipt{ProjectID: n.call.Principal.Project.Number, IngestionID: n.id, SourceID: n.prepared.ingest.SourceID}
	r.Status, r.Unchanged = statusOf(outcome.Outcome)
	return r
}

// statusOf is how a receipt tells an outcome.
func statusOf(outcome string) (status string, unchanged *bool) {
	switch outcome {
	case ingestion.Unchanged, ingestion.Moved:
		yes := true
		return StatusCompleted, &yes
	case ingestion.Deleted:
		return StatusCompleted, nil
	default:
		return StatusQueued, nil
	}
}

// outcomeOfDecision is datapoint.OutcomeOf of an event that was just decided.
func outcomeOfDecision(e event.Event) ingestion.Outcome {
	var outcome ingestion.Outcome
	switch e := e.(type) {
	case datapoint.RevisionAccepted:
		outcome, _ = datapoint.OutcomeOf(&e)
	case datapoint.Moved:
		outcome, _ = datapoint.OutcomeOf(&e)
	case datapoint.Resent:
		outcome, _ = datapoint.OutcomeOf(&e)
	}
	return outcome
}
