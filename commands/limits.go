package commands

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore"
)

// Limiter reserves what sends cost, under the caps of their projects and organizations, for all
// processes together.
type Limiter interface {
	// Reserve makes a reservation if the caps allow it, and holds it for a time: what is not appended
	// by then never is. A try may reserve once. Its faults are project-cap-reached, spend-cap-reached,
	// out-of-credits and service-unavailable.
	Reserve(ctx context.Context, r metering.Reservation, hold time.Duration) error
	// Release ends the reservation of a try of which nothing was stored nor will be.
	Release(ctx context.Context, sendID, try uuid.UUID) error
}

const (
	// appendGrace is how long after the end of its command an append may still be on its way to the
	// event store.
	appendGrace = 10 * time.Second
	// reservationHold is how long the sweep takes a reservation for one that is in use.
	reservationHold = decideTimeout + appendGrace
	// releaseTimeout bounds the release of a reservation, which continues when the caller is gone.
	releaseTimeout = 5 * time.Second
)

// reservation is what one try of a send reserves of its caps. The try reserves once it knows that
// it creates a revision, and releases if it is refused. What is stored, or may be, stays reserved
// until the send is projected or cannot be stored any more.
type reservation struct {
	service *Service
	of      metering.Reservation
	held    bool
}

// newReservation is the reservation of a new try of a send, which holds nothing yet.
func (s *Service) newReservation(call Call, send uuid.UUID) *reservation {
	p := call.Principal
	return &reservation{service: s, of: metering.Reservation{
		OrganizationID: p.OrganizationID, ProjectID: p.Project.ID, SendID: send, Try: uuid.New(), Limits: p.Limits,
		At: call.ReceivedAt,
	}}
}

// hasCaps reports whether the send has caps. Without a cap, no reservation is made.
func (r *reservation) hasCaps() bool { return r.of.Limits.Bind() }

// reserve reserves, unless the try holds a reservation already.
func (r *reservation) reserve(ctx context.Context, items, tenths int64) error {
	if !r.hasCaps() || r.held {
		return nil
	}
	r.of.Items, r.of.CreditTenths = items, tenths
	err := r.service.limits.Reserve(ctx, r.of, reservationHold)
	// After a failure the reservation may be stored, so it is released. After a refusal it is not.
	var refused *fault.Error
	r.held = !errors.As(err, &refused) || refused.Kind == fault.Unavailable
	return err
}

// convert leaves the reservation to the send that was appended. err is that of the append: after a
// definite refusal the try keeps the reservation.
func (r *reservation) convert(err error) {
	if err == nil || !errors.Is(err, eventstore.ErrConflict) && !errors.Is(err, eventstore.ErrDeleted) {
		r.held = false
	}
}

// release ends the reservation if the try still holds it. If that fails, the sweep ends it.
func (r *reservation) release(ctx context.Context) {
	if !r.held {
		return
	}
	r.held = false
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := r.service.limits.Release(ctx, r.of.SendID, r.of.Try); err != nil {
		r.service.journal.Logger.WarnContext(ctx, "reservation not released, left to the sweep", "send", r.of.SendID,
			"err", err)
	}
}
