package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
)

// fanOutWidth is how many streams a batch or a deletion reads or writes at once: appends that wait together share an fsync and
// their way there. At 128 an item takes three quarters of the processor time that it takes at 32.
const fanOutWidth = 128

// fanOutTimeout bounds what a commit sets off, which goes on when the caller is gone.
const fanOutTimeout = 60 * time.Second

// IngestBatch accepts all items or refuses the batch whole: it stages the items, commits on the send's own stream, and fans
// out into the streams of the data points. After the commit nothing is refused.
//
// Its faults are those of Ingest; debugMessage names the position of the item. Items hold each source id once.
func (s *Service) IngestBatch(ctx context.Context, call Call, items []DataPoint, key string) (BatchReceipt, error) {
	defer s.Foreground.enter(len(items))()
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
	b := &batch{id: id, prepared: make([]prepared, len(items)), bases: make([]datapoint.Base, len(items)), effects: make([]eventstore.Position, len(items))}
	audiences := s.audienceNames(call)
	for i, in := range items {
		var err error
		if b.prepared[i], err = s.prepare(decideCtx, call, in, audiences); err != nil {
			return BatchReceipt{}, atItem(err, i)
		}
		send := &b.prepared[i].ingest.Send
		send.IngestionID, send.Ordinal, send.Items = id, i, len(items)
	}
	b.quota = s.quotaOf(call, id)
	defer b.quota.give(ctx)
	if err := s.readBases(decideCtx, b); err != nil {
		return BatchReceipt{}, err
	}
	if items, tenths := b.brings(); items > 0 {
		if err := b.quota.take(decideCtx, items, tenths); err != nil {
			return BatchReceipt{}, err
		}
	}
	if err := s.appearAll(decideCtx, call, items); err != nil {
		return BatchReceipt{}, err
	}
	if err := s.commit(decideCtx, call, b, fingerprint); err != nil {
		if errors.Is(err, eventstore.ErrConflict) { // another try of the same key was first
			s.Log.dropStage(decideCtx, b.accepted.Stage.Stream)
			first, done, err := s.replayBatch(decideCtx, call, id, key, fingerprint, items)
			if !done && err == nil {
				err = fmt.Errorf("send %s: neither new nor known", id)
			}
			return first, err
		}
		return BatchReceipt{}, err
	}
	// From here on the batch is accepted whatever becomes of the caller.
	fanCtx, cancelFan := context.WithTimeout(context.WithoutCancel(ctx), fanOutTimeout)
	defer cancelFan()
	outcomes, err := s.Log.fanOutBatch(fanCtx, b)
	if err != nil {
		s.Log.Logger.ErrorContext(ctx, "fan-out is left to the finisher", "send", id, "err", err)
		return BatchReceipt{}, fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the batch is accepted but not answered in time; it is processed all the same").With("committed", true).With("ingestionId", id)
	}
	return batchReceipt(call, id, items, outcomes), s.followedBatch(fanCtx, b, outcomes)
}

// batch is a batch on its way through commit and fan-out.
type batch struct {
	id       uuid.UUID
	accepted ingestion.Accepted
	stage    written
	commit   eventstore.Position
	prepared []prepared
	bases    []datapoint.Base      // what each item was decided on; State is nil also where the finisher has not read it
	effects  []eventstore.Position // of the bases in the order of effects, 0 where it is to be read
	unread   bool                  // the bases are to be read: the finisher goes on with what another process left
	quota    *quota                // nil where it was committed already
	// deleted is the deletion that was recorded before the fan-out was complete, nil for none.
	deleted *deletion.Accepted
}

// brings is how many items look as if they brought a revision, and what those cost.
func (b *batch) brings() (items, tenths int64) {
	for i, p := range b.prepared {
		if brings(b.bases[i], p.ingest) {
			items++
			tenths += p.ingest.CreditTenths
		}
	}
	return items, tenths
}

// appearAll makes sure that each author has a record.
func (s *Service) appearAll(ctx context.Context, call Call, items []DataPoint) error {
	var authors []string
	seen := make(map[string]bool)
	for _, in := range items {
		if in.Identity != nil && !seen[*in.Identity] {
			seen[*in.Identity] = true
			authors = append(authors, *in.Identity)
		}
	}
	return s.Log.each(ctx, len(authors), func(ctx context.Context, i int) error { return s.appear(ctx, call, authors[i]) })
}

