package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
)

// DeleteDataPoints deletes live data points by source id, all or none. IDs are distinct, 1 to
// limit.DeletionIDs. A data point that a committed batch creates is live before its fan-out. The
// call returns once recall excludes the data points.
//
// Its fault is data-point-not-found, with the unknown ids. With Call.Own those of other authors are unknown.
func (s *Service) DeleteDataPoints(ctx context.Context, call engine.Call, ids []string) (DeletionReceipt, error) {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	d := &deletionRun{id: uuid.Must(uuid.NewV7()), targets: make([]target, len(ids))}
	err := s.journal.Each(decideCtx, len(ids), func(ctx context.Context, i int) error {
		var err error
		d.targets[i], err = readTarget(ctx, s.journal, stream.DataPointID(call.Principal.Project.Namespace, ids[i]))
		return err
	})
	if err != nil {
		return DeletionReceipt{}, err
	}
	if err := s.findEnded(decideCtx, call, d.targets); err != nil {
		return DeletionReceipt{}, err
	}
	pending, err := s.pending(decideCtx, call, d.targets)
	if err != nil {
		return DeletionReceipt{}, err
	}
	var unknown []string
	for i, t := range d.targets {
		own, err := isOwn(decideCtx, s.journal, call, t)
		if err != nil {
			return DeletionReceipt{}, err
		}
		if !own || !t.live() && !pending[t.dataPoint] {
			unknown = append(unknown, ids[i])
		}
	}
	if len(unknown) > 0 {
		return DeletionReceipt{}, engine.RefuseRemoval(ctx, s.waiter, fault.New(fault.NotFound, fault.CodeDataPointNotFound,
			"nothing was deleted: %d of the ids name no live data point", len(unknown)).With("ids", unknown),
			lastRemoval(d.targets), projection.DataPoints)
	}
	position, err := s.commitDeletion(decideCtx, ctx, call, d)
	if err != nil {
		return DeletionReceipt{}, err
	}
	if position == 0 { // lost to another deletion of the same single id
		refusal := fault.New(fault.NotFound, fault.CodeDataPointNotFound,
			"nothing was deleted: the id names no live data point").With("ids", ids)
		name := stream.Name(stream.DataPoint, d.targets[0].dataPoint)
		return DeletionReceipt{},
			engine.RefuseRemovalFrom(decideCtx, s.journal, s.waiter, refusal, name, projection.DataPoints)
	}
	return DeletionReceipt{OperationID: d.id, IDs: ids}, engine.WaitVisible(ctx, s.waiter, position, projection.DataPoints)
}

// pending returns which of the targets without events a committed batch creates in its fan-out.
func (s *Service) pending(ctx context.Context, call engine.Call, targets []target) (map[uuid.UUID]bool, error) {
	var unwritten []uuid.UUID
	for _, t := range targets {
		if t.at == eventstore.NoStream {
			unwritten = append(unwritten, t.dataPoint)
		}
	}
	if len(unwritten) == 0 {
		return nil, nil //nolint:nilnil // no target can be pending
	}
	return s.sends.Pending(ctx, call.Principal.Project, unwritten)
}

// targetsOf returns the data points of a send. Its fault is not-found.
func (s *Service) targetsOf(ctx context.Context, call engine.Call, send uuid.UUID) ([]uuid.UUID, error) {
	dataPoints, found, err := s.sends.Targets(ctx, call.Principal.Project, send)
	if err == nil && !found {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "the project has no ingestion %s", send)
	}
	return dataPoints, err
}

