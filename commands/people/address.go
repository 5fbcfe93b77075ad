package people

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

// ChangeAddress gives a person another address, and returns once it is shown. The person must have proved to receive
// mail there: the answer shows whether somebody else has the address. Its faults are invalid-request, not-found,
// conflict for the address of somebody else, and service-unavailable.
func (s *Service) ChangeAddress(ctx context.Context, call engine.Call, id uuid.UUID, email string) error {
	decideCtx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	if !person.ValidEmail(email) {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, "%q is no email address", email)
	}
	current, _, err := engine.Fold[person.State](decideCtx, s.journal, stream.Name(stream.Person, id))
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
	_, at, err := decidePerson(decideCtx, s.journal, id, call.NewMeta, func(p *person.State) ([]event.Event, error) {
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
	return engine.WaitVisible(ctx, s.waiter, at, projection.Access)
}

// holderOf returns the stream in which an address is claimed, and the person who has the address, zero for nobody. A
// person who claimed it before addresses were compared by the letters of ASCII is found by its former name.
func holderOf(ctx context.Context, l *engine.Journal, email string) (name string, holder uuid.UUID, err error) {
	for _, form := range person.Forms(email) {
		tried, err := l.Namespaces.AddressName(form)
		if err != nil {
			return "", uuid.Nil, err
		}
		if name == "" {
			name = tried
		}
		address, _, err := engine.Fold[person.Address](ctx, l, tried)
		if err != nil {
			return "", uuid.Nil, err
		}
		if address.Holder == uuid.Nil {
			continue
		}
		p, err := personState(ctx, l, address.Holder)
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
func moveAddress(ctx context.Context, l *engine.Journal, call engine.Call, id uuid.UUID, email, former string) error {
	name, err := l.Namespaces.AddressName(person.NormalEmail(email))
	if err != nil {
		return err
	}
	holder, err := claimAddress(ctx, l, call, name, id, uuid.Nil)
	if err == nil && holder != id {
		err = fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the person with this address is changing it; repeat in a minute")
	}
	if err != nil {
		return err
	}
	return decideAddress(ctx, l, former, call.NewMeta, func(a *person.Address) []event.Event {
		return a.Release(id, call.ReceivedAt)
	})
}

// takeAddress claims an address for a person who lives, and returns the stream of the claim.
func (s *Service) takeAddress(
	ctx context.Context, call engine.Call, id uuid.UUID, email string,
) (name string, err error) {
	if name, _, err = holderOf(ctx, s.journal, email); err != nil {
		return "", err
	}
	for dead := uuid.Nil; ; {
		holder, err := claimAddress(ctx, s.journal, call, name, id, dead)
		if err != nil || holder == id {
			return name, err
		}
		p, _, err := engine.Fold[person.State](ctx, s.journal, stream.Name(stream.Person, holder))
		switch {
		case err != nil && !errors.Is(err, eventstore.ErrDeleted):
			return "", err
		case err == nil && p.Had(email):
			if err := moveAddress(ctx, s.journal, call, holder, p.Email, name); err != nil {
				return "", err
			}
			continue
		case err == nil && !p.Removed:
			return "", fault.New(fault.Conflict, fault.CodeConflict, "somebody else has this address")
		}
		if err := settleHolder(ctx, s.journal, holder); err != nil {
			return "", err
		}
		dead = holder
	}
}

// leaveAddress releases the address that a person had before, or leaves that to the finisher. name is the stream of the
// address that the person has now.
func (s *Service) leaveAddress(ctx context.Context, call engine.Call, id uuid.UUID, before, name string) {
	var err error
	for _, form := range person.Forms(before) {
		old, failed := s.journal.Namespaces.AddressName(form)
		if failed == nil && old != name {
			failed = decideAddress(ctx, s.journal, old, call.NewMeta, func(a *person.Address) []event.Event {
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

// SettlePerson removes a person who is a member of no organization, ends the memberships of a removed
// one, and then tombstones the stream. It releases the address that an interrupted change left, and
// leaves everybody else alone. erased reports whether the stream is tombstoned. While a join may be
// under way, it is not: a later call ends it.
func SettlePerson(ctx context.Context, l *engine.Journal, p work.Person, now time.Time) (erased bool, err error) {
	var state person.State
	meta := func() event.Meta { return event.NewMeta("finisher", now).Of(p.ID) }
	removed, _, err := decidePerson(ctx, l, p.ID, meta, func(current *person.State) ([]event.Event, error) {
		state = *current
		member, err := isAnywhere(ctx, l, p.ID, state)
		return state.Leave(p.ID, member, p.ClaimedAt, now), err
	})
	erased = errors.Is(err, eventstore.ErrDeleted)
	if err == nil && !removed {
		err = releaseAbandoned(ctx, l, p, state, meta, now)
	}
	if !erased && (err != nil || !removed) {
		return false, err
	}
	for _, id := range append(slices.Collect(maps.Keys(state.Joins)), p.Organizations...) {
		creator, err := l.CreatorOf(ctx, id)
		if err != nil {
			return erased, err
		}
		_, err = l.DecideOrganization(ctx, id, meta, func(o organization.State) ([]event.Event, error) {
			return o.Erase(p.ID, creator, id, now), nil
		})
		if err != nil {
			return erased, err
		}
	}
	if erased || state.Joining(now) {
		return erased, nil
	}
	err = erasure.On(l, func() time.Time { return now }).ErasePerson(ctx, p.ID)
	return err == nil, err
}

// releaseAbandoned releases the addresses that a change of the address left to a person.
func releaseAbandoned(
	ctx context.Context, l *engine.Journal, p work.Person, state person.State, meta func() event.Meta, now time.Time,
) error {
	if !state.Lives() || len(p.Addresses) < 2 {
		return nil
	}
	current := ""
	for _, form := range person.Forms(state.Email) {
		name, err := l.Namespaces.AddressName(form)
		if err != nil {
			return err
		}
		if current == "" || !slices.Contains(p.Addresses, current) {
			current = name
		}
	}
	for _, address := range p.Addresses {
		if address == current {
			continue
		}
		if err := decideAddress(ctx, l, address, meta, func(a *person.Address) []event.Event {
			return a.ReleaseAbandoned(p.ID, now)
		}); err != nil {
			return err
		}
	}
	return nil
}

// decideAddress decides on the stream of an address.
func decideAddress(
	ctx context.Context, l *engine.Journal, name string, meta func() event.Meta,
	decide func(*person.Address) []event.Event,
) error {
	_, err := engine.Decide(ctx, l, engine.Decision[person.Address]{
		Stream: name, Read: engine.Folded[person.Address](l, name), Meta: meta,
		Decide: func(_ context.Context, address person.Address) ([]event.Event, error) { return decide(&address), nil },
	})
	return err
}

// isAnywhere reports whether a person is a member of an organization.
func isAnywhere(ctx context.Context, l *engine.Journal, id uuid.UUID, p person.State) (bool, error) {
	for joined := range p.Joins {
		o, err := engine.ReadOrganization(ctx, l, joined)
		if err != nil {
			return false, err
		}
		if creator, err := l.CreatorOf(ctx, joined); err != nil || o.Has(id, creator) {
			return true, err
		}
	}
	return false, nil
}

// decidePerson decides on a person. removed reports whether the person is a removed one after it. The
// error is eventstore.ErrDeleted for one whose stream is tombstoned.
func decidePerson(ctx context.Context, l *engine.Journal, id uuid.UUID, meta func() event.Meta,
	decide func(*person.State) ([]event.Event, error),
) (removed bool, position eventstore.Position, err error) {
	name := stream.Name(stream.Person, id)
	done, err := engine.Decide(ctx, l, engine.Decision[person.State]{
		Stream: name, Read: engine.Folded[person.State](l, name), Meta: meta,
		Decide: func(_ context.Context, state person.State) ([]event.Event, error) {
			events, err := decide(&state)
			removed = state.Removed || slices.ContainsFunc(events, func(e event.Event) bool {
				_, is := e.(person.Removed)
				return is
			})
			return events, err
		},
	})
	return removed, done.Position, err
}
