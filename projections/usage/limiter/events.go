package limiter

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
)

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
