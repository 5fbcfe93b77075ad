package commands

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
)

// ChangeAddress gives a person another address, and returns once it is shown. The person must have proved to receive
// mail there: the answer shows whether somebody else has the address. Its faults are invalid-request, not-found,
// conflict for the address of somebody else, and service-unavailable.
func (s *Service) ChangeAddress(ctx context.Context, call Call, id uuid.UUID, email string) error {
	decideCtx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	if !person.ValidEmail(email) {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, "%q is no email address", email)
	}
	current, _, err := fold[person.State](decideCtx, s.journal, stream.Name(stream.Person, id))
	if errors.Is(err, eventstore.ErrDeleted) || err == nil && !current.Lives() {
		return noPerson()
	}
	if err != nil {
		return err
	}
	if err := s.takeAddress(decideCtx, call, id, email); err != nil {
		return err
	}
	before := ""
	_, at, err := s.journal.decidePerson(decideCtx, id, call.newMeta, func(p *person.State) ([]event.Event, error) {
		if before = p.Email; !p.Lives() {
			return nil, noPerson()
		}
		return p.ChangeAddress(id, email, call.ReceivedAt), nil
	})
	if errors.Is(err, eventstore.ErrDeleted) {
		return noPerson()
	}
	if err != nil {
		return err
	}
	s.leaveAddress(decideCtx, call, id, before, email)
	return waitVisible(ctx, s.waiter, at, projection.Access)
}

// takeAddress claims an address for a person who lives.
func (s *Service) takeAddress(ctx context.Context, call Call, id uuid.UUID, email string) error {
	name, err := s.journal.Namespaces.AddressName(person.NormalEmail(email))
	if err != nil {
		return err
	}
	for dead := uuid.Nil; ; {
		holder, err := s.claimAddress(ctx, call, name, id, dead)
		if err != nil || holder == id {
			return err
		}
		p, _, err := fold[person.State](ctx, s.journal, stream.Name(stream.Person, holder))
		switch {
		case err != nil && !errors.Is(err, eventstore.ErrDeleted):
			return err
		case err == nil && !p.Removed:
			return fault.New(fault.Conflict, fault.CodeConflict, "somebody else has this address")
		}
		if err := s.settleHolder(ctx, holder); err != nil {
			return err
		}
		dead = holder
	}
}

// leaveAddress releases the address that a person had before, or leaves that to the finisher.
func (s *Service) leaveAddress(ctx context.Context, call Call, id uuid.UUID, before, after string) {
	old, err := s.journal.Namespaces.AddressName(person.NormalEmail(before))
	if err == nil && person.NormalEmail(before) != person.NormalEmail(after) {
		err = s.journal.decideAddress(ctx, old, call.newMeta, func(a *person.Address) []event.Event {
			return a.Release(id, call.ReceivedAt)
		})
	}
	if err != nil {
		s.journal.Logger.WarnContext(ctx, "release of an address failed, the finisher will retry", "person", id, "err", err)
	}
}

func noPerson() error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "there is no such person")
}
