package limiter

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/fault"
)

// recordTimeout bounds the count of one call, which does not end with its caller.
const recordTimeout = 5 * time.Second

// amounts are counts of calls and their prices.
type amounts struct {
	recalls, recallTenths int64
	// events are those that webhooks received.
	events, eventTenths int64
}

func (a amounts) plus(b amounts) amounts {
	return amounts{
		a.recalls + b.recalls, a.recallTenths + b.recallTenths, a.events + b.events, a.eventTenths + b.eventTenths,
	}
}

func (a amounts) negated() amounts {
	return amounts{-a.recalls, -a.recallTenths, -a.events, -a.eventTenths}
}

// belowZero returns the amounts that are below 0.
func (a amounts) belowZero() amounts {
	return amounts{min(a.recalls, 0), min(a.recallTenths, 0), min(a.events, 0), min(a.eventTenths, 0)}
}

// call is what one call adds: its amounts, and the identity that recalled, if one did.
type call struct {
	monthKey
	amounts
	organization uuid.UUID
	identity     uuid.UUID
	at           time.Time
}

// counter counts calls. Those without a price share statements.
type counter struct {
	db   *pgxpool.Pool
	log  *slog.Logger
	free collector
}

func newCounter(db *pgxpool.Pool, log *slog.Logger) *counter {
	return &counter{
		db: db, log: log,
		free: collector{write: PendingCharges{DB: db}.addFree, writing: make(chan struct{}, 1)},
	}
}

// workAndCount runs work, and counts it if it succeeds.
func (c *counter) workAndCount(ctx context.Context, done call, work func() error) error {
	if err := work(); err != nil {
		return err
	}
	if err := c.free.add(ctx, done); err != nil {
		return fmt.Errorf("%w: %w",
			fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the call could not be counted; retry"), err)
	}
	return nil
}

// refundFailed runs work for a call that is charged, and refunds it if work fails or panics.
func (c *counter) refundFailed(ctx context.Context, charged call, work func() error) error {
	succeeded := false
	defer func() {
		if !succeeded {
			c.refund(ctx, charged)
		}
	}()
	err := work()
	succeeded = err == nil
	return err
}

// refund subtracts a call that failed. After a crash, or if the database is gone, it stays charged: a
// tenth of a credit.
func (c *counter) refund(ctx context.Context, failed call) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	failed.amounts = failed.negated()
	if err := write(ctx, c.db, []call{failed}, nil); err != nil {
		c.log.ErrorContext(ctx, "refund of a failed call failed, it stays charged", "project", failed.project, "err", err)
	}
}
