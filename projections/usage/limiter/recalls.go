package limiter

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

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
