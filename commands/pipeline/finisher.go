package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/commands/people"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/erasures"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

const (
	// finishSize is how many operations are read from a work list at a time.
	finishSize = 64
	// finishAfter is how long a committed operation is left to the process that committed it.
	finishAfter = 15 * time.Second
	// finishTimeout bounds one step of the finisher.
	finishTimeout = time.Minute
	// sweepEvery is the pause between sweeps. Blobs wait for a day, so a minute more is nothing.
	sweepEvery = time.Minute
	// cleanPause is the least pause between two purges. The pause is at least restShare times the
	// duration of the last purge: one purge serves all deletions, and a large store spends at most a
	// twentieth of its time on it.
	cleanPause = 5 * time.Second
	restShare  = 20
)

// Finisher schedules what commits left to do: it completes fan-outs that a crash left, drops
// reservations, erases what was deleted, and sweeps blobs that nothing refers to. It also runs if
// derivation is switched off. All its exported fields are required.
type Finisher struct {
	Journal *engine.Journal
	// FanOuts and Identities list the pending fan-outs: of deletions and batches, and of bulk writes.
	FanOuts      fanOutList
	Identities   bulkList
	Reservations reservations
	Eraser       *erasure.Eraser
	People       *erasure.People
	Progress     progress
	// IsSetAside reports whether an operator has set aside the event at a position.
	IsSetAside func(eventstore.Position) bool
	Logger     *slog.Logger
	Now        func() time.Time

	// stuck and stuckBulks are the fan-outs that cannot be completed, of FanOuts and of Identities.
	stuck, stuckBulks stuckList
	// completing and erasing are held by the current round of each loop, whether an operator or Run
	// started it.
	completing, erasing sync.Mutex
	// The fields below are guarded by erasing. The next purge and sweep are due at these times.
	cleanAt, sweepAt time.Time
	suspension       suspendWatch
	// Of what the event store denies, the next try is due at deniedUntil.
	deniedUntil time.Time
	denied      denials

	// purging are the erasures of people that wait for a purge, nil for none. The next purge for them is due at
	// purgePeopleAt, which only the loop that does it reads.
	purging       atomic.Pointer[[]erasures.Person]
	purgePeopleAt time.Time
}

// fanOutList lists the deletions and batches whose fan-out is pending: deletions first, each oldest
// first.
type fanOutList interface {
	PendingFanOuts(ctx context.Context, limit int) ([]work.Operation, error)
	Open(ctx context.Context) (work.Open, error)
}

// bulkList lists the bulk writes of identities whose fan-out is pending, oldest first.
type bulkList interface {
	identities.Directory
	PendingBulks(ctx context.Context, limit int) ([]work.Bulk, error)
	Open(ctx context.Context) (bulks, removals int, err error)
}

// Run finishes until the context ends. Fan-outs have their own loop, and so have the steps of people's erasures: a
// purge may take half an hour, and what they delete must not be visible for so long.
func (f *Finisher) Run(ctx context.Context) error {
	f.erasing.Lock()
	f.suspension.rest() // read the clocks for the first time
	f.erasing.Unlock()
	var loops sync.WaitGroup
	loops.Go(func() { f.loop(ctx, f.complete) })
	loops.Go(func() { f.loop(ctx, f.erase) })
	loops.Go(func() { f.loop(ctx, f.erasePeople) })
	loops.Go(func() { f.loop(ctx, f.purgePeople) })
	loops.Wait()
	return nil
}

// loop repeats a round until the context ends.
func (f *Finisher) loop(
	ctx context.Context, round func(ctx context.Context, all bool, done *erasure.Report) time.Duration,
) {
	moved, stop := f.Progress.Watch(projection.DataPoints)
	defer stop()
	for ctx.Err() == nil {
		var done erasure.Report
		next := idlePoll
		_ = panics.Call(ctx, f.Logger, "finisher panicked, will retry", func() error {
			next = round(ctx, false, &done)
			return nil
		})
		done.Log(ctx, f.Logger)
		_ = backoff.Pause(ctx, next, moved)
		// The work of a finisher is rare and never urgent: one round a second is enough, however
		// fast the projection moves.
		_ = backoff.Pause(ctx, idlePoll, nil)
	}
}

