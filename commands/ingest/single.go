package ingest

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
)

// Ingest accepts one data point. key is the idempotency key, "" for none. The send is one append to
// the stream of the data point.
//
// Its faults are audience-unknown, data-point-deleted, idempotency-conflict and
// service-unavailable.
//
// With Call.Own a data point of another author and a deleted one have the same fault, id-taken.
func (s *Service) Ingest(ctx context.Context, call engine.Call, in DataPoint, key string) (Receipt, error) {
	receipt, err := s.ingest(ctx, call, in, key, nil)
	if f, is := errors.AsType[*fault.Error](err); is && call.Own != nil && f.Code == fault.CodeDataPointDeleted {
		err = idTaken()
	}
	return receipt, err
}

// ingest is Ingest of a send that may be a correction.
func (s *Service) ingest(
	ctx context.Context, call engine.Call, in DataPoint, key string, corrects *correction,
) (Receipt, error) {
	defer s.load.Enter(1)()
	s.journal.Pace.Live()
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
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
	if send.prepared, err = s.prepare(ctx, call, in, s.audiences.Names(call)); err != nil {
		return Receipt{}, err
	}
	send.prepared.ingest.IngestionID = send.id
	send.reservation = s.newReservation(call, send.id)
	defer send.reservation.release(ctx)
	release, err := s.journal.Serialize(ctx, send.prepared.stream)
	if err != nil {
		return Receipt{}, engine.Unavailable(err)
	}
	defer release()
	return send.run(ctx, in)
}

// single is one send of one data point.
type single struct {
	service     *Service
	call        engine.Call
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
	err = engine.UntilNoConflict(ctx, nil, func(reread bool) (err error) {
		n.newAuthor = (n.corrects == nil || n.corrects.reauthored) &&
			len(n.service.authors.Unknown(ctx, n.call, n.prepared.ingest.Author)) > 0
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
		if err := n.service.authors.Ensure(ctx, n.call, n.prepared.ingest.Author); err != nil {
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
	e, err := eventOf(ctx, n.service.journal, decided, p, n.texts, n.call.Meta(n.command))
	if err != nil {
		return Receipt{}, err
	}
	done, err := n.service.journal.AppendReferring(ctx, &p.blobs, p.stream, read, n.call.Meta(n.command), e)
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
		jsonSize(n.prepared.content)+jsonSize(string(n.prepared.metadata)) <= engine.InlineBody
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
func eventOf(
	ctx context.Context, l *engine.Journal, d datapoint.Decision, p *prepared, texts uuid.UUID, meta event.Meta,
) (event.Event, error) {
	if d.Outcome.CreatesRevision() {
		if err := externalize(ctx, l, p, texts, meta); err != nil {
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
	_, err := n.service.journal.Append(ctx, name, eventstore.NoStream, n.call.NewMeta(), claimed)
	if errors.Is(err, eventstore.ErrConflict) {
		return n.replay(ctx, in)
	}
	return Receipt{}, false, err
}

// replay returns the receipt of the send that the key names. done is false if there is only a
// claim, which this send takes over, or nothing.
func (n *single) replay(ctx context.Context, in DataPoint) (Receipt, bool, error) {
	send, err := readSend(ctx, n.service.journal, n.id)
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
		author, err := authorOf(ctx, n.service.journal, n.prepared.stream, *base.State, n.prepared.newest)
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
func authorOf(
	ctx context.Context, l *engine.Journal, name string, state datapoint.State, last eventstore.DecodedEvent,
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

// movesItem reports whether the answer to an item waits for recall: the answer to a move promises that recall shows it.
// So does the answer that a data point is unchanged in a named audience: an earlier move may have committed without its
// caller seeing the reply. from is what the item was decided on, nil if that was not read before the commit.
func movesItem(outcome ingestion.Outcome, named bool, from *datapoint.State, to uuid.UUID) bool {
	switch outcome.Outcome {
	case ingestion.Moved:
		return true
	case ingestion.Updated:
		return from == nil && named || from != nil && from.Audience != to
	case ingestion.Unchanged:
		return named
	default:
		return false
	}
}

// waitVisibleOutcomes waits until recall has applied the position of some outcomes. Nothing is
// derived from a moved item, so the answer reports it as completed: it also waits for the index, so
// that the new readers find it.
func (s *Service) waitVisibleOutcomes(
	ctx context.Context, position eventstore.Position, outcomes ...ingestion.Outcome,
) error {
	for _, o := range outcomes {
		if o.Outcome == ingestion.Moved {
			return engine.WaitVisible(ctx, s.waiter, position, projection.DataPoints, projection.RecallIndex)
		}
	}
	return engine.WaitVisible(ctx, s.waiter, position, projection.DataPoints)
}

// makePrivate scopes a single send to its author alone.
func (n *single) makePrivate(ctx context.Context) error {
	author := n.prepared.ingest.Author
	own, err := n.service.privateAudiences(ctx, n.call, author)
	if err == nil {
		n.prepared.ingest.Audience = own[author]
	}
	return err
}

// privateAudiences returns the audience that each identity has for itself. An identity without a record gets one. The
// audiences are those of the records that the directory has, as recall reads them: a record that is removed meanwhile
// takes its audience with it, and nobody reads what is sent to that.
func (s *Service) privateAudiences(
	ctx context.Context, call engine.Call, names ...string,
) (map[string]uuid.UUID, error) {
	own := make(map[string]uuid.UUID, len(names))
	missing, err := s.findPrivate(ctx, call, names, own)
	if err != nil || len(missing) == 0 {
		return own, err
	}
	err = s.journal.Each(ctx, len(missing), func(ctx context.Context, i int) error {
		return s.authors.Ensure(ctx, call, missing[i])
	})
	if err != nil {
		return nil, err
	}
	head, err := s.journal.Store.Head(ctx)
	if err != nil {
		return nil, engine.Unavailable(err)
	}
	if err := s.waiter.Wait(ctx, head, projection.Directory); err != nil {
		return nil, engine.Unavailable(err)
	}
	if missing, err = s.findPrivate(ctx, call, missing, own); err == nil && len(missing) > 0 {
		err = fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the record of the identity is being removed; nothing is stored; retry")
	}
	return own, err
}

// findPrivate adds the audiences of the identities that have a record, and returns the others, each once.
func (s *Service) findPrivate(
	ctx context.Context, call engine.Call, names []string, own map[string]uuid.UUID,
) (missing []string, err error) {
	project := call.Principal.Project
	ids := make([]uuid.UUID, len(names))
	for i, name := range names {
		ids[i] = stream.IdentityID(project.Namespace, name)
	}
	heads, err := s.directory.RecordHeads(ctx, project, ids)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool, len(names))
	for i, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		if record := heads[ids[i]].Record; record != nil {
			own[name] = stream.PrivateAudienceID(ids[i], record.CreatedAt)
		} else {
			missing = append(missing, name)
		}
	}
	return missing, nil
}
