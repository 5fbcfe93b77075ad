package limiter

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/usage"
)

// Recalls counts answered recalls and charges their price if the plan has one.
type Recalls struct {
	limiter *Limiter
	log     *slog.Logger
	free    collector
}

// NewRecalls makes a counter. It charges prices under the lock of the limiter.
func NewRecalls(l *Limiter, log *slog.Logger) *Recalls {
	return &Recalls{
		limiter: l, log: log,
		free: collector{write: PendingCharges{DB: l.db}.addFree, writing: make(chan struct{}, 1)},
	}
}

// Ceiling returns the most tokens that one response may have under a plan.
func (r *Recalls) Ceiling(plan metering.Plan) int { return r.limiter.terms.Of(plan).EvidenceCeiling }

// recordTimeout bounds the count of one recall, which does not end with its caller.
const recordTimeout = 5 * time.Second

// Charge runs a search for one recall and counts it, with the identity that recalls, before it
// returns. It charges the price before the search and refunds it if the search fails. Under a plan
// without a price it reads no account and refuses nothing.
//
// The faults are those of the search, spend-cap-reached, out-of-credits, and service-unavailable if
// the recall cannot be counted.
func (r *Recalls) Charge(
	ctx context.Context, p auth.Principal, identity string, at time.Time, search func() error,
) error {
	charge := recallCount{
		monthKey:     monthKey{p.Project.ID, metering.Month(at)},
		organization: p.OrganizationID, count: 1, tenths: r.limiter.terms.Of(p.Limits.Plan).RecallTenths,
	}
	seen := charge
	seen.identity, seen.at = stream.IdentityID(p.Project.Namespace, identity), at
	if charge.tenths > 0 {
		if err := r.charge(ctx, p, charge, at); err != nil {
			return err
		}
		counted := false
		defer func() { // also after a panic of the search
			if !counted {
				charge.count, charge.tenths = -1, -charge.tenths
				r.refund(ctx, charge)
			}
		}()
		seen.count, seen.tenths = 0, 0
		err := r.searchAndCount(ctx, seen, search)
		counted = err == nil
		return err
	}
	return r.searchAndCount(ctx, seen, search)
}

func (r *Recalls) searchAndCount(ctx context.Context, call recallCount, search func() error) error {
	if err := search(); err != nil {
		return err
	}
	if err := r.free.add(ctx, call); err != nil {
		return fmt.Errorf("%w: %w",
			fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the recall could not be counted; retry"), err)
	}
	return nil
}

// charge counts a recall with its price, unless a limit of the organization refuses it.
func (r *Recalls) charge(ctx context.Context, p auth.Principal, call recallCount, at time.Time) error {
	return r.limiter.withOrgLock(ctx, call.organization, func(tx pgx.Tx) error {
		a, err := usage.ReservedAccount(ctx, tx, call.organization, call.month)
		if err != nil {
			return err
		}
		used := r.limiter.usedOf(a, call.project)
		if err := p.Limits.RefuseSpending(used, call.tenths, at); err != nil {
			return err
		}
		if f := p.Limits.RefuseCredits(used, call.tenths); f != nil {
			return f
		}
		return write(ctx, tx, []recallCount{call}, nil)
	})
}

// refund subtracts a recall that failed. After a crash, or if the database is gone, it stays
// charged: a tenth of a credit.
func (r *Recalls) refund(ctx context.Context, call recallCount) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := write(ctx, r.limiter.db, []recallCount{call}, nil); err != nil {
		r.log.ErrorContext(ctx, "refund of a failed recall failed, it stays charged", "project", call.project, "err", err)
	}
}

// recallCount is what one call adds: a count with its price, and the identity that recalled.
type recallCount struct {
	monthKey
	organization uuid.UUID
	count        int64
	tenths       int64
	identity     uuid.UUID
	at           time.Time
}
