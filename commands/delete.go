package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// DeleteDataPoints deletes live data points by source id, all or none. IDs are distinct, 1 to 1,000. A data point that a
// committed batch brings is live before it is fanned out.
// It returns once recall has forgotten them. Its fault is data-point-not-found, with the unknown ids.
func (s *Service) DeleteDataPoints(ctx context.Context, call Call, ids []string) (DeletionReceipt, error) {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	d := &removal{id: uuid.Must(uuid.NewV7()), targets: make([]target, len(ids))}
	err := s.Log.each(decideCtx, len(ids), func(ctx context.Context, i int) error {
		var err error
		d.targets[i], err = s.Log.target(ctx, stream.DataPointID(call.Principal.Project.Namespace, ids[i]))
		return err
	})
	if err != nil {
		return DeletionReceipt{}, err
	}
	pending, err := s.pending(decideCtx, call, d.targets)
	if err != nil {
		return DeletionReceipt{}, err
	}
	var unknown []string
	for i, t := range d.targets {
		if !t.live() && !pending[t.dataPoint] {
			unknown = append(unknown, ids[i])
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

// pending returns which of the targets without events a committed batch brings, once it is fanned out.
func (s *Service) pending(ctx context.Context, call Call, targets []target) (map[uuid.UUID]bool, error) {
	var unwritten []uuid.UUID
	for _, t := range targets {
		if t.at == eventstore.NoStream {
			unwritten = append(unwritten, t.dataPoint)
		}
	}
	if len(unwritten) == 0 {
		return nil, nil //nolint:nilnil // no target can be pending
	}
	return s.Sends.Pending(ctx, call.Principal.Project, unwritten)
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
	facts, err := s.Log.ReadFrom(decideCtx, stream.Name(stream.Ingestion, id), 0)
	if err != nil {
		return err
	}
	open, stopped := unfanned(facts), givenUp(facts)
	d := &removal{id: uuid.Must(uuid.NewV7()), ingestionID: id}
	if open {
		d.id = endOf(id)
	}
	if open && !stopped {
		for _, item := range facts[0].Event.(*ingestion.Accepted).Items {
			d.targets = append(d.targets, target{dataPoint: item.DataPoint, at: eventstore.Revision(item.Decided)})
		}
	} else if d.targets, err = s.Log.newestOf(decideCtx, dataPoints, id); err != nil {
		return err
	}
	// A batch that was given up may have nothing to delete, but it counts as stopped until it is deleted.
	if len(d.targets) == 0 && !open {
		return nil
	}
	position, err := s.remove(decideCtx, ctx, call, d)
	if err != nil {
		return err
	}
	return visible(ctx, s.Waiter, position, projectionDataPoints)
}

// newestOf returns those of the data points whose newest revision is that of a send.
func (l *Log) newestOf(ctx context.Context, dataPoints []uuid.UUID, send uuid.UUID) ([]target, error) {
	found := make([]target, len(dataPoints))
	err := l.each(ctx, len(dataPoints), func(ctx context.Context, i int) error {
		var err error
		found[i], err = l.target(ctx, dataPoints[i])
		return err
	})
	return slices.DeleteFunc(found, func(t target) bool { return !t.live() || t.head.IngestionID != send }), err
}

// endOf is the id of the one deletion of a batch whose fan-out is not complete. It follows from the batch, so that every fan-out
// of it finds the deletion.
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
	at        eventstore.Revision // NoStream if it has no events
	head      datapoint.State
	gone      bool // deleted, or erased since
}

func (t target) live() bool { return !t.gone && t.at != eventstore.NoStream }

// target reads a data point.
func (l *Log) target(ctx context.Context, dataPoint uuid.UUID) (target, error) {
	last, ok, err := l.Last(ctx, stream.Name(stream.DataPoint, dataPoint))
	switch {
	case errors.Is(err, eventstore.ErrDeleted):
		return target{dataPoint: dataPoint, gone: true}, nil
	case err != nil:
		return target{}, err
	case !ok:
		return target{dataPoint: dataPoint, at: eventstore.NoStream}, nil
	}
	_, standing, live := datapoint.SendOf(last.Event)
	return target{dataPoint: dataPoint, at: last.Revision, head: standing.Head(), gone: !live}, nil
}

// remove commits the deletion and fans it out. One id is one append; the position is 0 if another deletion was first.
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
	_, err := s.Log.Append(ctx, stream.Name(stream.Deletion, d.id), eventstore.NoStream, call.meta(uuid.New()), d.accepted)
	recorded := errors.Is(err, eventstore.ErrConflict) && d.id == endOf(d.ingestionID) // by another call
	if err != nil && !recorded {
		return 0, err
	}
	// From here on the deletion is accepted whatever becomes of the caller.
	fanCtx, cancel := context.WithTimeout(context.WithoutCancel(caller), fanOutTimeout)
	defer cancel()
	var position eventstore.Position
	if d.id == endOf(d.ingestionID) {
		position, err = s.Log.ResumeDeletion(fanCtx, d.id, call.ReceivedAt)
	} else {
		position, err = s.Log.fanOutDeletion(fanCtx, d)
	}
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
	err := l.each(ctx, len(d.targets), func(ctx context.Context, i int) error {
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
	appended, err := l.Append(ctx, name, 0, fanOutMeta(&d.accepted, "done"), done)
	if errors.Is(err, eventstore.ErrConflict) { // another run was first
		last, _, err := l.Last(ctx, name)
		return last.Position, err
	}
	return appended.Position, err
}

// deleteOne deletes one data point at whatever revision it is. taken is false if it is a send that is deleted, and another send
// brought the newest revision. A data point that another deletion took first is taken, at position 0.
//
// A data point without events is deleted before a batch brings it: the fan-out of that finds the deletion.
func (l *Log) deleteOne(ctx context.Context, id uuid.UUID, accepted *deletion.Accepted, t target, single bool) (position eventstore.Position, taken bool, err error) {
	name := stream.Name(stream.DataPoint, t.dataPoint)
	for {
		if t.gone {
			return 0, true, nil
		}
		if accepted.IngestionID != uuid.Nil && t.head.IngestionID != accepted.IngestionID {
			return 0, false, nil
		}
		done, err := l.Append(ctx, name, t.at, removalMeta(accepted, t.dataPoint), deletedBy(id, accepted, t.head.IngestionID, single))
		if err == nil {
			return done.Position, true, nil
		}
		if errors.Is(err, eventstore.ErrDeleted) {
			return 0, true, nil
		}
		if !errors.Is(err, eventstore.ErrConflict) {
			return 0, false, err
		}
		if t, err = l.target(ctx, t.dataPoint); err != nil {
			return 0, false, err
		}
	}
}

// deletedBy is the event by which a deletion takes a data point whose newest revision a send brought.
func deletedBy(id uuid.UUID, accepted *deletion.Accepted, send uuid.UUID, single bool) datapoint.Deleted {
	return datapoint.Deleted{
		ProjectID: accepted.ProjectID, DeletionID: id, RequestID: accepted.RequestID, DeletedAt: accepted.AcceptedAt, IngestionID: send, Single: single,
	}
}

// removalMeta is the metadata of what the fan-out of a deletion appends to a data point, whichever process runs it.
func removalMeta(accepted *deletion.Accepted, dataPoint uuid.UUID) event.Meta {
	return fanOutMeta(accepted, dataPoint.String())
}

func fanOutMeta(accepted *deletion.Accepted, what string) event.Meta {
	return event.Meta{
		RequestID: accepted.RequestID, CommandID: uuid.NewSHA1(accepted.FanOut, []byte(what)),
		Principal: accepted.Principal, CorrelationID: accepted.RequestID,
	}
}
