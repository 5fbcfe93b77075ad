package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
)

// fanOutWidth is how many streams a batch or a deletion reads or writes at once. Appends that wait
// together share an fsync and a message to the store: at 128, an item takes three quarters of the
// processor time that it takes at 32.
const fanOutWidth = 128

// fanOutPart is how many items of a batch are appended before the pace is asked again.
const fanOutPart = 256

// fanOutTimeout bounds the work after a commit, which continues when the caller is gone.
const fanOutTimeout = 60 * time.Second

// IngestBatch accepts all items or refuses the whole batch. It stages the items, commits on the
// stream of the send, and fans out into the streams of the data points. After the commit nothing is
// refused.
//
// Its faults are those of Ingest, and name the position of the item. Each source id is in items
// once.
func (s *Service) IngestBatch(ctx context.Context, call Call, items []DataPoint, key string) (BatchReceipt, error) {
	defer s.load.enter(len(items))()
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
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
	audiences := s.audienceNames(call)
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
			s.journal.tombstoneStage(decideCtx, b.accepted.Stage.Stream)
			first, done, err := s.replayBatch(decideCtx, call, id, key, fingerprint, items)
			if !done && err == nil {
				err = fmt.Errorf("send %s: neither new nor known", id)
			}
			return first, err
		}
		return BatchReceipt{}, err
	}
	// The batch is accepted now: continue even if the caller is gone.
	fanCtx, cancelFan := context.WithTimeout(context.WithoutCancel(ctx), fanOutTimeout)
	defer cancelFan()
	outcomes, err := s.journal.fanOutBatch(fanCtx, b)
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
	stage       written
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
func (s *Service) ensureIdentities(ctx context.Context, call Call, items []DataPoint) error {
	var authors []string
	seen := make(map[string]bool)
	for _, in := range items {
		if in.Identity != nil && !seen[*in.Identity] {
			seen[*in.Identity] = true
			authors = append(authors, *in.Identity)
		}
	}
	authors = s.unknownAuthors(ctx, call, authors...)
	return s.journal.each(ctx, len(authors), func(ctx context.Context, i int) error {
		return s.ensureIdentity(ctx, call, authors[i])
	})
}

// commit stages the items and appends the batch to the stream of the send. The append fails with
// eventstore.ErrConflict if another try with the same key was first.
func (s *Service) commit(ctx context.Context, call Call, b *batch, fingerprint string) error {
	command := uuid.New()
	ref, err := s.journal.writeStage(ctx, call, b, command)
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
	done, err := s.journal.appendReferring(ctx, &b.stage, name, eventstore.NoStream, call.meta(command), b.accepted)
	b.reservation.convert(err)
	b.commit = done.Position
	return err
}

// replayBatch returns the receipt of the batch that an idempotency key names, if it is committed.
func (s *Service) replayBatch(
	ctx context.Context, call Call, id uuid.UUID, key, fingerprint string, items []DataPoint,
) (receipt BatchReceipt, done bool, err error) {
	send, err := s.journal.readSend(ctx, id)
	if err != nil || send.Events == 0 {
		return BatchReceipt{}, false, err
	}
	if send.Batch == nil || !send.Matches(fingerprint) {
		return BatchReceipt{}, false, idempotencyConflict(key, id)
	}
	outcomes := send.Outcomes
	if outcomes == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fanOutTimeout)
		defer cancel()
		if outcomes, err = s.journal.resumeOrAbandon(ctx, send, call.ReceivedAt); err != nil {
			return BatchReceipt{}, false, err
		}
	}
	err = s.journal.each(ctx, len(send.Batch.Items), func(ctx context.Context, i int) error {
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

func batchReceipt(call Call, id uuid.UUID, items []DataPoint, outcomes []ingestion.Outcome) BatchReceipt {
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

// each calls work with 0 to n-1, at most fanOutWidth at a time, and stops at the first error. A
// panic of a call is its error.
func (l *Journal) each(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	return panics.Each(ctx, l.Logger, fanOutWidth, n, work)
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
