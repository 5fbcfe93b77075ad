package commands

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// DeleteDataPoints deletes live data points by source id, all or none. IDs are distinct, 1 to 1,000.
// It answers once recall has forgotten them. Its fault is data-point-not-found, with the unknown ids.
func (s *Service) DeleteDataPoints(ctx context.Context, call Call, ids []string) (DeletionReceipt, error) {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	d := &removal{id: uuid.Must(uuid.NewV7()), targets: make([]target, len(ids))}
	live := make([]bool, len(ids))
	err := each(decideCtx, len(ids), func(ctx context.Context, i int) error {
		var err error
		d.targets[i], live[i], err = s.Log.target(ctx, stream.DataPointID(call.Principal.Project.Namespace, ids[i]))
		return err
	})
	if err != nil {
		return DeletionReceipt{}, err
	}
	var unknown []string
	for i, id := range ids {
		if !live[i] {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) > 0 {
		return DeletionReceipt{}, fault.New(fault.NotFound, fault.CodeDataPointNotFound,
			"nothing was deleted: %d of the ids name no live data point", len(unknown)).With("ids", unknown)
	}
	position, err := s.remove(decideCtx, ctx, call, d)
	if err != nil {
		return DeletionReceipt{}, err
	}
	if position == 0 { // lost to another deletion of the same single id
		return DeletionReceipt{}, fault.New(fault.NotFound, fault.CodeDataPointNotFound, "nothing was deleted: the id names no live data point").With("ids", ids)
	}
	return DeletionReceipt{OperationID: d.id, IDs: ids}, visible(ctx, s.Waiter, position, projectionDataPoints)
}

// DeleteSend deletes the data points whose newest revision is that send's. A send that is deleted already changes nothing.
// Its fault is not-found.
func (s *Service) DeleteSend(ctx context.Context, call Call, id uuid.UUID) error {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	dataPoints, found, err := s.Sends.Targets(decideCtx, call.Principal.Project, id)
	if err != nil {
		return err
	}
	if !found {
		return fault.New(fault.NotFound, fault.CodeNotFound, "the project has no ingestion %s", id)
	}
	targets := make([]target, len(dataPoints))
	live := make([]bool, len(dataPoints))
	err = each(decideCtx, len(dataPoints), func(ctx context.Context, i int) error {
		var err error
		targets[i], live[i], err = s.Log.target(ctx, dataPoints[i])
		live[i] = live[i] && targets[i].head.IngestionID == id
		return err
	})
	if err != nil {
		return err
	}
	d := &removal{id: uuid.Must(uuid.NewV7()), ingestionID: id}
	for i, t := range targets {
		if live[i] {
			d.targets = append(d.targets, t)
		}
	}
	if len(d.targets) == 0 {
		facts, err := s.Log.ReadFrom(decideCtx, stream.Name(stream.Ingestion, id), 0)
		if err != nil || !givenUp(facts) {
			return err
		}
		// It holds nothing to delete, but it counts as stopped until it is deleted. Once is enough.
		d.id = endOf(id)
	}
	position, err := s.remove(decideCtx, ctx, call, d)
	if errors.Is(err, eventstore.ErrConflict) && len(d.targets) == 0 {
		return nil // deleted already
	}
	if err != nil {
		return err
	}
	return visible(ctx, s.Waiter, position, projectionDataPoints)
}

// endOf is the id of the one deletion of a batch that was given up.
func endOf(send uuid.UUID) uuid.UUID { return uuid.NewSHA1(send, []byte("deletion")) }

// removal is a deletion on its way.
type removal struct {
	id          uuid.UUID
	ingestionID uuid.UUID // set for the deletion of a send: only its own revisions are taken
	accepted    deletion.Accepted
	targets     []target
}

// target is a data point as the deletion found it.
type target struct {
	dataPoint uuid.UUID
	at        eventstore.Revision
	head      datapoint.State
}

// target reads a data point; live is false where there is none, or none any more.
func (l *Log) target(ctx context.Context, dataPoint uuid.UUID) (t target, live bool, err error) {
	last, ok, err := l.Last(ctx, stream.Name(stream.DataPoint, dataPoint))
	if errors.Is(err, eventstore.ErrDeleted) {
		return target{}, false, nil
	}
	if err != nil || !ok {
		return target{}, false, err
	}
	_, standing, live := datapoint.SendOf(last.Event)
	return target{dataPoint: dataPoint, at: last.Revision, head: standing.Head()}, live, nil
}

// remove commits the deletion and fans it out. One id is one append; the position is 0 where another deletion was first.
func (s *Service) remove(ctx, caller context.Context, call Call, d *removal) (eventstore.Position, error) {
	d.accepted = deletion.Accepted{
		ProjectID: call.Principal.Project.ID, IngestionID: d.ingestionID, RequestID: call.RequestID, Principal: call.Principal.Name(),
		FanOut: uuid.New(), AcceptedAt: call.ReceivedAt, Targets: make([]deletion.Target, len(d.targets)),
	}
	for i, t := range d.targets {
		d.accepted.Targets[i] = deletion.Target{DataPoint: t.dataPoint, Decided: int64(t.at)}
	}
	if len(d.targets) == 1 && d.ingestionID == uuid.Nil {
		position, _, err := s.Log.deleteOne(ctx, d.id, &d.accepted, d.targets[0], true)
		return position, err
	}
	if _, err := s.Log.Append(ctx, stream.Name(stream.Deletion, d.id), eventstore.NoStream, call.meta(uuid.New()), d.accepted); err != nil {
		return 0, err
	}
	// From here on the deletion is accepted whatever becomes of the caller.
	fanCtx, cancel := context.WithTimeout(context.WithoutCancel(caller), fanOutTimeout)
	defer cancel()
	position, err := s.Log.fanOutDeletion(fanCtx, d)
	if err != nil {
		s.Log.Logger.ErrorContext(ctx, "deletion is left to the finisher", "deletion", d.id, "err", err)
		return 0, fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the deletion is accepted but not finished in time; it is finished all the same").With("committed", true).With("operationId", d.id)
	}
	return position, nil
}

// fanOutDeletion ends the stream of each target and says so in the stream of the deletion. It may run any number of times.
func (l *Log) fanOutDeletion(ctx context.Context, d *removal) (eventstore.Position, error) {
	taken := make([]bool, len(d.targets))
	err := each(ctx, len(d.targets), func(ctx context.Context, i int) error {
		var err error
		_, taken[i], err = l.deleteOne(ctx, d.id, &d.accepted, d.targets[i], false)
		if err != nil {
			return fmt.Errorf("target %d of deletion %s: %w", i, d.id, err)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	done := deletion.FannedOut{ProjectID: d.accepted.ProjectID}
	for i, t := range d.targets {
		if taken[i] {
			done.Deleted = append(done.Deleted, t.dataPoint)
		} else {
			done.Kept = append(done.Kept, t.dataPoint)
		}
	}
	name := stream.Name(stream.Deletion, d.id)
	appended, err := l.Append(ctx, name, 0, removalMeta(&d.accepted, "done"), done)
	if errors.Is(err, eventstore.ErrConflict) { // another run was first
		last, _, err := l.Last(ctx, name)
		return last.Position, err
	}
	return appended.Position, err
}

// deleteOne ends one data point wherever it stands. taken is false where the deletion of a send meets a later send's revision.
// A data point that another deletion ended first is taken, at position 0 where it was not this one that ended it.
func (l *Log) deleteOne(ctx context.Context, id uuid.UUID, accepted *deletion.Accepted, t target, single bool) (position eventstore.Position, taken bool, err error) {
	name := stream.Name(stream.DataPoint, t.dataPoint)
	for {
		deleted := datapoint.Deleted{
			ProjectID: accepted.ProjectID, DeletionID: id, RequestID: accepted.RequestID, DeletedAt: accepted.AcceptedAt,
			IngestionID: t.head.IngestionID, Single: single,
		}
		done, err := l.Append(ctx, name, t.at, removalMeta(accepted, t.dataPoint.String()), deleted)
		if err == nil {
			return done.Position, true, nil
		}
		if errors.Is(err, eventstore.ErrDeleted) {
			return 0, true, nil
		}
		if !errors.Is(err, eventstore.ErrConflict) {
			return 0, false, err
		}
		next, live, err := l.target(ctx, t.dataPoint)
		if err != nil {
			return 0, false, err
		}
		if !live {
			return 0, true, nil
		}
		if accepted.IngestionID != uuid.Nil && next.head.IngestionID != accepted.IngestionID {
			return 0, false, nil
		}
		t = next
	}
}

// removalMeta is the metadata of what the fan-out of a deletion appends, whoever runs it; what names the event within it.
func removalMeta(accepted *deletion.Accepted, what string) event.Meta {
	return event.Meta{
		RequestID: accepted.RequestID, CommandID: uuid.NewSHA1(accepted.FanOut, []byte(what)),
		Principal: accepted.Principal, CorrelationID: accepted.RequestID,
	}
}
