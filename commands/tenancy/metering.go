package tenancy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

const (
	// flushEvery is about how long the counts of a project stay outside the log, seenEvery how long a
	// seen identity does.
	flushEvery = 10 * time.Minute
	seenEvery  = time.Hour
	// lookEvery is the pause between two checks for due counts.
	lookEvery = 30 * time.Second
	// flushTimeout bounds one flush, also the last one of a process.
	flushTimeout = 10 * time.Second
	// directoryTimeout is how much of flushTimeout a lagging directory may take.
	directoryTimeout = 2 * time.Second
	// flushWidth is how many streams are appended to at once.
	flushWidth = 8
)

// PendingCharges are the counted recalls and received events of all processes that are not in the log yet.
type PendingCharges interface {
	// Take assigns flush ids to counts that are due. It returns these charges and the open ones of
	// other processes. more reports that there may be others.
	Take(ctx context.Context, due work.Due) (open []work.Charge, more bool, err error)
	// Begin records the last revision of the stream of a charge before its first append, and returns
	// the revision that was recorded first. ok is false for a charge that is known to be in the log.
	Begin(ctx context.Context, flush uuid.UUID, last eventstore.Revision) (after eventstore.Revision, ok bool, err error)
	// DropCharges deletes charges that projection usage has applied: those that it shows, and the
	// given ones.
	DropCharges(ctx context.Context, known ...uuid.UUID) error
	// DropSeen deletes the seen identities of charges that were dropped earlier.
	DropSeen(ctx context.Context) error
}

// Metering appends counted recalls and received events to the log. It deletes a count only once it has seen it in the
// log, and appends it only after a revision from which on it looked for it: no crash loses a count
// or stores it twice.
type Metering struct {
	Journal *engine.Journal
	Pending PendingCharges
	Waiter  engine.Waiter
	Logger  *slog.Logger
	Now     func() time.Time
}

// Run appends due counts until the context ends, and then everything.
func (m *Metering) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			m.flushOrLog(ctx, work.Due{Sum: flushEvery, Seen: seenEvery})
		case <-ctx.Done():
			m.flushOrLog(context.WithoutCancel(ctx), work.Due{})
			return nil
		}
	}
}

// flushOrLog is flush that only logs a failure. The next flush, or another process, continues.
func (m *Metering) flushOrLog(ctx context.Context, due work.Due) {
	if err := m.flush(ctx, due); err != nil {
		m.Logger.WarnContext(ctx, "usage flush failed, will retry", "err", err)
	}
}

// Flush appends everything counted so far to the log, up to flushTimeout.
func (m *Metering) Flush(ctx context.Context) error { return m.flush(ctx, work.Due{}) }

// flush appends due counts, a bounded part at a time, and deletes those that the projections have
// applied.
func (m *Metering) flush(ctx context.Context, due work.Due) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	errs := []error{m.forgetSeen(ctx)}
	for more := true; more && ctx.Err() == nil; {
		var open []work.Charge
		var err error
		if open, more, err = m.Pending.Take(ctx, due); err != nil {
			return errors.Join(append(errs, err)...)
		}
		positions, err := m.appendAll(ctx, open)
		// Delete the other charges even if an append failed.
		if err = errors.Join(err, m.forgetCharges(ctx, open, positions)); err != nil && len(errs) < mostErrors {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// mostErrors bounds how many errors a flush reports.
const mostErrors = 4

// appendAll returns the position of each charge, 0 for one that was not appended, or that the
// projection knows already.
func (m *Metering) appendAll(ctx context.Context, open []work.Charge) ([]eventstore.Position, error) {
	positions, errs := make([]eventstore.Position, len(open)), make([]error, len(open))
	var group errgroup.Group
	group.SetLimit(flushWidth)
	for i, c := range open {
		group.Go(func() error {
			errs[i] = panics.Call(ctx, m.Logger, "flush of usage panicked", func() (err error) {
				positions[i], err = m.append(ctx, c)
				return err
			})
			if errs[i] != nil {
				errs[i] = fmt.Errorf("flush counts of project %s: %w", c.ProjectID, errs[i])
			}
			return nil
		})
	}
	return positions, errors.Join(append(errs, group.Wait())...)
}

func (m *Metering) append(ctx context.Context, c work.Charge) (eventstore.Position, error) {
	name := stream.UsageName(c.ProjectID, c.Month)
	release, err := m.Journal.Serialize(ctx, name)
	if err != nil {
		return 0, err
	}
	defer release()
	charged := metering.Charged{
		ProjectID: c.ProjectID, OrganizationID: c.OrganizationID, FlushID: c.FlushID, Month: c.Month,
		Recalls: c.Recalls, RecallTenths: c.RecallTenths, WebhookEvents: c.WebhookEvents, WebhookTenths: c.WebhookTenths,
		Seen: c.Seen, At: m.Now(),
	}
	var position eventstore.Position
	err = engine.UntilNoConflict(ctx, &backoff.Tries{}, func(bool) error {
		last, err := m.lastOf(ctx, name)
		if err != nil {
			return err
		}
		after, open, err := m.Pending.Begin(ctx, c.FlushID, last)
		if err != nil || !open {
			return err
		}
		if last > after {
			// An earlier try of any process may be stored.
			if position, err = m.find(ctx, name, after+1, c.FlushID); err != nil || position > 0 {
				return err
			}
		}
		meta := event.Meta{CommandID: c.FlushID, Principal: "metering", At: charged.At}
		done, err := m.Journal.Append(ctx, name, last, meta, charged)
		position = done.Position
		return err
	})
	return position, err
}

func (m *Metering) lastOf(ctx context.Context, name string) (eventstore.Revision, error) {
	last, _, err := m.Journal.Last(ctx, name)
	if err != nil {
		return eventstore.NoStream, err
	}
	return last.Revision, nil
}

// find returns the position of a charge in its stream, 0 if it is not there.
func (m *Metering) find(
	ctx context.Context, name string, from eventstore.Revision, flush uuid.UUID,
) (eventstore.Position, error) {
	events, err := m.Journal.ReadFrom(ctx, name, from)
	if err != nil {
		return 0, err
	}
	for _, f := range events {
		if e, ok := f.Event.(*metering.Charged); ok && e.FlushID == flush {
			return f.Position, nil
		}
	}
	return 0, nil
}

// forgetSeen deletes the identities of earlier flushes that the directory has applied. A reader
// that reads the directory first and the counts second has the time between two flushes for that.
func (m *Metering) forgetSeen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, directoryTimeout)
	defer cancel()
	head, err := m.Journal.Store.Head(ctx)
	if err != nil {
		return engine.Unavailable(err)
	}
	if err := m.Waiter.Wait(ctx, head, projection.Directory); err != nil {
		return err
	}
	return m.Pending.DropSeen(ctx)
}

// forgetCharges deletes the charges that projection usage has applied.
func (m *Metering) forgetCharges(ctx context.Context, open []work.Charge, positions []eventstore.Position) error {
	var newest eventstore.Position
	var known []uuid.UUID
	for i, position := range positions {
		if position > 0 {
			newest, known = max(newest, position), append(known, open[i].FlushID)
		}
	}
	if err := m.Waiter.Wait(ctx, newest, projection.Usage); err != nil {
		return err
	}
	return m.Pending.DropCharges(ctx, known...)
}