// DeleteSend deletes the data points whose newest revision is that of the send. A second call
// changes nothing. Its fault is not-found.
func (s *Service) DeleteSend(ctx context.Context, call engine.Call, id uuid.UUID) error {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	dataPoints, err := s.targetsOf(decideCtx, call, id)
	if err != nil {
		return err
	}
	send, err := readSend(decideCtx, s.journal, id)
	if err != nil {
		return err
	}
	open, stopped := send.PendingFanOut(), send.Abandoned()
	var removed eventstore.Position
	d := &deletionRun{id: uuid.Must(uuid.NewV7()), ingestionID: id}
	if open {
		d.id = stream.SendDeletionID(id)
	}
	if open && !stopped {
		for _, item := range send.Batch.Items {
			d.targets = append(d.targets, target{dataPoint: item.DataPoint, at: eventstore.Revision(item.Decided)})
		}
	} else if d.targets, removed, err = s.newestOf(decideCtx, call, dataPoints, id); err != nil {
		return err
	}
	// An abandoned batch may have nothing to delete, but it counts as stopped until it is deleted.
	if len(d.targets) == 0 && !open {
		return engine.WaitVisible(ctx, s.waiter, removed, projection.DataPoints)
	}
	position, err := s.commitDeletion(decideCtx, ctx, call, d)
	if err != nil {
		return err
	}
	return engine.WaitVisible(ctx, s.waiter, position, projection.DataPoints)
}

// newestOf returns those of the data points whose newest revision is that of a send, and where
// the last of the deleted ones was deleted.
func (s *Service) newestOf(
	ctx context.Context, call engine.Call, dataPoints []uuid.UUID, send uuid.UUID,
) (newest []target, removed eventstore.Position, err error) {
	found := make([]target, len(dataPoints))
	err = s.journal.Each(ctx, len(dataPoints), func(ctx context.Context, i int) error {
		var err error
		found[i], err = readTarget(ctx, s.journal, dataPoints[i])
		return err
	})
	if err == nil {
		err = s.findEnded(ctx, call, found)
	}
	removed = lastRemoval(found)
	return slices.DeleteFunc(found, func(t target) bool { return !t.live() || t.head.IngestionID != send }), removed, err
}

