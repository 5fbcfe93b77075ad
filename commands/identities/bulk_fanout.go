package identities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/projection"
)

// fanOutBulk appends each row of a committed bulk write to the stream of its record, and then the
// statuses to the stream of the write. It may run any number of times, in several processes at
// once: all append under the same ids.
func fanOutBulk(
	parent context.Context, l *engine.Journal, directory Directory, waiter engine.Waiter, b *bulk,
) ([]string, error) {
	earlier, known, err := committedSince(parent, l, b)
	if err != nil {
		return nil, err
	}
	statuses := make([]string, len(b.rows))
	g, ctx := errgroup.WithContext(parent)
	visible := make(chan struct{})
	start := func(work func() error) {
		g.Go(func() error {
			return panics.Call(ctx, l.Logger, "fan-out of a bulk write panicked", work, "bulk", b.id)
		})
	}
	start(func() error {
		waitCtx, cancel := context.WithTimeout(ctx, engine.VisibleTimeout)
		defer cancel()
		if err := waiter.Wait(waitCtx, b.commit, projection.Directory); err != nil {
			return err
		}
		close(visible)
		return nil
	})
	start(func() error {
		if !known {
			// Once the directory has applied the commit, it knows every bulk write that was committed
			// earlier.
			select {
			case <-visible:
			case <-ctx.Done():
				return ctx.Err()
			}
			if earlier, err = directory.OpenBulks(ctx, b.project(), b.ids); err != nil {
				return err
			}
		}
		// Store the rows of earlier commits first, so that this write finds what it created and what it
		// updated as if one had followed the other.
		earlierCommit := func(other *bulk) bool { return other.commit < b.commit }
		if err := completeBulks(ctx, l, earlier, b.ids, b.deadline.Add(-blob.Keep), earlierCommit); err != nil {
			return err
		}
		return l.Each(ctx, len(b.rows), func(ctx context.Context, i int) (err error) {
			if statuses[i], err = applyRow(ctx, l, b, i); err != nil {
				return fmt.Errorf("row %d of bulk write %s: %w", i, b.id, err)
			}
			return nil
		})
	})
	// The directory reads the rows when it applies the commit: tombstone them only after that.
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return closeBulk(parent, l, b, statuses)
}

// mostBetween is how many events between the read of a bulk write and its commit are read. If there
// are more, it waits for the directory.
const mostBetween = 256

// committedSince returns the bulk writes of the same records that were committed between the read
// that a bulk write was decided on and its own commit. known is false if there are too many events
// to read.
func committedSince(ctx context.Context, l *engine.Journal, b *bulk) (ids []uuid.UUID, known bool, err error) {
	if b.decidedOn == nil {
		return nil, false, nil
	}
	records, err := l.Store.ReadAll(ctx, b.decidedOn.head, mostBetween)
	if err != nil {
		return nil, false, engine.Unavailable(err)
	}
	concerned := make(map[uuid.UUID]bool, len(b.ids))
	for _, id := range b.ids {
		concerned[id] = true
	}
	for _, r := range records {
		if r.Position >= b.commit {
			return ids, true, nil
		}
		if r.System() || stream.Category(r.Stream) != stream.Bulk {
			continue
		}
		f, err := l.Decode(ctx, r)
		if err != nil {
			return nil, false, engine.Unavailable(err)
		}
		other, is := f.Event.(*identity.BulkAccepted)
		if is && slices.ContainsFunc(other.Targets, func(t identity.BulkTarget) bool { return concerned[t.IdentityID] }) {
			ids = append(ids, stream.Owner(r.Stream))
		}
	}
	return nil, false, nil
}

// closeBulk records that the fan-out is complete, and tombstones the rows. If another run was
// first, it returns the statuses of that run.
func closeBulk(ctx context.Context, l *engine.Journal, b *bulk, statuses []string) ([]string, error) {
	name := stream.Name(stream.Bulk, b.id)
	_, err := l.Append(ctx, name, 0, b.meta("done"),
		identity.BulkFannedOut{ProjectID: b.accepted.ProjectID, Statuses: statuses})
	if errors.Is(err, eventstore.ErrConflict) {
		events, err := l.ReadFrom(ctx, name, 1)
		if err != nil {
			return nil, err
		}
		done := bulkFannedOut(events)
		if done == nil {
			return nil, fmt.Errorf("bulk write %s: neither open nor fanned out", b.id)
		}
		statuses = done.Statuses
	} else if err != nil {
		return nil, err
	}
	l.TombstoneStage(ctx, b.accepted.Rows.Stream)
	return statuses, nil
}

