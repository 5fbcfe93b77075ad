package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
)

// Call is the request that a command serves.
type Call struct {
	Principal auth.Principal
	RequestID uuid.UUID
	// ReceivedAt is the time of the request, in UTC, at microsecond precision.
	ReceivedAt time.Time
	// Reason is why an operator makes the call, as that person wrote it, "" for none.
	Reason string
	// Origin is that of the identities that the call creates, "" for the usual one of the caller.
	Origin identity.Origin
	// Own bounds what a single send or a deletion by source ids may change to data points whose newest revision this
	// identity wrote, "" for those without an author; nil bounds nothing.
	Own *string
	// KeepsAudience keeps the audience of a data point that a single send without one names; else it becomes
	// project-visible.
	KeepsAudience bool
	// PrivateIfNew makes a new data point that a single send without an audience brings private to its author.
	PrivateIfNew bool
	// Placed takes the audience that the data point of a single send is in then, unless a repeated idempotency key answers
	// it; nil takes nothing.
	Placed func(audience uuid.UUID)
}

// IdentityOrigin is the origin of the identities that the call creates.
func (c Call) IdentityOrigin() identity.Origin {
	usual := identity.OriginAPI
	if c.Principal.Kind == auth.Person {
		usual = identity.OriginConsole
	}
	return cmp.Or(c.Origin, usual)
}

// NewMeta is meta of a new command.
func (c Call) NewMeta() event.Meta { return c.Meta(uuid.New()) }

// Meta is the metadata of the events that a call causes.
func (c Call) Meta(command uuid.UUID) event.Meta {
	return event.Meta{
		RequestID: c.RequestID, CommandID: command, Principal: c.Principal.Name(), CorrelationID: c.RequestID,
		At: c.ReceivedAt, Reason: c.Reason,
	}
}

// Waiter waits until projections have applied a position.
type Waiter interface {
	Wait(ctx context.Context, position eventstore.Position, projections ...string) error
}

// RefuseRemoval returns the refusal of a removal, once what was removed before is invisible. The caller
// may repeat a removal that was stored and did not become visible in time: "not found" must not be the
// answer while recall still shows what was removed.
func RefuseRemoval(
	ctx context.Context, w Waiter, refusal error, removed eventstore.Position, projections ...string,
) error {
	if err := WaitVisible(ctx, w, removed, projections...); err != nil {
		return err
	}
	return refusal
}

// RefuseRemovalFrom is RefuseRemoval for what a stream does not hold, or no longer. It returns errors
// other than the fault not-found as they are.
func RefuseRemovalFrom(
	ctx context.Context, l *Journal, w Waiter, refusal error, name string, projections ...string,
) error {
	f, ok := errors.AsType[*fault.Error](refusal)
	if !ok || f.Kind != fault.NotFound {
		return refusal
	}
	last, ok, err := l.Last(ctx, name)
	switch {
	case errors.Is(err, eventstore.ErrDeleted), err == nil && !ok:
		return refusal
	case err != nil:
		return err
	}
	return RefuseRemoval(ctx, w, refusal, last.Position, projections...)
}

// WaitVisible waits until the projections have applied a position. If they do not in time, the
// fault reports that the write is committed.
func WaitVisible(ctx context.Context, w Waiter, position eventstore.Position, projections ...string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), VisibleTimeout)
	defer cancel()
	if err := w.Wait(ctx, position, projections...); err != nil {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the write is stored and takes effect shortly, but is not visible everywhere yet").With("committed", true)
	}
	return nil
}