// round is a round of each loop, one after the other.
func (f *Finisher) round(ctx context.Context, all bool, done *erasure.Report) {
	f.complete(ctx, all, done)
	f.erase(ctx, all, done)
}

// complete completes fan-outs and drops reservations that are due, or with all everything that is
// pending. It adds failures to done and returns the time after which the next round is due even if
// no projection moves.
func (f *Finisher) complete(ctx context.Context, all bool, done *erasure.Report) (next time.Duration) {
	f.completing.Lock()
	defer f.completing.Unlock()
	return f.steps(ctx, done, []step{
		{"fan-outs", func() (time.Duration, error) { return f.completeFanOuts(ctx, all) }},
		{"bulk writes", func() (time.Duration, error) { return f.completeBulks(ctx, all) }},
		{"reservations", func() (time.Duration, error) { return f.dropReservations(ctx) }},
	})
}

// erase passes the deletions and removals through the stages of package erasure, and sweeps. Its
// result is as that of complete.
func (f *Finisher) erase(ctx context.Context, all bool, done *erasure.Report) (next time.Duration) {
	f.erasing.Lock()
	defer f.erasing.Unlock()
	if left := f.deniedUntil.Sub(f.Now()); left > 0 && !all {
		return left
	}
	next = f.steps(ctx, done, []step{
		{stepIdentities, func() (time.Duration, error) { return f.truncate(ctx, all) }},
		{stepPeople, func() (time.Duration, error) { return 0, f.settlePeople(ctx) }},
		{stepFacts, func() (time.Duration, error) { return 0, f.denied.note(stepFacts, f.Eraser.RetainAll(ctx)) }},
		// A deletion may wait for a blob that is swept.
		{stepSweep, func() (time.Duration, error) { return f.sweep(ctx, all, done) }},
		{stepCleaning, func() (time.Duration, error) { return f.clean(ctx, all, done) }},
	})
	if f.deniedUntil = (time.Time{}); f.Denied() != nil {
		f.deniedUntil = f.Now().Add(stuckPause)
	}
	return next
}

// The steps of an erasure.
const (
	stepIdentities = "identities"
	stepPeople     = "people"
	stepFacts      = "facts"
	stepSweep      = "sweep"
	stepCleaning   = "cleaning"
)

// step is a part of a round. It returns the time after which it is due again, 0 for no such time.
type step struct {
	name string
	do   func() (time.Duration, error)
}

// steps does the steps one after the other. A step that fails is retried in the next round and holds
// up no other step.
func (f *Finisher) steps(ctx context.Context, done *erasure.Report, steps []step) (next time.Duration) {
	next = sweepEvery
	for _, s := range steps {
		var wait time.Duration
		err := panics.Call(ctx, f.Logger, "finisher step panicked", func() (err error) {
			wait, err = s.do()
			return err
		}, "step", s.name)
		if err != nil && ctx.Err() == nil {
			done.Fail(s.name, err)
			wait = idlePoll
		}
		if wait > 0 {
			next = min(next, wait)
		}
	}
	return next
}

// truncate truncates the removed identities that are due.
func (f *Finisher) truncate(ctx context.Context, all bool) (wait time.Duration, err error) {
	d := due{now: f.Now(), all: all}
	err = f.Eraser.TruncateIdentities(ctx, func(r work.Removal) bool { return d.is(r.RemovedAt) })
	err = f.denied.note(stepIdentities, err)
	return f.afterDue(ctx, d, projection.Directory, err)
}

// settlePeople ends the offers that have expired, removes the people who are members of no organization, and completes
// the erasure of removed ones, of their visits and of the addresses of offers. Visits that are too old end too.
func (f *Finisher) settlePeople(ctx context.Context) error {
	offers := f.Eraser.EachOffer(ctx, func(o work.Offer) error {
		return f.bounded(ctx, func(ctx context.Context) error {
			_, err := people.SettleOffer(ctx, f.Journal, o, f.Now())
			return err
		})
	})
	visits := f.Eraser.EachVisits(ctx, func(v work.Visits) error {
		return f.bounded(ctx, func(ctx context.Context) error {
			_, err := people.SettleVisits(ctx, f.Journal, v, f.Now())
			return err
		})
	})
	return f.denied.note(stepPeople, errors.Join(offers, visits, f.Eraser.EachPerson(ctx, func(p work.Person) error {
		return f.bounded(ctx, func(ctx context.Context) error {
			_, err := people.SettlePerson(ctx, f.Journal, p, f.Now())
			return err
		})
	})))
}