// fanOutRows appends the rows of every pending bulk write that concern the records.
func fanOutRows(
	ctx context.Context, l *engine.Journal, directory Directory, project auth.Project, ids []uuid.UUID, now time.Time,
) error {
	open, err := directory.OpenBulks(ctx, project, ids)
	if err != nil {
		return err
	}
	return completeBulks(ctx, l, open, ids, now, func(*bulk) bool { return true })
}

// BulkRows completes the rows of bulk writes for the erasure of an identity.
type BulkRows struct {
	Journal   *engine.Journal
	Directory Directory
}

// CompleteRows writes the rows of every committed bulk write that concern an identity.
func (b BulkRows) CompleteRows(ctx context.Context, project, identity uuid.UUID, now time.Time) error {
	return fanOutRows(ctx, b.Journal, b.Directory, auth.Project{ID: project}, []uuid.UUID{identity}, now)
}

// completeBulks appends those rows of bulk writes that concern the records, in the order of the
// commits.
func completeBulks(
	ctx context.Context, l *engine.Journal, open, ids []uuid.UUID, now time.Time, include func(*bulk) bool,
) error {
	var bulks []*bulk
	for _, id := range open {
		b, err := readBulk(ctx, l, id, now)
		if _, lost := errors.AsType[*engine.StageError](err); lost {
			l.Logger.ErrorContext(ctx, "rows of a bulk write cannot be read, they are skipped", "bulk", id, "err", err)
			continue // no process can write them; the finisher abandons the write
		}
		if err != nil {
			return err
		}
		if b != nil && include(b) {
			bulks = append(bulks, b)
		}
	}
	slices.SortFunc(bulks, func(a, b *bulk) int {
		if a.commit < b.commit {
			return -1
		}
		return 1
	})
	concerned := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		concerned[id] = true
	}
	for _, b := range bulks {
		var rows []int
		for i, id := range b.ids {
			if concerned[id] {
				rows = append(rows, i)
			}
		}
		if err := l.Each(ctx, len(rows), func(ctx context.Context, n int) error {
			_, err := applyRow(ctx, l, b, rows[n])
			return err
		}); err != nil {
			return fmt.Errorf("bulk write %s: %w", b.id, err)
		}
	}
	return nil
}

// applyRow appends one row, with its effect among the changes of its record since the commit. It
// changes nothing if the row is stored already.
func applyRow(ctx context.Context, l *engine.Journal, b *bulk, i int) (status string, err error) {
	target, meta := b.accepted.Targets[i], b.meta(fmt.Sprintf("row:%d", i))
	name := stream.Name(stream.Identity, target.IdentityID)
	o := owner{
		project: b.accepted.ProjectID, identity: target.IdentityID, deadline: b.deadline, meta: meta,
		blobs: &engine.Written{},
	}
	row := bulkRow{bulk: b, ordinal: i, owner: o}
	// The first try relies on what the row was decided on: the store refuses the append if that
	// changed.
	err = engine.UntilNoConflict(ctx, nil, func(reread bool) error {
		var effect identity.RowEffect
		at := eventstore.Revision(target.Decided)
		if reread || b.decidedOn == nil || b.decidedOn.current[i].Hidden {
			var applied *identity.BulkRowApplied
			var err error
			effect, at, applied, err = resolveRow(ctx, l, name, eventstore.Revision(target.Decided), b.commit, meta.CommandID)
			if err != nil {
				return err
			}
			if applied != nil {
				status = applied.Status
				return nil
			}
		} else {
			effect = identity.ResolveRow(b.decidedOn.current[i].Record, nil, uint64(b.commit))
		}
		e, err := rowEvent(ctx, l, &row, effect)
		if err != nil {
			return err
		}
		status = e.Status
		_, err = l.AppendReferring(ctx, o.blobs, name, at, meta, e)
		return err
	})
	return status, err
}

// resolveRow finds the effect of a row in the stream of its record. applied is the row itself if it
// is stored.
//
// It reads from the revision that the row was decided on. Another bulk write may have been committed
// before that, and fanned out after it. Its effect is among those up to that revision, so the read
// begins earlier, until no such row is left.
func resolveRow(
	ctx context.Context, l *engine.Journal, name string, decided eventstore.Revision, commit eventstore.Position,
	command uuid.UUID,
) (effect identity.RowEffect, at eventstore.Revision, applied *identity.BulkRowApplied, err error) {
	for from, step := decided, eventstore.Revision(1); ; from, step = max(from-step, eventstore.NoStream), 2*step {
		events, err := l.ReadFrom(ctx, name, max(from, 0))
		if err != nil {
			return effect, 0, nil, err
		}
		if from >= 0 && len(events) > 0 && events[0].Revision == from && rowBefore(events[0].Position, events[1:]) {
			continue
		}
		return resolveRowAmong(ctx, l, events, from, commit, command)
	}
}

