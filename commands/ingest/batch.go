package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// fanOutPart is how many items of a batch are appended before the pace is asked again.
const fanOutPart = 256

// IngestBatch accepts all items or refuses the whole batch. It stages the items, commits on the
// stream of the send, and fans out into the streams of the data points. After the commit nothing is
// refused.
//
// Its faults are those of Ingest, and name the position of the item. Each source id is in items
// once.
func (s *Service) IngestBatch(
	ctx context.Context, call engine.Call, items []DataPoint, key string,
) (BatchReceipt, error) {
	defer s.load.Enter(len(items))()
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	id, fingerprint := uuid.Must(uuid.NewV7()), ""
	if key != "" {
		var err error
		if fingerprint, err = s.fingerprint("batch", items); err != nil {
			return BatchReceipt{}, err
		}
		id = stream.IngestionID(call.Principal.Project.Namespace, key)
		if first, done, err := s.replayBatch(decideCtx, call, id, key, fingerprint, items); done || err != nil {
			return first, err
		}
	}
	b := &batch{
		id: id, prepared: make([]prepared, len(items)), effects: make([]eventstore.Position, len(items)),
	}
	audiences := s.audiences.Names(call)
	for i, in := range items {
		var err error
		if b.prepared[i], err = s.prepare(decideCtx, call, in, audiences); err != nil {
			return BatchReceipt{}, atItem(err, i)
		}
		send := &b.prepared[i].ingest.Send
		send.IngestionID, send.Ordinal, send.Items = id, i, len(items)
	}
	if err := b.makePrivate(decideCtx, s, call, items); err != nil {
		return BatchReceipt{}, err
	}
	b.reservation = s.newReservation(call, id)
	defer b.reservation.release(ctx)
	if err := s.decide(decideCtx, b); err != nil {
		return BatchReceipt{}, err
	}
	if items, tenths := b.newRevisions(); items > 0 {
		if err := b.reservation.reserve(decideCtx, items, tenths); err != nil {
			return BatchReceipt{}, err
		}
	}
	if err := s.ensureIdentities(decideCtx, call, items); err != nil {
		return BatchReceipt{}, err
	}
	if err := s.commit(decideCtx, call, b, fingerprint); err != nil {
		if errors.Is(err, eventstore.ErrConflict) { // another try of the same key was first
			s.journal.TombstoneStage(decideCtx, b.accepted.Stage.Stream)
			first, done, err := s.replayBatch(decideCtx, call, id, key, fingerprint, items)
			if !done && err == nil {
				err = fmt.Errorf("send %s: neither new nor known", id)
			}
			return first, err
		}
		return BatchReceipt{}, err
	}
	// The batch is accepted now: continue even if the caller is gone.
	fanCtx, cancelFan := context.WithTimeout(context.WithoutCancel(ctx), engine.FanOutTimeout)
	defer cancelFan()
	outcomes, err := fanOutBatch(fanCtx, s.journal, b)
	if err != nil {
		s.journal.Logger.ErrorContext(ctx, "fan-out of batch failed, the finisher will retry", "send", id, "err", err)
		return BatchReceipt{}, fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the batch is accepted and will be processed; its receipt is not ready yet").
			With("committed", true).With("ingestionId", id)
	}
	receipt := batchReceipt(call, id, items, outcomes)
	for i, o := range outcomes {
		receipt.CreditTenths += chargedFor(o, b.prepared[i])
	}
	return receipt, s.waitVisibleBatch(fanCtx, b, outcomes)
}

// batch is a batch between its preparation and the end of its fan-out.
type batch struct {
	id          uuid.UUID
	accepted    ingestion.Accepted
	stage       engine.Written
	commit      eventstore.Position
	prepared    []prepared
	decided     []datapoint.Decision  // of the items, undecided if unread
	effects     []eventstore.Position // of what they were decided on, in effect order, 0 before it is read
	unread      bool                  // the finisher resumes the batch, and must decide
	reservation *reservation          // nil if the batch was committed before
	// deleted is the deletion that was recorded before the fan-out was complete, nil for none.
	deleted *deletion.Accepted
}

// newRevisions counts the items that create a revision, and adds up what they cost.
func (b *batch) newRevisions() (items, tenths int64) {
	for i, d := range b.decided {
		if d.Outcome.CreatesRevision() {
			items++
			tenths += b.prepared[i].ingest.CreditTenths
		}
	}
	return items, tenths
}

// ensureIdentities ensures that each author has an identity record.
func (s *Service) ensureIdentities(ctx context.Context, call engine.Call, items []DataPoint) error {
	var authors []string
	seen := make(map[string]bool)
	for _, in := range items {
		if in.Identity != nil && !seen[*in.Identity] {
			seen[*in.Identity] = true
			authors = append(authors, *in.Identity)
		}
	}
	authors = s.authors.Unknown(ctx, call, authors...)
	return s.journal.Each(ctx, len(authors), func(ctx context.Context, i int) error {
		return s.authors.Ensure(ctx, call, authors[i])
	})
}

