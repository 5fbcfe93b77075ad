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
	name, err := s.takeAddress(decideCtx, call, id, email)
	if err != nil {
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
	s.leaveAddress(decideCtx, call, id, before, name)
	return waitVisible(ctx, s.waiter, at, projection.Access)
}

// holderOf returns the stream in which an address is claimed, and the person who has the address, zero for nobody. A
// person who claimed it before addresses were compared by the letters of ASCII is found by its former name.
func (s *Service) holderOf(ctx context.Context, email string) (name string, holder uuid.UUID, err error) {
	for _, form := range person.Forms(email) {
		tried, err := s.journal.Namespaces.AddressName(form)
		if err != nil {
			return "", uuid.Nil, err
		}
		if name == "" {
			name = tried
		}
		address, _, err := fold[person.Address](ctx, s.journal, tried)
		if err != nil {
			return "", uuid.Nil, err
		}
		if address.Holder == uuid.Nil {
			continue
		}
		p, err := s.personState(ctx, address.Holder)
		if err != nil {
			return "", uuid.Nil, err
		}
		if p.Lives() && p.Has(email) {
			return tried, address.Holder, nil
		}
	}
	return name, uuid.Nil, nil
}

// moveAddress moves a person from a stream in which the person claimed an address by its former name, so that the
// holder of the address that has this name now can claim it. A crash in between leaves two claims, as a change of the
// address does.
func (s *Service) moveAddress(ctx context.Context, call Call, id uuid.UUID, email, former string) error {
	name, err := s.journal.Namespaces.AddressName(person.NormalEmail(email))
	if err != nil {
		return err
	}
	holder, err := s.claimAddress(ctx, call, name, id, uuid.Nil)
	if err == nil && holder != id {
		err = fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the person with this address is changing it; repeat in a minute")
	}
	if err != nil {
		return err
	}
	return s.journal.decideAddress(ctx, former, call.newMeta, func(a *person.Address) []event.Event {
		return a.Release(id, call.ReceivedAt)
	})
}

// takeAddress claims an address for a person who lives, and returns the stream of the claim.
func (s *Service) takeAddress(ctx context.Context, call Call, id uuid.UUID, email string) (name string, err error) {
	if name, _, err = s.holderOf(ctx, email); err != nil {
		return "", err
	}
	for dead := uuid.Nil; ; {
		holder, err := s.claimAddress(ctx, call, name, id, dead)
		if err != nil || holder == id {
			return name, err
		}
		p, _, err := fold[person.State](ctx, s.journal, stream.Name(stream.Person, holder))
		switch {
		case err != nil && !errors.Is(err, eventstore.ErrDeleted):
			return "", err
		case err == nil && p.Had(email):
			if err := s.moveAddress(ctx, call, holder, p.Email, name); err != nil {
				return "", err
			}
			continue
		case err == nil && !p.Removed:
			return "", fault.New(fault.Conflict, fault.CodeConflict, "somebody else has this address")
		}
		if err := s.settleHolder(ctx, holder); err != nil {
			return "", err
		}
		dead = holder
	}
}

// leaveAddress releases the address that a person had before, or leaves that to the finisher. name is the stream of the
// address that the person has now.
func (s *Service) leaveAddress(ctx context.Context, call Call, id uuid.UUID, before, name string) {
	var err error
	for _, form := range person.Forms(before) {
		old, failed := s.journal.Namespaces.AddressName(form)
		if failed == nil && old != name {
			failed = s.journal.decideAddress(ctx, old, call.newMeta, func(a *person.Address) []event.Event {
				return a.Release(id, call.ReceivedAt)
			})
		}
		err = errors.Join(err, failed)
	}
	if err != nil {
		s.journal.Logger.WarnContext(ctx, "release of an address failed, the finisher will retry", "person", id, "err", err)
	}
}

func noPerson() error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "there is no such person")
}