// sweep sweeps unreferenced blobs if a sweep is due.
func (f *Finisher) sweep(ctx context.Context, all bool, done *erasure.Report) (wait time.Duration, err error) {
	if left := f.sweepAt.Sub(f.Now()); left > 0 && !all {
		return left, nil
	}
	f.sweepAt = f.Now().Add(sweepEvery)
	for ctx.Err() == nil {
		// Read the time before the clocks are compared: a later jump does not affect a deadline that
		// has passed by then.
		now := f.Now()
		if rest := f.suspension.rest(); rest > 0 {
			return rest, nil
		}
		swept, err := f.Eraser.Sweep(ctx, now)
		err = f.denied.note(stepSweep, err)
		done.Blobs += swept
		if err != nil || swept == 0 {
			return 0, err
		}
	}
	return 0, nil
}

// clean tombstones, purges and records as cleaned what is due. With all it purges even if no deletion
// waits for that. If another process feeds the index, that process cleans.
func (f *Finisher) clean(ctx context.Context, all bool, done *erasure.Report) (wait time.Duration, err error) {
	if err := f.Eraser.RequireIndex(); err != nil {
		if all {
			return 0, err
		}
		return 0, nil
	}
	if left := f.cleanAt.Sub(f.Now()); left > 0 && !all {
		if pending, err := f.Eraser.IsPending(ctx); err != nil || !pending {
			return 0, err
		}
		return left, nil
	}
	round, err := f.Eraser.TombstoneAll(ctx, done)
	if round.IsEmpty() && !all {
		return 0, f.denied.note(stepCleaning, err)
	}
	began := f.Now()
	purgeErr := f.Eraser.Purge(ctx, round, done)
	if purgeErr == nil {
		purgeErr = f.Eraser.RecordAll(ctx, round, done)
	}
	f.cleanAt = f.Now().Add(max(cleanPause, restShare*f.Now().Sub(began)))
	return cleanPause, f.denied.note(stepCleaning, errors.Join(err, purgeErr))
}

// EraseNow completes every pending fan-out, erases every deletion and removal, and purges. It returns
// once that is done. Left in the report counts what has to wait for something else; the error is
// what failed.
func (f *Finisher) EraseNow(ctx context.Context) (erasure.Report, error) {
	return f.eraseRounds(ctx, math.MaxInt)
}

// eraseRounds is EraseNow with a bound: while clients go on deleting, there is always more.
func (f *Finisher) eraseRounds(ctx context.Context, most int) (done erasure.Report, err error) {
	for n := 1; ; n++ {
		var one erasure.Report
		// The lists must show what was deleted a moment ago, and nothing that is done.
		err := f.waitHead(ctx, projection.DataPoints, projection.Directory, projection.Access)
		err = errors.Join(err, f.Eraser.AwaitFollowUps(ctx))
		f.round(ctx, true, &one)
		done.Add(one)
		left, openErr := f.Pending(ctx)
		if openErr != nil {
			return done, openErr
		}
		done.Left = left
		errs := errors.Join(append(one.Errs(), err, ctx.Err())...)
		if one.Deletions+one.Identities == 0 || left.Deletions+left.Identities == 0 || errs != nil || n == most {
			return done, errs
		}
	}
}

// Pending counts the pending fan-outs and what has yet to be erased.
func (f *Finisher) Pending(ctx context.Context) (work.Open, error) {
	return work.CountOpen(ctx, f.FanOuts, f.Identities, f.Eraser.People)
}

// waitHead waits until projections have applied the current head of the log.
func (f *Finisher) waitHead(ctx context.Context, projections ...string) error {
	return f.bounded(ctx, func(ctx context.Context) error {
		head, err := f.Journal.Store.Head(ctx)
		if err != nil {
			return err
		}
		return f.Progress.Wait(ctx, head, projections...)
	})
}

// bounded does a step within finishTimeout. A panic is its error, and is logged.
func (f *Finisher) bounded(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	return panics.Call(ctx, f.Logger, "finisher step panicked", func() error { return step(ctx) })
}

// peopleRounds is the most rounds of one purge for people. Deletions may wait for each other.
const peopleRounds = 3