// commit stages the items and appends the batch to the stream of the send. The append fails with
// eventstore.ErrConflict if another try with the same key was first.
func (s *Service) commit(ctx context.Context, call engine.Call, b *batch, fingerprint string) error {
	command := uuid.New()
	ref, err := writeStage(ctx, s.journal, call, b, command)
	if err != nil {
		return err
	}
	b.accepted = ingestion.Accepted{
		ProjectID: call.Principal.Project.ID, Fingerprint: fingerprint, RequestID: call.RequestID,
		Principal: call.Principal.Name(), FanOut: uuid.NewSHA1(command, []byte("fan-out")), Stage: ref,
		Items: make([]ingestion.Item, len(b.prepared)), AcceptedAt: call.ReceivedAt, Month: b.prepared[0].ingest.Month,
	}
	for i, p := range b.prepared {
		b.accepted.Items[i] = ingestion.Item{
			DataPoint: p.dataPoint, Decided: b.decided[i].Base.Next - 1, Bytes: p.ingest.Bytes,
			CreditTenths: chargedFor(b.decided[i].Outcome, p),
		}
	}
	name := stream.Name(stream.Ingestion, b.id)
	done, err := s.journal.AppendReferring(ctx, &b.stage, name, eventstore.NoStream, call.Meta(command), b.accepted)
	b.reservation.convert(err)
	b.commit = done.Position
	return err
}

// replayBatch returns the receipt of the batch that an idempotency key names, if it is committed.
func (s *Service) replayBatch(
	ctx context.Context, call engine.Call, id uuid.UUID, key, fingerprint string, items []DataPoint,
) (receipt BatchReceipt, done bool, err error) {
	send, err := readSend(ctx, s.journal, id)
	if err != nil || send.Events == 0 {
		return BatchReceipt{}, false, err
	}
	if send.Batch == nil || !send.Matches(fingerprint) {
		return BatchReceipt{}, false, idempotencyConflict(key, id)
	}
	outcomes := send.Outcomes
	if outcomes == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.FanOutTimeout)
		defer cancel()
		if outcomes, err = resumeOrAbandon(ctx, s.journal, send, call.ReceivedAt); err != nil {
			return BatchReceipt{}, false, err
		}
	}
	err = s.journal.Each(ctx, len(send.Batch.Items), func(ctx context.Context, i int) error {
		last, _, err := s.journal.Last(ctx, stream.Name(stream.DataPoint, send.Batch.Items[i].DataPoint))
		if _, deleted := last.Event.(*datapoint.Deleted); deleted || errors.Is(err, eventstore.ErrDeleted) {
			return atItem(dataPointDeleted(sourceIDOf(items[i])), i)
		}
		return err
	})
	if err != nil {
		return BatchReceipt{}, false, err
	}
	return batchReceipt(call, id, items, outcomes), true, s.waitVisibleReplay(ctx, items, outcomes)
}

func batchReceipt(call engine.Call, id uuid.UUID, items []DataPoint, outcomes []ingestion.Outcome) BatchReceipt {
	r := BatchReceipt{
		ProjectID: call.Principal.Project.Number, IngestionID: id, Status: StatusCompleted,
		Items: make([]ItemReceipt, len(items)),
	}
	unchanged := true
	for i, in := range items {
		item := ItemReceipt{Ordinal: i, SourceID: sourceIDOf(in)}
		item.Status, item.Unchanged = statusOf(outcomes[i].Outcome)
		r.Items[i] = item
		unchanged = unchanged && item.Unchanged != nil
		if item.Status == StatusQueued {
			r.Status = StatusQueued
		}
	}
	if unchanged {
		r.Unchanged = &unchanged
	}
	return r
}

// sourceIDOf is the source id of a data point as sent.
func sourceIDOf(in DataPoint) string {
	if in.ID != nil {
		return *in.ID
	}
	return datapoint.Digest([]byte(in.Content))
}

// atItem adds the position of the item to a refusal.
func atItem(err error, i int) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	return fault.New(f.Kind, f.Code, "items[%d]: %s", i, f.Msg).WithAll(f.Data).With("item", i)
}

// stagedMeta is the metadata of what the fan-out of a batch appends, in any process.
func stagedMeta(accepted *ingestion.Accepted) event.Meta {
	return event.Meta{
		RequestID: accepted.RequestID, CommandID: accepted.FanOut, Principal: accepted.Principal,
		CorrelationID: accepted.RequestID, At: accepted.AcceptedAt,
	}
}

