package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/panics"
)

// fanOutBulk writes each row of a committed bulk write into the stream of its record, then the statuses into the stream of the write.
// It may run any number of times, also in several processes at once: all append under the same ids.
func (l *Log) fanOutBulk(parent context.Context, directory Directory, waiter Waiter, b *bulk) ([]string, error) {
	earlier, known, err := l.committedSince(parent, b)
	if err != nil {
		return nil, err
	}
	statuses := make([]string, len(b.rows))
	g, ctx := errgroup.WithContext(parent)
	shown := make(chan struct{})
	start := func(work func() error) {
		g.Go(func() error {
			return panics.Call(ctx, l.Logger, "fan-out of a bulk write panicked", work, "bulk", b.id)
		})
	}
	start(func() error {
		waitCtx, cancel := context.WithTimeout(ctx, visibleTimeout)
		defer cancel()
		if err := waiter.Wait(waitCtx, b.commit, projectionDirectory); err != nil {
			return err
		}
		close(shown)
		return nil
	})
	start(func() error {
		if !known {
			// Once the directory has the commit, it knows of every bulk write that was committed earlier.
			select {
			case <-shown:
			case <-ctx.Done():
				return ctx.Err()
			}
			if earlier, err = directory.OpenBulks(ctx, b.project(), b.ids); err != nil {
				return err
			}
		}
		// What was committed earlier stands in the records first: then this one tells what it created and what it updated as if they
		// had been done one after the other.
		if err := l.completeBulks(ctx, earlier, b.ids, b.deadline.Add(-BlobKeep), func(other *bulk) bool { return other.commit < b.commit }); err != nil {
			return err
		}
		return l.each(ctx, len(b.rows), func(ctx context.Context, i int) (err error) {
			if statuses[i], err = l.applyRow(ctx, b, i); err != nil {
				return fmt.Errorf("row %d of bulk write %s: %w", i, b.id, err)
			}
			return nil
		})
	})
	// The directory reads the rows where it shows the commit: they end only behind both.
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return l.endBulk(parent, b, statuses)
}

// mostBetween is how many events between the look of a bulk write and its commit are read. Where there are more, it waits for the directory.
const mostBetween = 256

// committedSince are the bulk writes of the same records that were committed between the look that a bulk write was decided on, up to which
// none is open, and its own commit. known is false where that is not to be had at little cost.
func (l *Log) committedSince(ctx context.Context, b *bulk) (ids []uuid.UUID, known bool, err error) {
	if b.looked == nil {
		return nil, false, nil
	}
	records, err := l.Store.ReadAll(ctx, b.looked.head, mostBetween)
	if err != nil {
		return nil, false, unavailable(err)
	}
	concerned := make(map[uuid.UUID]bool, len(b.ids))
	for _, id := range b.ids {
		concerned[id] = true
	}
	for _, r := range records {
		if r.Position >= b.commit {
			return ids, true, nil
		}
		if r.System() || stream.Family(r.Stream) != stream.Bulk {
			continue
		}
		f := l.Codec.Fact(r)
		if f.Err != nil {
			return nil, false, f.Err
		}
		other, is := f.Event.(*identity.BulkAccepted)
		if is && slices.ContainsFunc(other.Targets, func(t identity.BulkTarget) bool { return concerned[t.IdentityID] }) {
			ids = append(ids, stream.Owner(r.Stream))
		}
	}
	return nil, false, nil
}

// endBulk says that a bulk write is fanned out, and ends its rows. Where another run was first, what that stored is the answer.
func (l *Log) endBulk(ctx context.Context, b *bulk, statuses []string) ([]string, error) {
	name := stream.Name(stream.Bulk, b.id)
	_, err := l.Append(ctx, name, 0, b.meta("done"), identity.BulkFannedOut{ProjectID: b.accepted.ProjectID, Statuses: statuses})
	if errors.Is(err, eventstore.ErrConflict) {
		facts, err := l.ReadFrom(ctx, name, 1)
		if err != nil {
			return nil, err
		}
		done := bulkFannedOut(facts)
		if done == nil {
			return nil, fmt.Errorf("bulk write %s: neither open nor fanned out", b.id)
		}
		statuses = done.Statuses
	} else if err != nil {
		return nil, err
	}
	l.dropStage(ctx, b.accepted.Rows.Stream)
	return statuses, nil
}

// completeRows writes the rows of every open bulk write that concern the records.
func (l *Log) completeRows(ctx context.Context, directory Directory, project auth.Project, ids []uuid.UUID, now time.Time) error {
	open, err := directory.OpenBulks(ctx, project, ids)
	if err != nil {
		return err
	}
	return l.completeBulks(ctx, open, ids, now, func(*bulk) bool { return true })
}

