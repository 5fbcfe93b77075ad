package erasure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

// peopleList lists people by what is left to do, in the order of their ids.
type peopleList interface {
	// OpenPeople lists the people after an id who may have to be settled or released.
	OpenPeople(ctx context.Context, after uuid.UUID, limit int) ([]work.Person, error)
	// OpenOffers lists the offers after an id that may have to be settled at a time.
	OpenOffers(ctx context.Context, now time.Time, after uuid.UUID, limit int) ([]work.Offer, error)
	// EndedVisits lists the streams of visits after one that may have to end at a time, in the order of their names.
	EndedVisits(ctx context.Context, now time.Time, after string, limit int) ([]work.Visits, error)
	// RemovedPeople counts the people who are removed and not released.
	RemovedPeople(ctx context.Context) (int, error)
}

// ErasePerson tombstones the stream of a removed person, once its records are kept. They name no
// organization: a person may be a member of several.
func (s Streams) ErasePerson(ctx context.Context, id uuid.UUID) error {
	_, err := s.end(ctx, Owner{}, stream.Name(stream.Person, id), 0)
	return err
}

// EraseOffer tombstones the stream of an offer that has ended, once its records are kept.
func (s Streams) EraseOffer(ctx context.Context, organization, id uuid.UUID) error {
	_, err := s.end(ctx, Owner{Organization: organization}, stream.Name(stream.Offer, id), 0)
	return err
}

// EraseVisits tombstones a stream of visits, once its records are kept.
func (s Streams) EraseVisits(ctx context.Context, organization uuid.UUID, name string) error {
	_, err := s.end(ctx, Owner{Organization: organization}, name, 0)
	return err
}

// EachVisits calls do with every stream of visits that may have to end. A failure holds up nothing else.
func (e *Eraser) EachVisits(ctx context.Context, do func(work.Visits) error) error {
	var errs []error
	var denied DeniedError
	for after := ""; ctx.Err() == nil; {
		page, err := e.People.EndedVisits(ctx, e.Now(), after, listSize)
		if err != nil || len(page) == 0 {
			return denied.join(append(errs, err)...)
		}
		for _, one := range page {
			if err := do(one); err != nil && !denied.add(err) {
				errs = append(errs, fmt.Errorf("%s: %w", one.Stream, err))
			}
		}
		after = page[len(page)-1].Stream
	}
	return denied.join(append(errs, ctx.Err())...)
}

// EachPerson calls do with everybody who may have to be settled or released.
func (e *Eraser) EachPerson(ctx context.Context, do func(work.Person) error) error {
	return eachOf(ctx, e.People.OpenPeople, func(p work.Person) uuid.UUID { return p.ID }, do)
}

// EachOffer calls do with every offer that may have to be settled.
func (e *Eraser) EachOffer(ctx context.Context, do func(work.Offer) error) error {
	list := func(ctx context.Context, after uuid.UUID, limit int) ([]work.Offer, error) {
		return e.People.OpenOffers(ctx, e.Now(), after, limit)
	}
	return eachOf(ctx, list, func(o work.Offer) uuid.UUID { return o.ID }, do)
}

// eachOf calls do with everything of a list that is read in pages. A failure holds up nothing else.
func eachOf[W any](ctx context.Context, list func(context.Context, uuid.UUID, int) ([]W, error), id func(W) uuid.UUID,
	do func(W) error,
) error {
	var errs []error
	var denied DeniedError
	for after := uuid.Nil; ctx.Err() == nil; {
		page, err := list(ctx, after, listSize)
		if err != nil || len(page) == 0 {
			return denied.join(append(errs, err)...)
		}
		for _, one := range page {
			err := do(one)
			if err == nil {
				continue
			}
			if err = fmt.Errorf("%s: %w", id(one), err); !denied.add(err) {
				errs = append(errs, err)
			}
		}
		after = id(page[len(page)-1])
	}
	return denied.join(append(errs, ctx.Err())...)
}

// erasedPeople lists the people whose streams are tombstoned and whose addresses are not released.
func (e *Eraser) erasedPeople(ctx context.Context) (found []work.Person, err error) {
	err = e.EachPerson(ctx, func(p work.Person) error {
		if len(p.Addresses) == 0 {
			return nil
		}
		_, _, err := e.Journal.Store.ReadLast(ctx, stream.Name(stream.Person, p.ID))
		if errors.Is(err, eventstore.ErrDeleted) {
			found = append(found, p)
			return nil
		}
		return err
	})
	return found, err
}

// releaseAll releases the addresses of people that are purged, and returns how many.
func (e *Eraser) releaseAll(ctx context.Context, people []work.Person) (released int, err error) {
	var errs []error
	for _, p := range people {
		var failed []error
		for _, address := range p.Addresses {
			failed = append(failed,
				e.bounded(ctx, func(ctx context.Context) error { return e.release(ctx, p.ID, address, e.Now()) }))
		}
		if err := errors.Join(failed...); err != nil {
			errs = append(errs, fmt.Errorf("release the address of person %s: %w", p.ID, err))
			continue
		}
		released++
	}
	if released > 0 {
		errs = append(errs, e.waitHead(ctx, projection.Access))
	}
	return released, errors.Join(errs...)
}

// release records that nothing of a person is left. It appends at most one event for a claim.
func (s Streams) release(ctx context.Context, id uuid.UUID, stream string, now time.Time) error {
	return backoff.Retry(ctx, eventstore.ErrConflict, func() error {
		var address person.Address
		err := s.Journal.Scan(ctx, stream, 0, func(f eventstore.DecodedEvent) (bool, error) {
			address.Evolve(f.Event)
			return true, nil
		})
		if err != nil {
			return err
		}
		var events []event.Event
		if events = address.Release(id, now); len(events) == 0 {
			return nil
		}
		meta := event.NewMeta(finisherName, now).Of(id)
		_, err = s.Journal.Append(ctx, stream, eventstore.Revision(address.Events)-1, meta, events...)
		return err
	})
}

// EndReads tombstones the stream of the read records of a day, once the records of its events are kept. No process
// appends to it any more: its day is long over.
func (s Streams) EndReads(ctx context.Context, d work.ReadsDay) error {
	_, err := s.end(ctx, Owner{d.OrganizationID, d.ProjectID}, stream.ReadsName(d.ProjectID, d.Day), 0)
	return err
}
