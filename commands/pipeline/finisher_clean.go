package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/internal/todo"
)

const (
	// cleanPause lies between two rounds of cleaning at least, and the cost of a round restShare times: what is removed from
	// the disk is removed for all deletions at once, so that a large store spends a twentieth of its time on it at most.
	cleanPause = 5 * time.Second
	restShare  = 20
)

// clean erases what deletions took. A deletion is said to be cleaned once
//
//   - the facts that outlive it are kept, and all its streams are ended: memories, data points, blobs;
//   - the projections have passed that, so that no row and no document names it;
//   - no batch is open, and no blob loose, that may hold a copy;
//   - the tables are vacuumed, the indexes rewritten without it, and the store scavenged, if that is ours.
//
// A removal of an identity is said to be cleared likewise, once its text is cut off and nothing may hold a copy.
//
// Where another process has the index, whose files this one cannot rewrite, that process cleans.
func (f *Finisher) clean(ctx context.Context, all bool, done *Erasure) (wait time.Duration, err error) {
	if elsewhere := f.elsewhere(); elsewhere != nil {
		if all {
			return 0, elsewhere
		}
		return 0, nil
	}
	if left := f.cleanAt.Sub(f.Now()); left > 0 && !all {
		open, err := f.List.CleanableDeletions(ctx, nil, 1)
		if err != nil || len(open) > 0 {
			return left, err
		}
		if f.Identities == nil {
			return 0, nil
		}
		removals, err := f.Identities.OpenRemovals(ctx, nil, 1)
		if err != nil || len(removals) == 0 {
			return 0, err
		}
		return left, nil
	}
	erased, err := f.erase(ctx, done)
	removals, removalsErr := f.clearable(ctx)
	err = errors.Join(err, removalsErr)
	if len(erased)+len(removals) == 0 && !all {
		return 0, err
	}
	began := f.Now()
	cleaned, bodyErr := f.removeAndSay(ctx, erased, removals, all, done)
	done.Deletions += cleaned
	f.cleanAt = f.Now().Add(max(cleanPause, restShare*f.Now().Sub(began)))
	return cleanPause, errors.Join(err, bodyErr)
}

// elsewhere is an error where another process has the index.
func (f *Finisher) elsewhere() error {
	if f.HasIndex == nil || f.HasIndex() {
		return nil
	}
	return errors.New("another process feeds the index, and it alone can erase what was deleted: ask that one")
}

// erasedDeletion is a deletion whose own streams are tombstoned.
type erasedDeletion struct {
	commands.Erased
	// waits is true while something else may hold a copy: a loose blob, another deletion's streams, a batch.
	waits bool
}

// erase tombstones the streams of every deletion that can be cleaned, and returns the deletions that have something to purge.
// Only then it looks which of them have to wait for something else: so no two deletions wait for each other.
func (f *Finisher) erase(ctx context.Context, done *Erasure) ([]erasedDeletion, error) {
	var (
		erased []erasedDeletion
		errs   []error
		behind *todo.Deletion
	)
	for ctx.Err() == nil {
		page, err := f.List.CleanableDeletions(ctx, behind, cleanSize)
		if err != nil {
			return erased, errors.Join(append(errs, err)...)
		}
		if len(page) == 0 {
			break
		}
		// As in keepFacts: Erase retains the facts that a crash left.
		if err := f.passHead(ctx, dataPoints); err != nil {
			return erased, errors.Join(append(errs, err)...)
		}
		var group errgroup.Group
		group.SetLimit(finishWidth)
		var mu sync.Mutex
		for _, d := range page {
			group.Go(func() error {
				var e commands.Erased
				var ok bool
				err := f.bounded(ctx, func(ctx context.Context) (err error) {
					e, ok, err = f.Log.Erase(ctx, f.List, d.ID)
					return err
				})
				mu.Lock()
				defer mu.Unlock()
				done.Streams += e.Streams
				switch {
				case errors.Is(err, commands.ErrNotYet):
					f.Logger.DebugContext(ctx, "a deletion waits", "deletion", d.ID, "err", err)
				case err != nil:
					errs = append(errs, fmt.Errorf("deletion %s: %w", d.ID, err))
				case ok:
					erased = append(erased, erasedDeletion{e, e.Waits != nil})
				}
				return nil
			})
		}
		errs = append(errs, group.Wait())
		behind = &page[len(page)-1]
	}
	errs = append(errs, f.awaitOthers(ctx, erased))
	f.forgetParked(erased)
	// What waits and was purged before has nothing to purge, unless this round tombstoned more of it.
	erased = slices.DeleteFunc(erased, func(e erasedDeletion) bool { return e.waits && f.parked[e.ID] && e.Streams == 0 })
	return erased, errors.Join(errs...)
}

