package usage

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
)

// Recalls counts the recalls that are answered, and takes their price where the plan has one.
type Recalls struct {
	meters  *Meters
	log     *slog.Logger
	pending gatherer
}

// NewRecalls makes a counter. It takes prices under the lock of the meters.
func NewRecalls(m *Meters, log *slog.Logger) *Recalls {
	return &Recalls{meters: m, log: log, pending: gatherer{write: Queries{DB: m.db}.add, turn: make(chan struct{}, 1)}}
}

// Ceiling is the most tokens of a page of recall under a plan.
func (r *Recalls) Ceiling(plan metering.Plan) int { return r.meters.tariff.Of(plan).EvidenceCeiling }

// recordTimeout is how long it may take to count a recall: it is counted, or known not to be, though its caller is gone.
const recordTimeout = 5 * time.Second

// Recall searches for one call: its price is taken before, given back where the search fails, and it is counted, with the identity
// that asked, before it is answered. Where the plan has no price nothing is looked at before the search, and nothing refused.
//
// The faults are those of the search, spend-cap-reached, out-of-credits, and service-unavailable where it cannot be counted.
func (r *Recalls) Recall(ctx context.Context, p auth.Principal, identity string, at time.Time, search func() error) error {
	charge := recalled{
		monthKey: monthKey{p.Project.ID, metering.Month(at)}, organization: p.OrganizationID, count: 1, tenths: r.meters.tariff.Of(p.Limits.Plan).RecallTenths,
	}
	seen := charge
	seen.identity, seen.at = stream.IdentityID(p.Project.Namespace, identity), at
	if charge.tenths > 0 {
		if err := r.take(ctx, p, charge, at); err != nil {
			return err
		}
		answered := false
		defer func() {
			if !answered {
				charge.count, charge.tenths = -1, -charge.tenths
				r.giveBack(ctx, charge)
			}
		}()
		seen.count, seen.tenths = 0, 0
		err := r.answer(ctx, seen, search)
		answered = err == nil
		return err
	}
	return r.answer(ctx, seen, search)
}

// answer searches and counts.
func (r *Recalls) answer(ctx context.Context, call recalled, search func() error) error {
	if err := search(); err != nil {
		return err
	}
	if err := r.pending.add(ctx, call); err != nil {
		return fmt.Errorf("%w: %w", fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the recall could not be counted; retry"), err)
	}
	return nil
}

// take counts a recall with its price, unless the organization has come to a limit. Who reserves for the same organization waits.
func (r *Recalls) take(ctx context.Context, p auth.Principal, call recalled, at time.Time) error {
	return r.meters.alone(ctx, call.organization, func(tx pgx.Tx) error {
		a, err := accountOf(ctx, tx, reserved, call.organization, call.month)
		if err != nil {
			return err
		}
		used := r.meters.usedOf(a, call.project)
		if err := p.Limits.RefuseSpending(used, call.tenths, at); err != nil {
			return err
		}
		if f := p.Limits.RefuseCredits(used, call.tenths); f != nil {
			return f
		}
		return write(ctx, tx, []recalled{call}, nil)
	})
}

// giveBack takes a recall off again that was not answered. What a crash leaves, or a database that is gone, stays charged: a tenth.
func (r *Recalls) giveBack(ctx context.Context, call recalled) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := write(ctx, r.meters.db, []recalled{call}, nil); err != nil {
		r.log.ErrorContext(ctx, "the price of a recall that failed was not given back", "project", call.project, "err", err)
	}
}

// recalled is what calls add: a count with its price, and who was seen.
type recalled struct {
	monthKey
	organization uuid.UUID
	count        int64
	tenths       int64
	identity     uuid.UUID
	at           time.Time
}