// rowBefore reports whether one of the events is a bulk row that takes effect before a position.
func rowBefore(position eventstore.Position, events []eventstore.DecodedEvent) bool {
	return slices.ContainsFunc(events, func(f eventstore.DecodedEvent) bool {
		row, is := f.Event.(*identity.BulkRowApplied)
		return is && eventstore.Position(row.Commit) < position
	})
}

// resolveRowAmong finds the effect of a row among the events of a stream from a revision on.
func resolveRowAmong(
	ctx context.Context, l *engine.Journal, events []eventstore.DecodedEvent, from eventstore.Revision,
	commit eventstore.Position,
	command uuid.UUID,
) (effect identity.RowEffect, at eventstore.Revision, applied *identity.BulkRowApplied, err error) {
	var base *identity.Record
	var stored []identity.Effect
	at = eventstore.NoStream
	if from >= 0 && len(events) > 0 && events[0].Revision > from {
		// A later removal among the events truncated it: only its existence matters.
		base = &identity.Record{}
	}
	for _, f := range events {
		at = f.Revision
		row, isRow := f.Event.(*identity.BulkRowApplied)
		if isRow && f.Details.CommandID == command {
			return effect, at, row, nil
		}
		if f.Revision == from {
			if base, err = recordAt(ctx, l, f); err != nil {
				return effect, 0, nil, err
			}
			continue
		}
		later := identity.Effect{At: uint64(f.Position), Event: f.Event}
		if isRow {
			later.At = row.Commit
		}
		stored = append(stored, later)
	}
	return identity.ResolveRow(base, stored, uint64(commit)), at, nil, nil
}

// bulkRow is one row during its fan-out. Its own traits are written once, however often it is
// decided.
type bulkRow struct {
	*bulk
	ordinal   int
	owner     owner
	ownTraits *identity.Traits
}

// rowEvent makes the event of a row with its effect.
func rowEvent(
	ctx context.Context, l *engine.Journal, r *bulkRow, effect identity.RowEffect,
) (e identity.BulkRowApplied, err error) {
	e = identity.BulkRowApplied{
		ProjectID: r.accepted.ProjectID, BulkID: r.id, Ordinal: r.ordinal, Commit: uint64(r.commit),
		Status: effect.Status, History: effect.History,
	}
	row := r.rows[r.ordinal]
	var traits identity.Traits
	switch {
	case effect.Outdated: // later effects replace all traits, so the row needs none
	case len(effect.Patches) > 0:
		merged := row.Traits
		for _, patch := range effect.Patches {
			if patch, err = patchOf(ctx, l, patch); err != nil {
				return e, err
			}
			merged = patch.Apply(merged)
		}
		if traits, err = externalizeTraits(ctx, l, r.owner, merged); err != nil {
			return e, err
		}
	default:
		if r.ownTraits == nil {
			ownTraits, err := externalizeTraits(ctx, l, r.owner, row.Traits)
			if err != nil {
				return e, err
			}
			r.ownTraits = &ownTraits
		}
		traits = *r.ownTraits
	}
	e.Record = effect.Record(row, traits, r.accepted.Origin, r.accepted.AcceptedAt)
	return e, nil
}

// ResumeBulk completes the fan-out of a committed bulk write that its process left. It changes
// nothing if the fan-out is complete. If the rows are lost, it abandons the write with the rows
// that are stored: another try cannot read more.
func ResumeBulk(
	ctx context.Context, l *engine.Journal, directory Directory, waiter engine.Waiter, id uuid.UUID, now time.Time,
) error {
	b, err := readBulk(ctx, l, id, now)
	if lost, is := errors.AsType[*engine.StageError](err); is {
		l.Logger.ErrorContext(ctx, "bulk write abandoned, its rows cannot be read", "bulk", id, "err", lost)
		return abandonBulk(ctx, l, b)
	}
	if err != nil || b == nil {
		return err
	}
	_, err = fanOutBulk(ctx, l, directory, waiter, b)
	return err
}

// abandonBulk ends a bulk write whose rows cannot be read. The statuses of rows that are not stored
// are empty.
func abandonBulk(ctx context.Context, l *engine.Journal, b *bulk) error {
	statuses := make([]string, len(b.accepted.Targets))
	err := l.Each(ctx, len(statuses), func(ctx context.Context, i int) error {
		target := b.accepted.Targets[i]
		name := stream.Name(stream.Identity, target.IdentityID)
		command := b.meta(fmt.Sprintf("row:%d", i)).CommandID
		_, _, applied, err := resolveRow(ctx, l, name, eventstore.Revision(target.Decided), b.commit, command)
		if applied != nil {
			statuses[i] = applied.Status
		}
		return err
	})
	if err != nil {
		return err
	}
	_, err = closeBulk(ctx, l, b, statuses)
	return err
}