// completeBulks writes those rows of bulk writes that concern the records, in the order of the commits.
func (l *Log) completeBulks(ctx context.Context, open, ids []uuid.UUID, now time.Time, want func(*bulk) bool) error {
	var bulks []*bulk
	for _, id := range open {
		b, err := l.readBulk(ctx, id, now)
		if _, lost := errors.AsType[*stageError](err); lost {
			l.Logger.ErrorContext(ctx, "the rows of a bulk write are lost", "bulk", id, "err", err)
			continue // nobody can write them; the finisher ends it
		}
		if err != nil {
			return err
		}
		if b != nil && want(b) {
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
		if err := l.each(ctx, len(rows), func(ctx context.Context, n int) error {
			_, err := l.applyRow(ctx, b, rows[n])
			return err
		}); err != nil {
			return fmt.Errorf("bulk write %s: %w", b.id, err)
		}
	}
	return nil
}

// applyRow writes one row, where it stands among what its record has become since the commit. A row that stands already is left.
func (l *Log) applyRow(ctx context.Context, b *bulk, i int) (status string, err error) {
	target, meta := b.accepted.Targets[i], b.meta(fmt.Sprintf("row:%d", i))
	name := stream.Name(stream.Identity, target.IdentityID)
	o := owner{
		project: b.accepted.ProjectID, identity: target.IdentityID, deadline: b.deadline, meta: meta, blobs: &written{},
	}
	row := bulkRow{bulk: b, ordinal: i, owner: o}
	// What it was decided on stands, as long as the store does not say otherwise.
	for look := b.looked == nil || b.looked.standing[i].Hidden; ; look = true {
		var place identity.Placement
		at := eventstore.Revision(target.Decided)
		if look {
			var applied *identity.BulkRowApplied
			if place, at, applied, err = l.placeOf(ctx, name, eventstore.Revision(target.Decided), b.commit, meta.CommandID); err != nil {
				return "", err
			}
			if applied != nil {
				return applied.Status, nil
			}
		} else {
			place = identity.Place(b.looked.standing[i].Record, nil, uint64(b.commit))
		}
		e, err := l.rowEvent(ctx, &row, place)
		if err != nil {
			return "", err
		}
		_, err = l.appendReferring(ctx, o.blobs, name, at, meta, e)
		if !errors.Is(err, eventstore.ErrConflict) {
			return e.Status, err
		}
	}
}

// placeOf finds where a row stands in the stream of its record; applied is the row itself where it is there.
func (l *Log) placeOf(ctx context.Context, name string, decided eventstore.Revision, commit eventstore.Position, command uuid.UUID) (
	place identity.Placement, at eventstore.Revision, applied *identity.BulkRowApplied, err error,
) {
	facts, err := l.ReadFrom(ctx, name, max(decided, 0))
	if err != nil {
		return place, 0, nil, err
	}
	var base *identity.Record
	var stored []identity.Effect
	at = eventstore.NoStream
	if decided >= 0 && len(facts) > 0 && facts[0].Revision > decided {
		base = &identity.Record{} // cut off by a removal behind it, which is among the facts: nothing of it shows but that it was there
	}
	for _, f := range facts {
		at = f.Revision
		row, isRow := f.Event.(*identity.BulkRowApplied)
		if isRow && f.Details.CommandID == command {
			return place, at, row, nil
		}
		if f.Revision == decided {
			if base, err = l.recordAt(ctx, f); err != nil {
				return place, 0, nil, err
			}
			continue
		}
		effect := identity.Effect{At: uint64(f.Position), Event: f.Event}
		if isRow {
			effect.At = row.Commit
		}
		stored = append(stored, effect)
	}
	return identity.Place(base, stored, uint64(commit)), at, nil, nil
}

// bulkRow is one row on its way into the stream of its record. Its own traits are written once, however often it is decided.
type bulkRow struct {
	*bulk
	ordinal int
	owner   owner
	own     *identity.Traits
}

// rowEvent makes the event of a row in its place.
func (l *Log) rowEvent(ctx context.Context, r *bulkRow, place identity.Placement) (e identity.BulkRowApplied, err error) {
	e = identity.BulkRowApplied{
		ProjectID: r.accepted.ProjectID, BulkID: r.id, Ordinal: r.ordinal, Commit: uint64(r.commit), Status: place.Status, History: place.History,
	}
	row := r.rows[r.ordinal]
	var traits identity.Traits
	switch {
	case place.Stands: // says its own
	case len(place.Patches) > 0:
		under := row.Traits
		for _, patch := range place.Patches {
			if patch, err = l.patchOf(ctx, patch); err != nil {
				return e, err
			}
			under = patch.Apply(under)
		}
		if traits, err = l.placeTraits(ctx, r.owner, under); err != nil {
			return e, err
		}
	default:
		if r.own == nil {
			own, err := l.placeTraits(ctx, r.owner, row.Traits)
			if err != nil {
				return e, err
			}
			r.own = &own
		}
		traits = *r.own
	}
	e.Record = place.Record(row, traits, r.accepted.Origin, r.accepted.AcceptedAt)
	return e, nil
}

// ResumeBulk completes the fan-out of a committed bulk write that its process left; one that is complete is left as it is. One whose
// rows are lost ends with what stands of it: no other try reads more.
func (l *Log) ResumeBulk(ctx context.Context, directory Directory, waiter Waiter, id uuid.UUID, now time.Time) error {
	b, err := l.readBulk(ctx, id, now)
	if lost, is := errors.AsType[*stageError](err); is {
		l.Logger.ErrorContext(ctx, "a bulk write is given up since its rows are lost", "bulk", id, "err", lost)
		return l.giveUpBulk(ctx, b)
	}
	if err != nil || b == nil {
		return err
	}
	_, err = l.fanOutBulk(ctx, directory, waiter, b)
	return err
}

// giveUpBulk ends a bulk write whose rows cannot be read. The statuses of rows that do not stand are empty.
func (l *Log) giveUpBulk(ctx context.Context, b *bulk) error {
	statuses := make([]string, len(b.accepted.Targets))
	err := l.each(ctx, len(statuses), func(ctx context.Context, i int) error {
		target := b.accepted.Targets[i]
		name := stream.Name(stream.Identity, target.IdentityID)
		_, _, applied, err := l.placeOf(ctx, name, eventstore.Revision(target.Decided), b.commit, b.meta(fmt.Sprintf("row:%d", i)).CommandID)
		if applied != nil {
			statuses[i] = applied.Status
		}
		return err
	})
	if err != nil {
		return err
	}
	_, err = l.endBulk(ctx, b, statuses)
	return err
}