// findEnded finds the targets that are live in the tables although their streams are tombstoned, which somebody else
// did. The service tombstones the stream of a data point once the tables know of its deletion.
func (s *Service) findEnded(ctx context.Context, call engine.Call, targets []target) error {
	var gone []uuid.UUID
	for _, t := range targets {
		if t.tombstoned {
			gone = append(gone, t.dataPoint)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	live, err := s.sends.NewestSends(ctx, call.Principal.Project, gone)
	if err != nil {
		return err
	}
	for i := range targets {
		t := &targets[i]
		if send, is := live[t.dataPoint]; is && t.tombstoned {
			t.ended, t.head.IngestionID = true, send
		}
	}
	return nil
}

// deletionRun is a deletion between its decision and the end of its fan-out.
type deletionRun struct {
	id          uuid.UUID
	ingestionID uuid.UUID // set for the deletion of a send: only its own revisions are deleted
	accepted    deletion.Accepted
	targets     []target
}

// target is a data point as the deletion found it.
type target struct {
	dataPoint uuid.UUID
	at        eventstore.Revision // NoStream if it has no events
	head      datapoint.State
	gone      bool // deleted, or erased since
	// tombstoned reports that its stream is, and ended that somebody else did that and the data point is live.
	tombstoned, ended bool
	// removed is where it was deleted, 0 if it is live or erased.
	removed eventstore.Position
}

func (t target) live() bool { return t.ended || !t.gone && t.at != eventstore.NoStream }

// decided is the stream revision that a deletion records of the target.
func (t target) decided() int64 {
	if t.ended {
		return deletion.Ended
	}
	return int64(t.at)
}

// readTarget reads a data point.
func readTarget(ctx context.Context, l *engine.Journal, dataPoint uuid.UUID) (target, error) {
	last, ok, err := l.Last(ctx, stream.Name(stream.DataPoint, dataPoint))
	switch {
	case errors.Is(err, eventstore.ErrDeleted):
		return target{dataPoint: dataPoint, gone: true, tombstoned: true}, nil
	case err != nil:
		return target{}, err
	case !ok:
		return target{dataPoint: dataPoint, at: eventstore.NoStream}, nil
	}
	_, current, live := datapoint.SendOf(last.Event)
	t := target{dataPoint: dataPoint, at: last.Revision, head: current.Head(), gone: !live}
	if t.gone {
		t.removed = last.Position
	}
	return t, nil
}

// lastRemoval is the position of the last deletion among targets, 0 if none is known to be deleted.
func lastRemoval(targets []target) (last eventstore.Position) {
	for _, t := range targets {
		last = max(last, t.removed)
	}
	return last
}

// commitDeletion commits the deletion and fans it out. One id is one append: then the position is 0
// if another deletion was first.
func (s *Service) commitDeletion(
	ctx, caller context.Context, call engine.Call, d *deletionRun,
) (eventstore.Position, error) {
	d.accepted = deletion.Accepted{
		ProjectID: call.Principal.Project.ID, IngestionID: d.ingestionID, RequestID: call.RequestID,
		Principal: call.Principal.Name(), FanOut: uuid.New(), AcceptedAt: call.ReceivedAt,
		Targets: make([]deletion.Target, len(d.targets)),
	}
	for i, t := range d.targets {
		d.accepted.Targets[i] = deletion.Target{DataPoint: t.dataPoint, Decided: t.decided()}
	}
	if len(d.targets) == 1 && d.ingestionID == uuid.Nil && !d.targets[0].ended {
		position, _, err := deleteOne(ctx, s.journal, d.id, &d.accepted, d.targets[0], true)
		return position, err
	}
	_, err := s.journal.Append(ctx, stream.Name(stream.Deletion, d.id), eventstore.NoStream, call.Meta(uuid.New()),
		d.accepted)
	recorded := errors.Is(err, eventstore.ErrConflict) && d.id == stream.SendDeletionID(d.ingestionID) // by another call
	if err != nil && !recorded {
		return 0, err
	}
	// The deletion is accepted now: continue even if the caller is gone.
	fanCtx, cancel := context.WithTimeout(context.WithoutCancel(caller), engine.FanOutTimeout)
	defer cancel()
	var position eventstore.Position
	if d.id == stream.SendDeletionID(d.ingestionID) {
		position, err = ResumeDeletion(fanCtx, s.journal, d.id, call.ReceivedAt)
	} else {
		position, err = fanOutDeletion(fanCtx, s.journal, d)
	}
	if err != nil {
		s.journal.Logger.ErrorContext(ctx, "fan-out of deletion failed, the finisher will retry", "deletion", d.id,
			"err", err)
		return 0, fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the deletion is accepted and will be completed; it is not complete yet").
			With("committed", true).With("operationId", d.id)
	}
	return position, nil
}

// fanOutDeletion deletes each target and records that in the stream of the deletion. It may run any
// number of times.
func fanOutDeletion(ctx context.Context, l *engine.Journal, d *deletionRun) (eventstore.Position, error) {
	isDeleted := make([]bool, len(d.targets))
	err := l.Each(ctx, len(d.targets), func(ctx context.Context, i int) error {
		var err error
		_, isDeleted[i], err = deleteOne(ctx, l, d.id, &d.accepted, d.targets[i], false)
		if err != nil {
			return fmt.Errorf("target %d of deletion %s: %w", i, d.id, err)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	var deleted, retained []uuid.UUID
	for i, t := range d.targets {
		if isDeleted[i] {
			deleted = append(deleted, t.dataPoint)
		} else {
			retained = append(retained, t.dataPoint)
		}
	}
	if err := deleteEnded(ctx, l, d); err != nil {
		return 0, err
	}
	name := stream.Name(stream.Deletion, d.id)
	done, err := engine.Decide(ctx, l, engine.Decision[deletion.State]{
		Stream: name, Read: engine.Folded[deletion.State](l, name),
		Decide: func(_ context.Context, state deletion.State) ([]event.Event, error) {
			return state.CompleteFanOut(deleted, retained), nil
		},
		Meta: func() event.Meta { return fanOutMeta(&d.accepted, "done") },
	})
	return done.Position, err
}

// endedFacts is how many data points whose streams are ended one append deletes: they fit into it.
const endedFacts = 500

// deleteEnded deletes the targets whose streams are ended.
func deleteEnded(ctx context.Context, l *engine.Journal, d *deletionRun) error {
	isEnded := func(t deletion.Target) bool { return t.Decided == deletion.Ended }
	if !slices.ContainsFunc(d.accepted.Targets, isEnded) {
		return nil
	}
	name := stream.Name(stream.Deletion, d.id)
	for more := true; more; {
		what := ""
		_, err := engine.Decide(ctx, l, engine.Decision[deletion.State]{
			Stream: name, Read: engine.Folded[deletion.State](l, name),
			Decide: func(_ context.Context, state deletion.State) ([]event.Event, error) {
				facts := state.EndedFacts(endedFacts)
				if more = len(facts) == endedFacts; len(facts) > 0 {
					// Another part of the list is another command.
					what = fmt.Sprintf("ended after %d events", state.Events)
				}
				return facts, nil
			},
			Meta: func() event.Meta { return fanOutMeta(&d.accepted, what) },
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteOne deletes one data point at whatever stream revision it has. deleted is false if the
// deletion is that of a send, and another send created the newest revision. For a data point that
// another deletion deleted first, deleted is true and the position is 0.
//
// A data point without events is deleted before a batch creates it: the fan-out of the batch finds
// the deletion.
func deleteOne(
	ctx context.Context, l *engine.Journal, id uuid.UUID, accepted *deletion.Accepted, t target, single bool,
) (position eventstore.Position, deleted bool, err error) {
	name := stream.Name(stream.DataPoint, t.dataPoint)
	err = engine.UntilNoConflict(ctx, nil, func(reread bool) (err error) {
		if reread {
			if t, err = readTarget(ctx, l, t.dataPoint); err != nil {
				return err
			}
		}
		deleted = t.gone || accepted.IngestionID == uuid.Nil || t.head.IngestionID == accepted.IngestionID
		if t.gone || !deleted {
			return nil
		}
		e := deletedBy(id, accepted, t.head.IngestionID, single)
		done, err := l.Append(ctx, name, t.at, targetMeta(accepted, t.dataPoint), e)
		position = done.Position
		if errors.Is(err, eventstore.ErrDeleted) {
			return nil
		}
		return err
	})
	return position, deleted && err == nil, err
}

// deletedBy returns the event of a deletion for a data point whose newest revision a send created.
func deletedBy(id uuid.UUID, accepted *deletion.Accepted, send uuid.UUID, single bool) datapoint.Deleted {
	return datapoint.Deleted{
		ProjectID: accepted.ProjectID, DeletionID: id, RequestID: accepted.RequestID, DeletedAt: accepted.AcceptedAt,
		IngestionID: send, Single: single,
	}
}

// targetMeta is the metadata of what the fan-out of a deletion appends to a data point, in any
// process.
func targetMeta(accepted *deletion.Accepted, dataPoint uuid.UUID) event.Meta {
	return fanOutMeta(accepted, dataPoint.String())
}

func fanOutMeta(accepted *deletion.Accepted, what string) event.Meta {
	return event.Meta{
		RequestID: accepted.RequestID, CommandID: uuid.NewSHA1(accepted.FanOut, []byte(what)),
		Principal: accepted.Principal, CorrelationID: accepted.RequestID, At: accepted.AcceptedAt,
	}
}

// isOwn reports whether a call may delete a target. Without a bound it may delete each.
func isOwn(ctx context.Context, l *engine.Journal, call engine.Call, t target) (bool, error) {
	if call.Own == nil {
		return true, nil
	}
	if t.ended || !t.live() {
		return false, nil
	}
	author, err := authorOf(ctx, l, stream.Name(stream.DataPoint, t.dataPoint), t.head, eventstore.DecodedEvent{})
	return author == *call.Own, err
}
