package erasure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

// Round is what one round purges and records: deletions and people whose streams are tombstoned, and
// identities whose streams are truncated.
type Round struct {
	deletions  []openDeletion
	identities []truncatedIdentity
	people     []work.Person
}

// IsEmpty reports whether the round has nothing to purge.
func (r *Round) IsEmpty() bool { return len(r.deletions)+len(r.identities)+len(r.people) == 0 }

// openDeletion is a deletion of a round.
type openDeletion struct {
	Tombstoned
	// waits is true while something else may hold a copy: an unreferenced blob, another deletion's
	// streams, a batch with a pending fan-out.
	waits bool
}

// RequireIndex returns an error if another process feeds the index. Only that process can purge the
// files of the index.
func (e *Eraser) RequireIndex() error {
	if e.HasIndex() {
		return nil
	}
	return errors.New("another process feeds the index, and only that process can erase; run this command there")
}

// IsPending reports whether any deletion, identity or person has yet to be purged.
func (e *Eraser) IsPending(ctx context.Context) (bool, error) {
	deletions, err := e.Deletions.CleanableDeletions(ctx, nil, 1)
	if err != nil || len(deletions) > 0 {
		return true, err
	}
	removals, err := e.Identities.OpenRemovals(ctx, nil, 1)
	if err != nil || len(removals) > 0 {
		return true, err
	}
	people, err := e.People.RemovedPeople(ctx)
	return people > 0, err
}

