package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/todo"
)

// clearing is a removal of an identity whose text is cut off.
type clearing struct {
	todo.Removal
	// waits is true while something else may hold a copy: a bulk write that is not fanned out, or a blob that is loose.
	waits bool
}

// removals calls do with every removal that is not said to be cleared, a page at a time.
func (f *Finisher) removals(ctx context.Context, do func(page []todo.Removal) error) error {
	if f.Identities == nil {
		return nil
	}
	var behind *todo.Removal
	for ctx.Err() == nil {
		page, err := f.Identities.OpenRemovals(ctx, behind, cleanSize)
		if err != nil || len(page) == 0 {
			return err
		}
		if err := do(page); err != nil {
			return err
		}
		behind = &page[len(page)-1]
	}
	return ctx.Err()
}

// cutRemovals cuts off what removals left to the finisher: those that are due.
func (f *Finisher) cutRemovals(ctx context.Context, due func(todo.Removal) bool) error {
	if f.cut == nil {
		f.cut = make(map[uuid.UUID]eventstore.Revision)
	}
	var errs []error
	err := f.removals(ctx, func(page []todo.Removal) error {
		for _, r := range page {
			if f.isKnownCut(r) || !due(r) {
				continue
			}
			err := f.bounded(ctx, func(ctx context.Context) error { return f.Log.CutIdentity(ctx, f.Identities, r, f.Now()) })
			if err != nil {
				errs = append(errs, fmt.Errorf("removal of identity %s: %w", r.IdentityID, err))
				continue
			}
			f.cut[r.IdentityID] = r.Revision
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

func (f *Finisher) isKnownCut(r todo.Removal) bool {
	at, known := f.cut[r.IdentityID]
	return known && at == r.Revision
}

// clearable lists the removals whose text is cut off and may still be on the disk. One that waits for something else is removed from
// the disk once, and comes again when it waits no more.
func (f *Finisher) clearable(ctx context.Context) (found []clearing, err error) {
	cut, parked := make(map[uuid.UUID]eventstore.Revision), make(map[uuid.UUID]eventstore.Revision)
	bulks, whole, err := f.openBulks(ctx)
	if err != nil {
		return nil, err
	}
	err = f.removals(ctx, func(page []todo.Removal) error {
		projects, ids := make([]uuid.UUID, len(page)), make([]uuid.UUID, len(page))
		for n, r := range page {
			projects[n], ids[n] = r.ProjectID, r.IdentityID
		}
		copied, err := f.List.Copied(ctx, projects, ids)
		if err != nil {
			return err
		}
		for _, r := range page {
			if !f.isKnownCut(r) {
				// The process of the removal did it, unless it died.
				done, err := f.Log.IsCut(ctx, r)
				if err != nil {
					return err
				}
				if !done {
					continue
				}
			}
			cut[r.IdentityID] = r.Revision
			first, open := bulks[r.ProjectID]
			c := clearing{Removal: r, waits: !whole || copied[r.IdentityID] || open && first < r.Position}
			if c.waits {
				parked[r.IdentityID] = r.Revision
				if at, known := f.parkedRemovals[r.IdentityID]; known && at == r.Revision {
					continue
				}
			}
			found = append(found, c)
		}
		return nil
	})
	if err == nil {
		f.cut, f.parkedRemovals = cut, parked
	}
	return found, err
}

// openBulks are where the first bulk write of each project was committed that is not fanned out; whole is false where there are more.
func (f *Finisher) openBulks(ctx context.Context) (first map[uuid.UUID]eventstore.Position, whole bool, err error) {
	if f.Identities == nil {
		return nil, true, nil
	}
	open, err := f.Identities.UnfannedBulks(ctx, cleanSize)
	first = make(map[uuid.UUID]eventstore.Position)
	for _, b := range open {
		if _, known := first[b.ProjectID]; !known {
			first[b.ProjectID] = b.Position
		}
	}
	return first, len(open) < cleanSize, err
}

// openWork adds what writes of identities left to what else is before the finisher.
func (f *Finisher) openWork(ctx context.Context) (todo.Open, error) {
	open, err := f.List.Open(ctx)
	if err != nil || f.Identities == nil {
		return open, err
	}
	bulks, removals, err := f.Identities.Open(ctx)
	open.FanOuts += bulks
	open.Identities = removals
	return open, err
}

// lists are the projections that know what is to be done.
func (f *Finisher) lists() []string {
	if f.Identities == nil {
		return []string{dataPoints}
	}
	return []string{dataPoints, directory}
}

// keepers are the projections that hold text, and have to be where the log is before it goes from the disk.
func (f *Finisher) keepers() []string {
	names := append([]string{dataPoints, memories, recallIndex}, f.Beside...)
	if f.Identities != nil {
		names = append(names, directory)
	}
	return names
}

// sayCleared says of removals that their text is gone.
func (f *Finisher) sayCleared(ctx context.Context, removals []clearing) (said int, err error) {
	var errs []error
	for _, r := range removals {
		if r.waits {
			continue
		}
		if err := f.bounded(ctx, func(ctx context.Context) error { return f.Log.SayCleared(ctx, r.Removal, f.Now()) }); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", stream.Name(stream.Identity, r.IdentityID), err))
			continue
		}
		said++
	}
	if said > 0 {
		errs = append(errs, f.passHead(ctx, directory))
	}
	return said, errors.Join(errs...)
}
