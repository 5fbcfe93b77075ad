package commands

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/work"
)

// SettlePerson removes a person who is a member of no organization, ends the memberships of a removed
// one, and then tombstones the stream. It releases the address that an interrupted change left, and
// leaves everybody else alone. erased reports whether the stream is tombstoned. While a join may be
// under way, it is not: a later call ends it.
func (l *Journal) SettlePerson(ctx context.Context, p work.Person, now time.Time) (erased bool, err error) {
	var state person.State
	meta := func() event.Meta { return event.NewMeta("finisher", now).Of(p.ID) }
	removed, _, err := l.decidePerson(ctx, p.ID, meta, func(current *person.State) ([]event.Event, error) {
		state = *current
		member, err := l.isAnywhere(ctx, p.ID, state)
		return state.Leave(p.ID, member, p.ClaimedAt, now), err
	})
	erased = errors.Is(err, eventstore.ErrDeleted)
	if err == nil && !removed {
		err = l.releaseAbandoned(ctx, p, state, meta, now)
	}
	if !erased && (err != nil || !removed) {
		return false, err
	}
	for _, id := range append(slices.Collect(maps.Keys(state.Joins)), p.Organizations...) {
		creator, err := l.creatorOf(ctx, id)
		if err != nil {
			return erased, err
		}
		_, err = l.decideOrganization(ctx, id, meta, func(o organization.State) ([]event.Event, error) {
			return o.Erase(p.ID, creator, id, now), nil
		})
		if err != nil {
			return erased, err
		}
	}
	if erased || state.Joining(now) {
		return erased, nil
	}
	streams := erasure.Streams{
		Journal: l.Journal, Projects: l, Logger: l.Logger, Now: func() time.Time { return now },
	}
	err = streams.ErasePerson(ctx, p.ID)
	return err == nil, err
}

// releaseAbandoned releases the addresses that a change of the address left to a person.
func (l *Journal) releaseAbandoned(
	ctx context.Context, p work.Person, state person.State, meta func() event.Meta, now time.Time,
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
		if err := l.decideAddress(ctx, address, meta, func(a *person.Address) []event.Event {
			return a.ReleaseAbandoned(p.ID, now)
		}); err != nil {
			return err
		}
	}
	return nil
}

// decideAddress decides on the stream of an address.
func (l *Journal) decideAddress(
	ctx context.Context, name string, meta func() event.Meta, decide func(*person.Address) []event.Event,
) error {
	_, err := runDecision(ctx, l, decision[person.Address]{
		stream: name, read: folded[person.Address](l, name), meta: meta,
		decide: func(_ context.Context, address person.Address) ([]event.Event, error) { return decide(&address), nil },
	})
	return err
}

// isAnywhere reports whether a person is a member of an organization.
func (l *Journal) isAnywhere(ctx context.Context, id uuid.UUID, p person.State) (bool, error) {
	for joined := range p.Joins {
		o, err := readOrganization(ctx, l, joined)
		if err != nil {
			return false, err
		}
		if creator, err := l.creatorOf(ctx, joined); err != nil || o.Has(id, creator) {
			return true, err
		}
	}
	return false, nil
}

// decidePerson decides on a person. removed reports whether the person is a removed one after it. The
// error is eventstore.ErrDeleted for one whose stream is tombstoned.
func (l *Journal) decidePerson(ctx context.Context, id uuid.UUID, meta func() event.Meta,
	decide func(*person.State) ([]event.Event, error),
) (removed bool, position eventstore.Position, err error) {
	name := stream.Name(stream.Person, id)
	done, err := runDecision(ctx, l, decision[person.State]{
		stream: name, read: folded[person.State](l, name), meta: meta,
		decide: func(_ context.Context, state person.State) ([]event.Event, error) {
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
