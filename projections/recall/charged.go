package recall

import (
	"context"
	"time"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/readlog"
)

// meter charges recalls.
type meter interface {
	// Charge reserves the price of a recall, searches, and counts the recall. Its faults are those of
	// the search, spend-cap-reached, out-of-credits, and service-unavailable if it cannot be counted.
	Charge(ctx context.Context, p auth.Principal, identity string, at time.Time, search func() error) error
	// Refund subtracts a recall that was counted, and is not shown.
	Refund(ctx context.Context, p auth.Principal, at time.Time)
	// Ceiling returns the most tokens of a recall response under a plan.
	Ceiling(plan metering.Plan) int
}

// recaller searches the memory of a project.
type recaller interface {
	// Recall returns a response whose results are never nil.
	Recall(ctx context.Context, q Query) (Response, error)
}

// Charged answers recalls for the callers of a project, and charges them.
type Charged struct {
	Meter   meter
	Recalls recaller
}

// Recall recalls for a caller at an instant, in the project of the caller. A budget over the ceiling of the plan is
// lowered to it. The faults are those of Service.Recall and, where the plan has a price, spend-cap-reached and
// out-of-credits.
func (c Charged) Recall(ctx context.Context, p auth.Principal, q Query, at time.Time) (found Response, err error) {
	q.Project, q.Organization = p.Project, p.OrganizationID
	q.Budget = min(q.Budget, c.Meter.Ceiling(p.Limits.Plan))
	err = c.Meter.Charge(ctx, p, q.Identity, at, func() (err error) {
		found, err = c.Recalls.Recall(ctx, q)
		return err
	})
	if err == nil {
		readlog.From(ctx).Unless(func() { c.Meter.Refund(ctx, p, at) })
	}
	return found, err
}