// decide decides each item on what it reads. It refuses the batch for a deleted data point.
//
// Most items are the first of their source id. An item that the projection does not know is decided
// on an empty stream without a read. If that is wrong, the store refuses the append, and the
// fan-out decides again on the stream. No answered deletion is missed: the projection knows it, so
// the stream is read. If the send has caps, each stream is read: an item that changes nothing must
// not be refused for its cost.
func (s *Service) decide(ctx context.Context, b *batch) error {
	known, bases := s.known(ctx, b), make([]datapoint.Base, len(b.prepared))
	deleted := make([]bool, len(b.prepared))
	err := s.journal.Each(ctx, len(known), func(ctx context.Context, n int) error {
		i := known[n]
		p := &b.prepared[i]
		last, ok, err := s.journal.Last(ctx, p.stream)
		if errors.Is(err, eventstore.ErrDeleted) {
			deleted[i] = true
			return nil
		}
		if err != nil {
			return err
		}
		if !ok {
			bases[i].Next = int64(last.Revision) + 1
			return nil
		}
		send, current, live := datapoint.SendOf(last.Event)
		if !live {
			deleted[i] = true
			return nil
		}
		if !current.Historic() {
			if b.effects[i] = last.Position; send.Commit != 0 {
				b.effects[i] = eventstore.Position(send.Commit)
			}
		}
		head := current.Head()
		bases[i] = datapoint.Base{State: &head, LastNumber: head.LastNumber, Next: int64(last.Revision) + 1}
		return nil
	})
	b.decided = make([]datapoint.Decision, len(bases))
	for i := range bases {
		b.decided[i] = bases[i].Decide(b.prepared[i].ingest)
	}
	if err != nil {
		return err
	}
	return b.refuseDeleted(deleted)
}

// refuseDeleted returns the fault of a batch with deleted data points. It names all of them, so that a client leaves
// them out at once.
func (b *batch) refuseDeleted(deleted []bool) error {
	var ids []string
	first := -1
	for i, is := range deleted {
		if is {
			if ids = append(ids, b.prepared[i].ingest.SourceID); first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return nil
	}
	return atItem(dataPointDeleted(ids[0]).With("ids", ids), first)
}

// known returns the items whose streams are to be read: all, if new ones cannot be identified.
func (s *Service) known(ctx context.Context, b *batch) []int {
	items := make([]int, 0, len(b.prepared))
	var sent map[uuid.UUID]struct{}
	ask := s.dataPoints != nil && !b.reservation.hasCaps()
	if ask {
		ids := make([]uuid.UUID, len(b.prepared))
		for i := range b.prepared {
			ids[i] = b.prepared[i].dataPoint
		}
		var err error
		if sent, err = s.dataPoints.Sent(ctx, ids); err != nil {
			s.journal.Logger.WarnContext(ctx, "query of new data points failed, each is read instead", "err", err)
			ask = false
		}
	}
	for i := range b.prepared {
		if _, is := sent[b.prepared[i].dataPoint]; is || !ask {
			items = append(items, i)
		}
	}
	return items
}

// waitVisibleBatch waits until recall shows the moved items of a batch that is fanned out.
func (s *Service) waitVisibleBatch(ctx context.Context, b *batch, outcomes []ingestion.Outcome) error {
	for i, o := range outcomes {
		to := b.prepared[i].ingest.Audience
		if movesItem(o, to != uuid.Nil, b.decided[i].Base.State, to) {
			return s.waitVisibleHead(ctx, outcomes)
		}
	}
	return nil
}

// waitVisibleReplay is waitVisibleBatch for a batch that another try fanned out.
func (s *Service) waitVisibleReplay(ctx context.Context, items []DataPoint, outcomes []ingestion.Outcome) error {
	for i, o := range outcomes {
		slug := items[i].Audience
		named := items[i].Private || slug != nil && *slug != audience.Default
		if movesItem(o, named, nil, uuid.Nil) {
			return s.waitVisibleHead(ctx, outcomes)
		}
	}
	return nil
}

// waitVisibleHead waits for everything that is stored now, which includes the fan-out.
func (s *Service) waitVisibleHead(ctx context.Context, outcomes []ingestion.Outcome) error {
	head, err := s.journal.Store.Head(ctx)
	if err != nil {
		return engine.Unavailable(err)
	}
	return s.waitVisibleOutcomes(ctx, head, outcomes...)
}

// makePrivate scopes the private items of a batch to their authors.
func (b *batch) makePrivate(ctx context.Context, s *Service, call engine.Call, items []DataPoint) error {
	var authors []string
	for i, in := range items {
		if in.Private {
			authors = append(authors, b.prepared[i].ingest.Author)
		}
	}
	if len(authors) == 0 {
		return nil
	}
	own, err := s.privateAudiences(ctx, call, authors...)
	if err != nil {
		return err
	}
	for i, in := range items {
		if in.Private {
			b.prepared[i].ingest.Audience = own[b.prepared[i].ingest.Author]
		}
	}
	return nil
}
