package commands

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// Ingest accepts one data point. key is the idempotency key, "" for none. The send is one append to
// the stream of the data point.
//
// Its faults are audience-unknown, data-point-deleted, idempotency-conflict and
// service-unavailable.
//
// With Call.Own a data point of another author and a deleted one have the same fault, id-taken.
func (s *Service) Ingest(ctx context.Context, call Call, in DataPoint, key string) (Receipt, error) {
	receipt, err := s.ingest(ctx, call, in, key, nil)
	if f, is := errors.AsType[*fault.Error](err); is && call.Own != nil && f.Code == fault.CodeDataPointDeleted {
		err = idTaken()
	}
	return receipt, err
}

// ingest is Ingest of a send that may be a correction.
func (s *Service) ingest(
	ctx context.Context, call Call, in DataPoint, key string, corrects *correction,
) (Receipt, error) {
	defer s.load.enter(1)()
	s.journal.Pace.Live()
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	send := single{
		service: s, call: call, command: uuid.New(), texts: uuid.New(), claimed: eventstore.NoStream, key: key,
		corrects: corrects,
	}
	if key != "" {
		var err error
		if send.fingerprint, err = s.fingerprint("single", []DataPoint{in}); err != nil {
			return Receipt{}, err
		}
		send.id = stream.IngestionID(call.Principal.Project.Namespace, key)
		// Resolve the idempotency key first: a replay must not fail on a since-deleted audience.
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
	send.reservation = s.newReservation(call, send.id)
	defer send.reservation.release(ctx)
	release, err := s.journal.Serialize(ctx, send.prepared.stream)
	if err != nil {
		return Receipt{}, unavailable(err)
	}
	defer release()
	return send.run(ctx, in)
}

// single is one send of one data point.
type single struct {
	service     *Service
	call        Call
	command     uuid.UUID
	texts       uuid.UUID // command of the blobs, which stay when the send is decided again
	id          uuid.UUID
	key         string
	fingerprint string
	hasClaim    bool
	// claimed is the stream revision that the first try with this key read: the send, if it is stored,
	// is after it.
	claimed     eventstore.Revision
	prepared    prepared
	reservation *reservation
	// newAuthor is true if the author may have no identity record.
	newAuthor bool
	// corrects is nil if the send corrects nothing.
	corrects *correction
}

// run decides and appends until the send is stored or refused.
//
// Most sends are the first of their source id. If nothing else has to be done for such a send, it
// is decided on an empty stream without a read. The store refuses the append if the stream is not
// empty, and then the stream is read.
func (n *single) run(ctx context.Context, in DataPoint) (receipt Receipt, err error) {
	err = untilNoConflict(ctx, nil, func(reread bool) (err error) {
		n.newAuthor = (n.corrects == nil || n.corrects.reauthored) &&
			len(n.service.unknownAuthors(ctx, n.call, n.prepared.ingest.Author)) > 0
		receipt, err = n.try(ctx, in, reread || !n.canAppendBlind())
		// Decided again, it is another event: with the same id the store would take it for the refused
		// one.
		n.command = uuid.New()
		return err
	})
	return receipt, err
}

// try decides and appends once. The error is eventstore.ErrConflict if the stream has changed.
func (n *single) try(ctx context.Context, in DataPoint, mustRead bool) (Receipt, error) {
	base, read := datapoint.Base{}, eventstore.NoStream
	if mustRead {
		var err error
		if base, read, err = n.load(ctx); err != nil {
			return Receipt{}, err
		}
	}
	if err := n.applyCall(ctx, base, in); err != nil {
		return Receipt{}, err
	}
	if n.corrects != nil {
		if err := n.corrects.applyTo(base, &n.prepared.ingest); err != nil {
			return Receipt{}, err
		}
	}
	if n.hasClaim {
		// Another try with this key may have landed since the claim was read.
		if receipt, found, err := n.find(ctx); found || err != nil {
			return receipt, err
		}
	}
	decided := base.Decide(n.prepared.ingest)
	if err := n.reserve(ctx, decided.Outcome); err != nil {
		return Receipt{}, err
	}
	if n.newAuthor {
		if err := n.service.ensureIdentity(ctx, n.call, n.prepared.ingest.Author); err != nil {
			return Receipt{}, err
		}
		n.newAuthor = false
	}
	if n.key != "" && !n.hasClaim {
		first, done, err := n.claim(ctx, read, in)
		if done || err != nil {
			return first, err
		}
		if n.hasClaim { // of another try with the same payload, which may have sent it
			return Receipt{}, eventstore.ErrConflict
		}
		n.hasClaim, n.claimed = true, read
	}
	p := &n.prepared
	e, err := n.service.journal.eventOf(ctx, decided, p, n.texts, n.call.meta(n.command))
	if err != nil {
		return Receipt{}, err
	}
	done, err := n.service.journal.appendReferring(ctx, &p.blobs, p.stream, read, n.call.meta(n.command), e)
	n.reservation.convert(err)
	if errors.Is(err, eventstore.ErrDeleted) {
		return Receipt{}, dataPointDeleted(n.prepared.ingest.SourceID)
	}
	if err != nil {
		return Receipt{}, err
	}
	to := p.ingest.Audience
	if n.corrects != nil || movesItem(decided.Outcome, to != uuid.Nil, base.State, to) {
		err = n.service.waitVisibleOutcomes(ctx, done.Position, decided.Outcome)
	}
	receipt := n.receipt(decided.Outcome)
	if n.call.Placed != nil {
		n.call.Placed(to)
	}
	receipt.CreditTenths = chargedFor(decided.Outcome, n.prepared)
	return receipt, err
}

// chargedFor returns what an item was charged for its outcome: only a new revision costs something.
func chargedFor(o ingestion.Outcome, p prepared) int64 {
	if o.CreatesRevision() {
		return p.ingest.CreditTenths
	}
	return 0
}

// reserve reserves what the send costs. A send that creates no revision costs nothing.
func (n *single) reserve(ctx context.Context, outcome ingestion.Outcome) error {
	if !outcome.CreatesRevision() {
		n.reservation.release(ctx)
		return nil
	}
	return n.reservation.reserve(ctx, 1, n.prepared.ingest.CreditTenths)
}

// canAppendBlind reports whether an append without a read costs nothing if it is refused: the send
// has no cap, no key, no new author and no blob, and corrects nothing.
func (n *single) canAppendBlind() bool {
	return n.corrects == nil && !n.reservation.hasCaps() && n.key == "" && !n.newAuthor &&
		jsonSize(n.prepared.content)+jsonSize(string(n.prepared.metadata)) <= inlineBody
}

// load reads the base of the decision. Its fault is data-point-deleted.
func (n *single) load(ctx context.Context) (datapoint.Base, eventstore.Revision, error) {
	last, ok, err := n.service.journal.Last(ctx, n.prepared.stream)
	if errors.Is(err, eventstore.ErrDeleted) {
		return datapoint.Base{}, 0, dataPointDeleted(n.prepared.ingest.SourceID)
	}
	if err != nil {
		return datapoint.Base{}, 0, err
	}
	if !ok {
		return datapoint.Base{Next: int64(last.Revision) + 1}, last.Revision, nil
	}
	_, current, live := datapoint.SendOf(last.Event)
	if !live {
		return datapoint.Base{}, 0, dataPointDeleted(n.prepared.ingest.SourceID)
	}
	head := current.Head()
	n.prepared.newest = last
	return datapoint.Base{State: &head, LastNumber: head.LastNumber, Next: int64(last.Revision) + 1}, last.Revision, nil
}

// eventOf makes the event of one item as it was decided. It writes large texts to blobs, and copies the stored metadata
// if the send omits it.
func (l *Journal) eventOf(
	ctx context.Context, d datapoint.Decision, p *prepared, texts uuid.UUID, meta event.Meta,
) (event.Event, error) {
	if d.Outcome.CreatesRevision() {
		if err := l.externalize(ctx, p, texts, meta); err != nil {
			return nil, err
		}
	}
	var stored *datapoint.Text
	if d.NeedsStoredMetadata(p.ingest) {
		at := p.newest
		if body := eventstore.Revision(d.Base.State.BodyAt); at.Event == nil || at.Revision != body {
			var err error
			if at, _, err = l.At(ctx, p.stream, body); err != nil {
				return nil, err
			}
		}
		if accepted, is := at.Event.(*datapoint.RevisionAccepted); is {
			stored = accepted.Metadata
		}
	}
	return d.Event(p.ingest, stored), nil
}

// claim appends the idempotency claim, after all checks. If another try was first, its receipt or
// its conflict is returned.
func (n *single) claim(ctx context.Context, read eventstore.Revision, in DataPoint) (Receipt, bool, error) {
	claimed := ingestion.Claimed{
		ProjectID: n.call.Principal.Project.ID, Fingerprint: n.fingerprint, DataPoint: n.prepared.dataPoint,
		RevisionRead: int64(read), ClaimedAt: n.call.ReceivedAt,
	}
	name := stream.Name(stream.Ingestion, n.id)
	_, err := n.service.journal.Append(ctx, name, eventstore.NoStream, n.call.newMeta(), claimed)
	if errors.Is(err, eventstore.ErrConflict) {
		return n.replay(ctx, in)
	}
	return Receipt{}, false, err
}

// replay returns the receipt of the send that the key names. done is false if there is only a
// claim, which this send takes over, or nothing.
func (n *single) replay(ctx context.Context, in DataPoint) (Receipt, bool, error) {
	send, err := n.service.journal.readSend(ctx, n.id)
	if err != nil || send.Events == 0 {
		return Receipt{}, false, err
	}
	if send.Claim == nil || !send.Matches(n.fingerprint) {
		return Receipt{}, false, idempotencyConflict(n.key, n.id)
	}
	claim := send.Claim
	n.hasClaim, n.claimed = true, eventstore.Revision(claim.RevisionRead)
	n.prepared.dataPoint = claim.DataPoint
	n.prepared.stream = stream.Name(stream.DataPoint, claim.DataPoint)
	n.prepared.ingest.SourceID = datapoint.Digest([]byte(in.Content))
	if in.ID != nil {
		n.prepared.ingest.SourceID = *in.ID
	}
	return n.find(ctx)
}

// find returns the receipt of the send if it is stored after the claim.
func (n *single) find(ctx context.Context) (Receipt, bool, error) {
	events, err := n.service.journal.ReadFrom(ctx, n.prepared.stream, n.claimed+1)
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
	for _, f := range events {
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
	return receipt, found, n.service.waitVisibleOutcomes(ctx, moved, last)
}

func (n *single) receipt(outcome ingestion.Outcome) Receipt {
	r := Receipt{ProjectID: n.call.Principal.Project.Number, IngestionID: n.id, SourceID: n.prepared.ingest.SourceID}
	r.Status, r.Unchanged = statusOf(outcome.Outcome)
	return r
}

// statusOf is the status of an outcome in a receipt.
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
