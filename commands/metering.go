package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/todo"
)

const (
	// flushEvery is about how long the recalls of a project stay counted outside the log, seenEvery
	// how long a seen identity does.
	flushEvery = 10 * time.Minute
	seenEvery  = time.Hour
	// lookEvery is the pause between two looks for what is due.
	lookEvery = 30 * time.Second
	// flushTimeout bounds one flush, also the last one of a process.
	flushTimeout = 10 * time.Second
	// directoryTimeout is how much of that a directory that is behind may take.
	directoryTimeout = 2 * time.Second
	// flushWidth is how many streams are appended to at once.
	flushWidth = 8
)

// Counted are the recalls that are counted beside the log, in all processes together.
type Counted interface {
	// Take assigns flush ids to counts that are due. It returns these charges and those that other
	// processes left behind; more reports that there may be others.
	Take(ctx context.Context, due todo.Due) (open []todo.Charge, more bool, err error)
	// Begin keeps the last revision of a sum's stream before the sum is first appended, and answers the one kept first; ok is false
	// for a sum that is known to be in the log.
	Begin(ctx context.Context, flush uuid.UUID, last eventstore.Revision) (after eventstore.Revision, ok bool, err error)
	// DropCharges forgets sums that projection usage knows: those it shows, and those of the list.
	DropCharges(ctx context.Context, known ...uuid.UUID) error
	// DropSeen forgets who was seen as told by sums that were dropped before.
	DropSeen(ctx context.Context) error
}

// Metering takes what was counted beside the log into it. A sum is forgotten only once it is seen in the log, and appended only at
// a revision above which it was looked for: no crash loses one or counts one twice.
type Metering struct {
	Log     *Log
	Counted Counted
	Waiter  Waiter
	Logger  *slog.Logger
	Now     func() time.Time
}

// Run appends what is due to the log until the context ends, and then everything.
func (m *Metering) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			m.guarded(ctx, todo.Due{Sum: flushEvery, Seen: seenEvery})
		case <-ctx.Done():
			m.guarded(context.WithoutCancel(ctx), todo.Due{})
			return nil
		}
	}
}

// guarded is flush that only logs a failure: the next flush, or another process, takes up the rest.
func (m *Metering) guarded(ctx context.Context, due todo.Due) {
	if err := m.flush(ctx, due); err != nil {
		m.Logger.WarnContext(ctx, "recalls stay counted beside the log", "err", err)
	}
}

// Flush appends everything counted so far to the log, up to flushTimeout.
func (m *Metering) Flush(ctx context.Context) error { return m.flush(ctx, todo.Due{}) }

// flush appends what is due, a bounded part at a time, and forgets the counts that the projections
// have read from the log.
func (m *Metering) flush(ctx context.Context, due todo.Due) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	errs := []error{m.forgetSeen(ctx)}
	for more := true; more && ctx.Err() == nil; {
		var open []todo.Charge
		var err error
		if open, more, err = m.Counted.Take(ctx, due); err != nil {
			return errors.Join(append(errs, err)...)
		}
		positions, err := m.appendAll(ctx, open)
		// A failed append must not keep the other charges from being forgotten.
		if err = errors.Join(err, m.forgetCharges(ctx, open, positions)); err != nil && len(errs) < mostErrors {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// mostErrors bounds the failed parts that a flush reports.
const mostErrors = 4

// appendAll answers where each sum stands in the log, 0 for one that could not be appended, or that the projection knows already.
func (m *Metering) appendAll(ctx context.Context, open []todo.Charge) ([]eventstore.Position, error) {
	positions, errs := make([]eventstore.Position, len(open)), make([]error, len(open))
	var group errgroup.Group
	group.SetLimit(flushWidth)
	for i, c := range open {
		group.Go(func() error {
			errs[i] = panics.Call(ctx, m.Logger, "flush of usage panicked", func() (err error) { positions[i], err = m.append(ctx, c); return err })
			if errs[i] != nil {
				errs[i] = fmt.Errorf("recalls of project %s: %w", c.ProjectID, errs[i])
			}
			return nil
		})
	}
	return positions, errors.Join(append(errs, group.Wait())...)
}

func (m *Metering) append(ctx context.Context, c todo.Charge) (eventstore.Position, error) {
	name := stream.UsageName(c.ProjectID, c.Month)
	release, err := m.Log.Serialize(ctx, name)
	if err != nil {
		return 0, err
	}
	defer release()
	charged := metering.Charged{
		ProjectID: c.ProjectID, OrganizationID: c.OrganizationID, FlushID: c.FlushID, Month: c.Month,
		Recalls: c.Recalls, RecallTenths: c.RecallTenths, Seen: c.Seen, At: m.Now(),
	}
	for retry := (tries{}); ; {
		last, err := m.lastOf(ctx, name)
		if err != nil {
			return 0, err
		}
		after, open, err := m.Counted.Begin(ctx, c.FlushID, last)
		if err != nil || !open {
			return 0, err
		}
		if last > after {
			// An earlier try, of whatever process, may have landed.
			if position, err := m.find(ctx, name, after+1, c.FlushID); err != nil || position > 0 {
				return position, err
			}
		}
		done, err := m.Log.Append(ctx, name, last, event.Meta{CommandID: c.FlushID, Principal: "metering"}, charged)
		if !errors.Is(err, eventstore.ErrConflict) {
			return done.Position, err
		}
		if err := retry.again(ctx, err); err != nil {
			return 0, err
		}
	}
}

func (m *Metering) lastOf(ctx context.Context, name string) (eventstore.Revision, error) {
	last, ok, err := m.Log.Last(ctx, name)
	if err != nil || !ok {
		return eventstore.NoStream, err
	}
	return last.Revision, nil
}

func (m *Metering) find(ctx context.Context, name string, from eventstore.Revision, flush uuid.UUID) (eventstore.Position, error) {
	facts, err := m.Log.ReadFrom(ctx, name, from)
	if err != nil {
		return 0, err
	}
	for _, f := range facts {
		if e, ok := f.Event.(*metering.Charged); ok && e.FlushID == flush {
			return f.Position, nil
		}
	}
	return 0, nil
}

// forgetSeen forgets the identities of earlier flushes that the directory has applied. A reader
// that reads the directory first and the counts second has the time between two flushes for it.
func (m *Metering) forgetSeen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, directoryTimeout)
	defer cancel()
	head, err := m.Log.Store.Head(ctx)
	if err != nil {
		return unavailable(err)
	}
	if err := m.Waiter.Wait(ctx, head, projectionDirectory); err != nil {
		return err
	}
	return m.Counted.DropSeen(ctx)
}

// forgetCharges forgets the charges that projection usage has applied.
func (m *Metering) forgetCharges(ctx context.Context, open []todo.Charge, positions []eventstore.Position) error {
	var newest eventstore.Position
	var known []uuid.UUID
	for i, position := range positions {
		if position > 0 {
			newest, known = max(newest, position), append(known, open[i].FlushID)
		}
	}
	if err := m.Waiter.Wait(ctx, newest, projectionUsage); err != nil {
		return err
	}
	return m.Counted.DropCharges(ctx, known...)
}
