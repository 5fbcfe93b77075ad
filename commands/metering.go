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
	// flushEvery is about how long the sum of a project stays beside the log, and seenEvery how long an identity that was seen does.
	flushEvery = 10 * time.Minute
	seenEvery  = time.Hour
	// lookEvery is how often it is looked for what is due.
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
	// Take puts what is due of what was counted under flush ids, and answers these sums and those that others left behind; more says
	// that there may be others.
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

// Run takes to the log what is due, until the context ends, and then everything.
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

// guarded is flush whose failure is told to the log only: what it left is taken up by the next one, or by another process.
func (m *Metering) guarded(ctx context.Context, due todo.Due) {
	if err := m.flush(ctx, due); err != nil {
		m.Logger.WarnContext(ctx, "recalls stay counted beside the log", "err", err)
	}
}

// Flush takes to the log all that was counted up to now, as far as it comes in flushTimeout.
func (m *Metering) Flush(ctx context.Context) error { return m.flush(ctx, todo.Due{}) }

// flush appends what is due, a bounded part at a time, and forgets beside the log what the projections know from it.
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
		// What could not be appended keeps nothing else from being forgotten.
		if err = errors.Join(err, m.forgetCharges(ctx, open, positions)); err != nil && len(errs) < mostErrors {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// mostErrors is how many failed parts a flush tells of.
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

// forgetSeen drops who was seen as told by what an earlier flush dropped, where the directory has passed that. Whoever reads the
// directory first and then what is beside the log has the time between two flushes for it.
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

// forgetCharges drops the sums that usage has passed.
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