// RetainAll retains the facts of all data points that a deletion with a complete fan-out took.
func (e *Eraser) RetainAll(ctx context.Context) error {
	for ctx.Err() == nil {
		erasures, err := e.Deletions.Erasures(ctx, listSize)
		if err != nil || len(erasures) == 0 {
			return err
		}
		// The retained facts of a send must reflect the whole log, even while the list is being
		// rebuilt.
		if err := e.waitHead(ctx, projection.DataPoints); err != nil {
			return err
		}
		byDeletion := make(map[uuid.UUID][]uuid.UUID)
		for _, d := range erasures {
			byDeletion[d.DeletionID] = append(byDeletion[d.DeletionID], d.DataPoint)
		}
		var group errgroup.Group
		group.SetLimit(roundWidth)
		for id, dataPoints := range byDeletion {
			group.Go(func() error {
				return e.bounded(ctx, func(ctx context.Context) error { return e.RetainFacts(ctx, id, dataPoints) })
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		// The list must show the result before it is read again.
		if err := e.waitHead(ctx, projection.DataPoints); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// roundDataPoints is about the most data points of a round. The next one begins with those that follow.
const roundDataPoints = 100_000

// TombstoneAll tombstones the streams of the deletions whose facts are retained, and returns the
// deletions and identities that have something to purge. It looks for what a deletion has to wait
// for only after that, so that no two deletions wait for each other.
func (e *Eraser) TombstoneAll(ctx context.Context, report *Report) (*Round, error) {
	r := &Round{}
	var errs []error
	var denied DeniedError
	last, dataPoints := e.roundFrom, 0
	whole := last == nil
	e.roundFrom = nil
	for ctx.Err() == nil {
		page, err := e.Deletions.CleanableDeletions(ctx, last, listSize)
		if err == nil && len(page) > 0 {
			// As in RetainAll: Tombstone retains the facts that a crash left.
			err = e.waitHead(ctx, projection.DataPoints)
		}
		if err != nil {
			errs = append(errs, err)
			break
		}
		if len(page) == 0 || dataPoints > roundDataPoints {
			if len(page) > 0 {
				e.roundFrom, whole = last, false
			}
			errs = append(errs, e.awaitOthers(ctx, r.deletions))
			if whole {
				e.forgetDeferred(r.deletions)
			}
			break
		}
		tombstoned, pageErrs := e.tombstonePage(ctx, page, report, &denied)
		r.deletions, errs = append(r.deletions, tombstoned...), append(errs, pageErrs...)
		for _, d := range tombstoned {
			dataPoints += len(d.DataPoints)
		}
		last = &page[len(page)-1]
	}
	// A deletion that waits and was purged before has nothing to purge, unless this round
	// tombstoned more of it.
	r.deletions = slices.DeleteFunc(r.deletions, func(d openDeletion) bool {
		return d.waits && e.deferred[d.ID] && d.Streams == 0
	})
	identities, err := e.truncatedIdentities(ctx)
	r.identities = identities
	people, peopleErr := e.erasedPeople(ctx)
	r.people = people
	return r, denied.join(append(errs, err, peopleErr)...)
}

// tombstonePage tombstones the streams of some deletions. It counts those that the event store denies.
func (e *Eraser) tombstonePage(
	ctx context.Context, page []work.Deletion, report *Report, denied *DeniedError,
) (done []openDeletion, errs []error) {
	var group errgroup.Group
	group.SetLimit(roundWidth)
	var mu sync.Mutex
	for _, d := range page {
		group.Go(func() error {
			var t Tombstoned
			var ok bool
			// Its steps are bounded: there may be millions of streams.
			err := e.within(ctx, purgeTimeout, func(ctx context.Context) (err error) {
				t, ok, err = e.Tombstone(ctx, d.ID)
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			report.Streams += t.Streams
			switch {
			case errors.Is(err, ErrNotYet):
				e.Logger.DebugContext(ctx, "deletion has to wait, will retry", "deletion", d.ID, "err", err)
			case err != nil:
				if err = fmt.Errorf("deletion %s: %w", d.ID, err); !denied.add(err) {
					errs = append(errs, err)
				}
			case ok:
				done = append(done, openDeletion{t, t.Waits != nil})
			}
			return nil
		})
	}
	_ = group.Wait() // each error is in errs
	return done, errs
}

// awaitOthers lets the deletions wait that share a data point with a deletion that has not tombstoned
// it.
func (e *Eraser) awaitOthers(ctx context.Context, deletions []openDeletion) error {
	var errs []error
	for i := range deletions {
		d := &deletions[i]
		if len(d.Others) == 0 {
			continue
		}
		err := e.bounded(ctx, func(ctx context.Context) error { return e.requireTombstoned(ctx, d.Others) })
		if err != nil {
			d.waits = true
		}
		if err != nil && !errors.Is(err, ErrNotYet) {
			errs = append(errs, fmt.Errorf("deletion %s: %w", d.ID, err))
		}
	}
	return errors.Join(errs...)
}

// forgetDeferred forgets the deferred deletions that are not among the open ones.
func (e *Eraser) forgetDeferred(open []openDeletion) {
	deferred := make(map[uuid.UUID]bool)
	for _, d := range open {
		if e.deferred[d.ID] {
			deferred[d.ID] = true
		}
	}
	e.deferred = deferred
}

// RecordAll records the deletions of a purged round as cleaned and the identities as cleared, except
// those that wait.
func (e *Eraser) RecordAll(ctx context.Context, r *Round, report *Report) error {
	cleared, err := e.recordCleared(ctx, r.identities)
	released, releaseErr := e.releaseAll(ctx, r.people)
	report.Identities += cleared + released
	var group errgroup.Group
	group.SetLimit(roundWidth)
	for _, d := range r.deletions {
		if d.waits {
			continue
		}
		report.Deletions++
		group.Go(func() error {
			return e.bounded(ctx, func(ctx context.Context) error { return e.RecordCleaned(ctx, d.Tombstoned, e.Now()) })
		})
	}
	return errors.Join(err, releaseErr, group.Wait(), e.waitHead(ctx, projection.DataPoints))
}

// What a round did with the files of the store.
const (
	StoreScavenged = "scavenged"
	StoreCluster   = "left to the cluster's own scavenge"
)

// Report counts what rounds erased.
type Report struct {
	// Deletions are recorded as cleaned, and Identities as cleared, with the people. Streams were tombstoned for
	// deletions, and Blobs were swept.
	Deletions  int `json:"deletions"`
	Identities int `json:"identities"`
	Streams    int `json:"streams"`
	Blobs      int `json:"blobs"`
	// Tables were vacuumed and Indexes expunged. Store is StoreScavenged or StoreCluster, "" if
	// nothing was purged.
	Tables  int    `json:"tables"`
	Indexes int    `json:"indexes"`
	Store   string `json:"store"`
	// Left is what still waits, and Trouble why.
	Left    work.Open `json:"left"`
	Trouble []string  `json:"-"`

	errs []error
}

// Fail adds the error of a step.
func (r *Report) Fail(step string, err error) {
	r.errs = append(r.errs, fmt.Errorf("%s: %w", step, err))
	r.Trouble = append(r.Trouble, step+": "+err.Error())
}

// Errs returns the errors of the last round.
func (r *Report) Errs() []error { return r.errs }

// Add adds what another round erased. Only the trouble of the last round counts.
func (r *Report) Add(o Report) {
	r.Deletions += o.Deletions
	r.Identities += o.Identities
	r.Streams += o.Streams
	r.Blobs += o.Blobs
	r.Tables, r.Indexes = max(r.Tables, o.Tables), max(r.Indexes, o.Indexes)
	if o.Store != "" {
		r.Store = o.Store
	}
	r.Trouble = o.Trouble
}

// Log logs what a scheduled round erased, and its errors.
func (r *Report) Log(ctx context.Context, logger *slog.Logger) {
	if r.Deletions+r.Identities+r.Blobs > 0 {
		logger.InfoContext(ctx, "erased deleted text", "deletions", r.Deletions, "identities", r.Identities,
			"streams", r.Streams, "blobs", r.Blobs, "tables", r.Tables, "indexes", r.Indexes, "store", r.Store)
	}
	for _, err := range r.errs {
		logger.WarnContext(ctx, "finisher step failed, will retry", "err", err)
	}
}

// DeniedError is what the event store denies its user in a round: a count with the error of the first, since there may
// be one for each deletion.
type DeniedError struct {
	Count int
	First error
}

// Error implements error.
func (e *DeniedError) Error() string { return fmt.Sprintf("one of %d: %v", e.Count, e.First) }

// Unwrap returns the first.
func (e *DeniedError) Unwrap() error { return e.First }

// add counts an error if the store denied the call. The zero value has counted none.
func (e *DeniedError) add(err error) bool {
	if !errors.Is(err, eventstore.ErrDenied) {
		return false
	}
	if e.Count++; e.First == nil {
		e.First = err
	}
	return true
}

// join returns the errors of a round, and what was denied.
func (e *DeniedError) join(errs ...error) error {
	if e.Count > 0 {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// Denied returns what the event store denied its user, nil for nothing.
func Denied(err error) *DeniedError {
	if many, is := errors.AsType[*DeniedError](err); is {
		return many
	}
	if one, is := errors.AsType[*eventstore.DeniedError](err); is {
		return &DeniedError{1, one}
	}
	return nil
}
