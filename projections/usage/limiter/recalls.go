package limiter

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/usage"
)

// Recalls counts answered recalls and charges their price if the plan has one.
type Recalls struct {
	limiter *Limiter
	counter *counter
}

// NewRecalls makes a counter. It charges prices under the lock of the limiter.
func NewRecalls(l *Limiter, log *slog.Logger) *Recalls {
	return &Recalls{limiter: l, counter: newCounter(l.db, log)}
}

// Ceiling returns the most tokens that one response may have under a plan.
func (r *Recalls) Ceiling(plan metering.Plan) int { return r.limiter.terms.Of(plan).EvidenceCeiling }

// Charge runs a search for one recall and counts it, with the identity that recalls, before it
// returns. It charges the price before the search and refunds it if the search fails. Under a plan
// without a price it reads no account and refuses nothing.
//
// The faults are those of the search, spend-cap-reached, out-of-credits, and service-unavailable if
// the recall cannot be counted.
func (r *Recalls) Charge(
	ctx context.Context, p auth.Principal, identity string, at time.Time, search func() error,
) error {
	charge := r.priced(p, at)
	seen := charge
	seen.identity, seen.at = stream.IdentityID(p.Project.Namespace, identity), at
	if charge.recallTenths == 0 {
		return r.counter.workAndCount(ctx, seen, search)
	}
	if err := r.charge(ctx, p, charge, at); err != nil {
		return err
	}
	return r.counter.refundFailed(ctx, charge, func() error {
		seen.amounts = amounts{}
		return r.counter.workAndCount(ctx, seen, search)
	})
}

// Refund subtracts a recall that Charge counted, and whose answer could not be given.
func (r *Recalls) Refund(ctx context.Context, p auth.Principal, at time.Time) {
	r.counter.refund(ctx, r.priced(p, at))
}

// priced is a recall with its price.
func (r *Recalls) priced(p auth.Principal, at time.Time) call {
	return call{
		monthKey:     monthKey{p.Project.ID, metering.Month(at)},
		organization: p.OrganizationID,
		amounts:      amounts{recalls: 1, recallTenths: r.limiter.terms.Of(p.Limits.Plan).RecallTenths},
	}
}

// charge counts a recall with its price, unless a limit of the organization refuses it.
func (r *Recalls) charge(ctx context.Context, p auth.Principal, recall call, at time.Time) error {
	return r.limiter.withOrgLock(ctx, recall.organization, func(tx pgx.Tx) error {
		a, err := usage.ReservedAccount(ctx, tx, recall.organization, recall.month)
		if err != nil {
			return err
		}
		used := r.limiter.usedOf(a, recall.project)
		if err := p.Limits.RefuseSpending(used, recall.recallTenths, at); err != nil {
			return err
		}
		if f := p.Limits.RefuseCredits(used, recall.recallTenths); f != nil {
			return f
		}
		return write(ctx, tx, []call{recall}, nil)
	})
}

// Events counts the events that webhooks receive, and charges their price.
type Events struct {
	limiter *Limiter
	counter *counter
}

// NewEvents makes a counter. It charges prices as the limiter reserves for sends.
func NewEvents(l *Limiter, log *slog.Logger) *Events {
	return &Events{limiter: l, counter: newCounter(l.db, log)}
}

// ChargeEvent runs work for one received event and counts it with its price before it returns. If
// limits bind, it charges the price before work, and refunds it if work fails. Otherwise it reads no
// account and refuses nothing.
//
// The faults are those of work, those of Limiter.Reserve, and service-unavailable if the event cannot
// be counted. The ingestion cap refuses no event: it refuses what the event is ingested as.
func (e *Events) ChargeEvent(ctx context.Context, p auth.Principal, at time.Time, work func() error) error {
	event := call{
		monthKey:     monthKey{p.Project.ID, metering.Month(at)},
		organization: p.OrganizationID,
		amounts:      amounts{events: 1, eventTenths: metering.WebhookEventTenths},
	}
	limits := p.Limits
	limits.IngestionCap = nil
	if !limits.Bind() {
		return e.counter.workAndCount(ctx, event, work)
	}
	err := e.limiter.charge(ctx, event, metering.Reservation{
		OrganizationID: p.OrganizationID, ProjectID: p.Project.ID, SendID: uuid.New(), Limits: limits, At: at,
		CreditTenths: event.eventTenths,
	}, e.counter.refund)
	if err != nil {
		return err
	}
	return e.counter.refundFailed(ctx, event, work)
}

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

// collector writes the calls that arrive while one statement runs with the next statement.
type collector struct {
	write func(ctx context.Context, calls []call) error
	// writing holds a token while a group is written.
	writing chan struct{}
	mu      sync.Mutex
	next    *group
}

// group is the calls of one statement.
type group struct {
	calls []call
	done  chan struct{}
	err   error
}

// add returns once the call is written. If the context ends first, it may be written all the same.
func (c *collector) add(ctx context.Context, one call) error {
	c.mu.Lock()
	own, first := c.next, c.next == nil
	if first {
		own = &group{done: make(chan struct{})}
		c.next = own
	}
	own.calls = append(own.calls, one)
	c.mu.Unlock()
	if first {
		c.lead(ctx, own)
	}
	select {
	case <-own.done:
		return own.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lead writes a group once the one before it is written. It does not end with its own call, since
// the other calls of the group depend on it.
func (c *collector) lead(ctx context.Context, own *group) {
	c.writing <- struct{}{}
	c.mu.Lock()
	c.next = nil
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	own.err = c.write(ctx, own.calls)
	<-c.writing
	close(own.done)
}
