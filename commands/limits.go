package commands

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore"
)

// Limits take what sends cost of what their organizations may still take, in whatever process they are decided.
type Limits interface {
	// Reserve takes a reservation where the limits leave it, and holds it for so long: what is not appended by then never is.
	// The same try may reserve once. Its faults are project-cap-reached, spend-cap-reached, out-of-credits and service-unavailable.
	Reserve(ctx context.Context, r metering.Reservation, hold time.Duration) error
	// Release gives back what a try has reserved, and of which nothing was stored nor will be.
	Release(ctx context.Context, sendID, try uuid.UUID) error
}

const (
	// appendGrace is how long after the end of its command an append may still be on its way to the event store.
	appendGrace = 10 * time.Second
	// reservationHold is until when a reservation is not taken for one that was left behind.
	reservationHold = decideTimeout + appendGrace
	// releaseTimeout bounds giving a reservation back, which goes on when the caller is gone.
	releaseTimeout = 5 * time.Second
)

// quota is what one try of a send holds of its limits. A send takes it once it is known to bring a revision, and gives it
// back where it was refused; what was stored, or may have been, stays reserved until it is a fact or can be none.
type quota struct {
	service *Service
	of      metering.Reservation
	held    bool
}

// quotaOf is the quota of a new try of a send, which holds nothing yet.
func (s *Service) quotaOf(call Call, send uuid.UUID) *quota {
	p := call.Principal
	return &quota{service: s, of: metering.Reservation{
		OrganizationID: p.OrganizationID, ProjectID: p.Project.ID, SendID: send, Try: uuid.New(), Limits: p.Limits, At: call.ReceivedAt,
	}}
}

// binds reports whether anything bounds the send. Where nothing does, its quota is never asked for.
func (q *quota) binds() bool { return q.service.Limits != nil && q.of.Limits.Bind() }

// take reserves. A try that holds something already keeps it: what it brings does not change.
func (q *quota) take(ctx context.Context, items, tenths int64) error {
	if !q.binds() || q.held {
		return nil
	}
	q.of.Items, q.of.CreditTenths = items, tenths
	err := q.service.Limits.Reserve(ctx, q.of, reservationHold)
	// What failed may have been stored all the same, and is given back like any other; what was refused is not there.
	var refused *fault.Error
	q.held = !errors.As(err, &refused) || refused.Kind == fault.Unavailable
	return err
}

// appended says what became of the append that the quota was taken for: only a definite refusal lets go of it.
func (q *quota) appended(err error) {
	if err == nil || !errors.Is(err, eventstore.ErrConflict) && !errors.Is(err, eventstore.ErrDeleted) {
		q.held = false
	}
}

// give gives back what is still held. What fails here is left to the sweep.
func (q *quota) give(ctx context.Context) {
	if !q.held {
		return
	}
	q.held = false
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := q.service.Limits.Release(ctx, q.of.SendID, q.of.Try); err != nil {
		q.service.Log.Logger.WarnContext(ctx, "a reservation is left to the sweep", "send", q.of.SendID, "err", err)
	}
}

// brings reports whether an item brings a revision on a base, and so takes of limits.
func brings(base datapoint.Base, in datapoint.Ingest) bool {
	outcome := base.Outcome(in)
	return outcome == ingestion.Created || outcome == ingestion.Updated
}