// commit stages the items and appends the batch to the send's own stream, whose emptiness decides whose key it is.
func (s *Service) commit(ctx context.Context, call Call, b *batch, fingerprint string) error {
	command := uuid.New()
	ref, err := s.Log.writeStage(ctx, call, b, command)
	if err != nil {
		return err
	}
	b.accepted = ingestion.Accepted{
		ProjectID: call.Principal.Project.ID, Fingerprint: fingerprint, RequestID: call.RequestID,
		Principal: call.Principal.Name(), FanOut: uuid.NewSHA1(command, []byte("fan-out")), Stage: ref,
		Items: make([]ingestion.Item, len(b.prepared)), AcceptedAt: call.ReceivedAt, Month: b.prepared[0].ingest.Month,
	}
	for i, p := range b.prepared {
		item := ingestion.Item{DataPoint: p.dataPoint, Decided: b.bases[i].Next - 1, Bytes: p.ingest.Bytes}
		if brings(b.bases[i], p.ingest) {
			item.CreditTenths = p.ingest.CreditTenths
		}
		b.accepted.Items[i] = item
	}
	name := stream.Name(stream.Ingestion, b.id)
	done, err := s.Log.appendReferring(ctx, &b.stage, name, eventstore.NoStream, call.meta(command), b.accepted)
	b.quota.appended(err)
	b.commit = done.Position
	return err
}

// replayBatch answers what the key stands for: the outcomes that its fan-out stored.
func (s *Service) replayBatch(ctx context.Context, call Call, id uuid.UUID, key, fingerprint string, items []DataPoint) (BatchReceipt, bool, error) {
	facts, err := s.Log.ReadFrom(ctx, stream.Name(stream.Ingestion, id), 0)
	if err != nil || len(facts) == 0 {
		return BatchReceipt{}, false, err
	}
	accepted, ok := facts[0].Event.(*ingestion.Accepted)
	if !ok || accepted.Fingerprint != fingerprint {
		return BatchReceipt{}, false, idempotencyConflict(key, id)
	}
	outcomes := fannedOut(facts)
	if outcomes == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fanOutTimeout)
		defer cancel()
		if outcomes, err = s.Log.resumeOrGiveUp(ctx, facts, accepted, id, call.ReceivedAt); err != nil {
			return BatchReceipt{}, false, err
		}
	}
	err = s.Log.each(ctx, len(accepted.Items), func(ctx context.Context, i int) error {
		last, _, err := s.Log.Last(ctx, stream.Name(stream.DataPoint, accepted.Items[i].DataPoint))
		if _, deleted := last.Event.(*datapoint.Deleted); deleted || errors.Is(err, eventstore.ErrDeleted) {
			return atItem(dataPointDeleted(sourceIDOf(items[i])), i)
		}
		return err
	})
	if err != nil {
		return BatchReceipt{}, false, err
	}
	return batchReceipt(call, id, items, outcomes), true, s.followedReplay(ctx, items, outcomes)
}

// fannedOut is the outcomes that a finished fan-out stored, nil where it is not finished.
func fannedOut(facts []eventstore.Fact) []ingestion.Outcome {
	for _, f := range facts {
		if done, ok := f.Event.(*ingestion.FannedOut); ok {
			return done.Outcomes
		}
	}
	return nil
}

func batchReceipt(call Call, id uuid.UUID, items []DataPoint, outcomes []ingestion.Outcome) BatchReceipt {
	r := BatchReceipt{ProjectID: call.Principal.Project.Number, IngestionID: id, Status: StatusCompleted, Items: make([]ItemReceipt, len(items))}
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

// each runs work on 0 to n-1, fanOutWidth at a time, and stops at the first error. A panic of one is its error.
func (l *Log) each(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOutWidth)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			return panics.Call(ctx, l.Logger, "work on one item panicked", func() error { return work(ctx, i) }, "item", i)
		})
	}
	return g.Wait()
}

// atItem names the position of the item in a refusal.
func atItem(err error, i int) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	return fault.New(f.Kind, f.Code, "items[%d]: %s", i, f.Msg).WithAll(f.Data).With("item", i)
}

// stagedMeta is the metadata of what the fan-out of a batch appends, whoever runs it.
func stagedMeta(accepted *ingestion.Accepted) event.Meta {
	return event.Meta{RequestID: accepted.RequestID, CommandID: accepted.FanOut, Principal: accepted.Principal, CorrelationID: accepted.RequestID}
}