// awaitOthers lets the deletions wait of whose data points another deletion has not tombstoned all.
func (f *Finisher) awaitOthers(ctx context.Context, erased []erasedDeletion) error {
	var errs []error
	for i := range erased {
		e := &erased[i]
		if len(e.Others) == 0 {
			continue
		}
		err := f.bounded(ctx, func(ctx context.Context) error { return f.Log.Tombstoned(ctx, e.Others) })
		if err != nil {
			e.waits = true
		}
		if err != nil && !errors.Is(err, commands.ErrNotYet) {
			errs = append(errs, fmt.Errorf("deletion %s: %w", e.ID, err))
		}
	}
	return errors.Join(errs...)
}

// removeAndSay removes what is left of erased deletions and of removals, and says which are cleaned; with all it removes from the disk whatever
// is to be removed, though no deletion waits for it.
func (f *Finisher) removeAndSay(ctx context.Context, erased []erasedDeletion, removals []clearing, all bool, done *Erasure) (cleaned int, err error) {
	if err := f.passHead(ctx, f.keepers()...); err != nil {
		return 0, err
	}
	waits, err := f.removeRest(ctx, erased, done)
	if err != nil {
		return 0, err
	}
	projects := make(map[uuid.UUID]bool)
	for _, e := range erased {
		projects[e.ProjectID] = true
	}
	for _, r := range removals {
		projects[r.ProjectID] = true
	}
	if err := f.removeFromDisk(ctx, projects, all, done); err != nil {
		return 0, err
	}
	for i := range erased {
		erased[i].waits = erased[i].waits || waits[erased[i].ID]
	}
	f.park(erased)
	said, err := f.sayCleared(ctx, removals)
	done.Identities += said
	var group errgroup.Group
	group.SetLimit(finishWidth)
	for _, e := range erased {
		if e.waits {
			continue
		}
		cleaned++
		group.Go(func() error {
			return f.bounded(ctx, func(ctx context.Context) error { return f.Log.SayCleaned(ctx, e.Erased, f.Now()) })
		})
	}
	return cleaned, errors.Join(err, group.Wait(), f.passHead(ctx, dataPoints))
}

// park remembers the deletions that were purged and wait, so that the disk is not rewritten for them again and again.
func (f *Finisher) park(erased []erasedDeletion) {
	for _, e := range erased {
		if e.waits {
			f.parked[e.ID] = true
		} else {
			delete(f.parked, e.ID)
		}
	}
}

// forgetParked forgets the deletions that are not among those that are open.
func (f *Finisher) forgetParked(open []erasedDeletion) {
	parked := make(map[uuid.UUID]bool)
	for _, e := range open {
		if f.parked[e.ID] {
			parked[e.ID] = true
		}
	}
	f.parked = parked
}

// removeRest ends what came to be of erased data points until their streams ended, and the stages of batches that were given up.
// It answers which deletions have to wait: for a batch that is still to be fanned out, or for a stage that may still be committed.
func (f *Finisher) removeRest(ctx context.Context, erased []erasedDeletion, done *Erasure) (waits map[uuid.UUID]bool, err error) {
	waits = make(map[uuid.UUID]bool)
	of, projects := make(map[uuid.UUID][]uuid.UUID), make(map[uuid.UUID]uuid.UUID)
	for _, e := range erased {
		for _, p := range e.DataPoints {
			of[p], projects[p] = append(of[p], e.ID), e.ProjectID
		}
	}
	points := slices.Collect(maps.Keys(of))
	for some := range slices.Chunk(points, cleanSize) {
		names, err := f.List.BlobsOf(ctx, some)
		if err != nil {
			return nil, err
		}
		batches, err := f.List.BatchesOf(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, b := range batches {
			if b.Lost {
				if b.Stage != "" {
					names = append(names, b.Stage)
				}
				continue
			}
			for _, p := range b.DataPoints {
				for _, id := range of[p] {
					waits[id] = true
				}
			}
		}
		copied, err := f.List.Copied(ctx, valuesOf(projects, some), some)
		if err != nil {
			return nil, err
		}
		for p := range copied {
			for _, id := range of[p] {
				waits[id] = true
			}
		}
		ended := 0
		err = f.bounded(ctx, func(ctx context.Context) (err error) {
			ended, err = f.Log.EndBlobs(ctx, names)
			return err
		})
		done.Streams += ended
		if err != nil {
			return nil, err
		}
	}
	return waits, nil
}

// valuesOf are the values of the keys, in their order.
func valuesOf[K comparable, V any](m map[K]V, keys []K) []V {
	values := make([]V, len(keys))
	for n, key := range keys {
		values[n] = m[key]
	}
	return values
}