// erasePeople takes the steps of the erasures of people, and leaves those that wait for a purge to purgePeople.
func (f *Finisher) erasePeople(ctx context.Context, _ bool, done *erasure.Report) (next time.Duration) {
	return f.steps(ctx, done, []step{{"people", func() (time.Duration, error) {
		purging, err := f.People.Pass(ctx)
		if len(purging) > 0 {
			f.purging.Store(&purging)
		}
		return idlePoll, err
	}}})
}

// purgePeople erases what the erasures of people deleted, once for all that wait, and without the pause of clean. It
// rests as long as it worked. If another process feeds the index, that process purges.
func (f *Finisher) purgePeople(ctx context.Context, _ bool, done *erasure.Report) (next time.Duration) {
	return f.steps(ctx, done, []step{{"purge for people", func() (time.Duration, error) {
		if f.purgePeopleAt.After(f.Now()) || f.Eraser.RequireIndex() != nil {
			return idlePoll, nil
		}
		waiting := f.purging.Swap(nil)
		if waiting == nil {
			return idlePoll, nil
		}
		if err := f.People.PreparePurge(ctx); err != nil {
			return 0, err
		}
		began := f.Now()
		report, err := f.eraseRounds(ctx, peopleRounds)
		f.purgePeopleAt = f.Now().Add(f.Now().Sub(began))
		done.Add(report)
		var failed error
		if report.Store == "" {
			failed = errors.Join(errors.New("nothing was purged from the disk"), err)
		}
		return idlePoll, errors.Join(err, f.People.RecordPurge(ctx, *waiting, report, failed))
	}}})
}

// reservations are the limits that sends in progress hold.
type reservations interface {
	// DropFacts removes the reservations whose sends are projected. next is the time after which the
	// first of the rest is overdue, 0 if none is left.
	DropFacts(ctx context.Context) (next time.Duration, err error)
	// Overdue lists reservations whose sends are appended by now, or never will be.
	Overdue(ctx context.Context, limit int) ([]work.Reservation, error)
	// Drop removes reservations, whether or not their sends were appended.
	Drop(ctx context.Context, overdue []work.Reservation) error
}

// dropReservations removes the reservations of projected sends and those that are overdue.
//
// The send of an overdue reservation may have been appended in the last moment. The reservation is
// removed only once the projection has applied a head that was read after that: then the send is
// projected, or does not exist.
func (f *Finisher) dropReservations(ctx context.Context) (wait time.Duration, err error) {
	next, err := f.Reservations.DropFacts(ctx)
	if err != nil || next == 0 {
		return 0, err
	}
	for ctx.Err() == nil {
		overdue, err := f.Reservations.Overdue(ctx, finishSize)
		if err != nil {
			return 0, err
		}
		if len(overdue) == 0 {
			break
		}
		if err := f.waitHead(ctx, projection.DataPoints); err != nil {
			return 0, err
		}
		if err := f.Reservations.Drop(ctx, overdue); err != nil {
			return 0, err
		}
	}
	return next, nil
}

const (
	// clockJump is the lead of the wall clock over the timers that means that the machine was
	// suspended or its clock was set.
	clockJump = 30 * time.Second
	// sweepRest is how long nothing is swept after that: longer than any command with its append.
	sweepRest = 2 * time.Minute
)

// suspendWatch detects that the machine was suspended: the wall clock advanced and the clock of the
// timers did not.
type suspendWatch struct {
	// clocks reads both clocks, the second from an arbitrary start; nil reads those of the machine.
	clocks func() (wall time.Time, timers time.Duration)

	start  time.Time
	wall   time.Time
	timers time.Duration
	// until is the end of the rest, by the clock of the timers.
	until time.Duration
}

// rest reads the clocks and returns for how long nothing may be swept. The first call has no earlier
// reading to compare with.
func (w *suspendWatch) rest() time.Duration {
	wall, timers := w.read()
	if !w.wall.IsZero() && wall.Sub(w.wall)-(timers-w.timers) > clockJump {
		w.until = timers + sweepRest
	}
	w.wall, w.timers = wall, timers
	return max(w.until-timers, 0)
}

func (w *suspendWatch) read() (wall time.Time, timers time.Duration) {
	if w.clocks != nil {
		return w.clocks()
	}
	now := time.Now()
	if w.start.IsZero() {
		w.start = now
	}
	return now.Round(0), now.Sub(w.start)
}
