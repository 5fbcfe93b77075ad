package people

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/visits"
	"github.com/annals-project/annals/internal/work"
)

const (
	// visitTimeout bounds the append of a visit, during which a transaction is open.
	visitTimeout = 5 * time.Second
	// visitPoll is the pause between looks for visits.
	visitPoll = time.Second
)

// Visits appends what people did without a change, once it is done: nobody waits for it. While the log is away, it
// stays in the queue.
type Visits struct {
	Journal *engine.Journal
	Queue   interface {
		Take(ctx context.Context, now time.Time, do func(context.Context, visits.Entry) error) (taken bool, err error)
	}
	// MembersOf returns the organizations of which a person is a member.
	MembersOf func(ctx context.Context, person uuid.UUID) ([]uuid.UUID, error)
	// Now is the clock by which entries are due.
	Now func() time.Time
}

// Run appends until the context ends.
func (v *Visits) Run(ctx context.Context) error {
	pause := time.NewTicker(visitPoll)
	defer pause.Stop()
	for {
		err := panics.Call(ctx, v.Journal.Logger, "append of visits panicked", func() error { return v.Flush(ctx) })
		if err != nil && ctx.Err() == nil {
			v.Journal.Logger.WarnContext(ctx, "visits are not in the log yet, will retry", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
	}
}

// Flush appends everything that is due.
func (v *Visits) Flush(ctx context.Context) error {
	for ctx.Err() == nil {
		taken, err := v.Queue.Take(ctx, v.Now(), v.append)
		if err != nil || !taken {
			return err
		}
	}
	return ctx.Err()
}

// append appends a visit to the stream of each organization that it concerns. It may be repeated. What a person did
// who is removed by now is dropped.
func (v *Visits) append(ctx context.Context, e visits.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, visitTimeout)
	defer cancel()
	organizations := []uuid.UUID{e.Organization}
	if e.Person != uuid.Nil {
		lives, err := lives(ctx, v.Journal, e.Person)
		if err != nil || !lives {
			return err
		}
		if e.Organization == uuid.Nil {
			if organizations, err = v.MembersOf(ctx, e.Person); err != nil {
				return err
			}
		}
	}
	for _, organization := range organizations {
		if err := v.appendTo(ctx, organization, e); err != nil {
			return err
		}
	}
	return nil
}

func (v *Visits) appendTo(ctx context.Context, organization uuid.UUID, e visits.Entry) error {
	switch of := e.Event.(type) {
	case *visit.OperatorRead:
		of.OrganizationID, of.VisitedAt = organization, e.At
	case *visit.SignInRefused:
		of.Attempts, of.LastAt = e.Attempts, e.LastAt
	case *visit.LinkMade:
		of.Times = e.Attempts
	}
	if of, is := e.Event.(visit.OfPerson); is {
		*of.Of() = visit.Visit{
			OrganizationID: organization, PersonID: e.Person, Network: of.Of().Network, Browser: of.Of().Browser,
			VisitedAt: e.At,
		}
	}
	meta := event.Meta{
		RequestID: e.RequestID, CommandID: uuid.NewSHA1(e.ID, organization[:]), Principal: e.Principal,
		CorrelationID: e.RequestID, At: e.At,
	}
	name := stream.VisitsName(organization, e.Person, e.At.UTC().Format("2006-01"))
	err := engine.UntilNoConflict(ctx, nil, func(bool) error {
		last, ok, err := v.Journal.Last(ctx, name)
		if err != nil || ok && last.Details.CommandID == meta.CommandID {
			return err // or it is there
		}
		at := eventstore.NoStream
		if ok {
			at = last.Revision
		}
		_, err = v.Journal.Append(ctx, name, at, meta, e.Event)
		return err
	})
	if errors.Is(err, eventstore.ErrDeleted) { // the month is over, or the person erased
		return nil
	}
	return err
}

// lives reports whether a person is registered and not removed.
func lives(ctx context.Context, l *engine.Journal, id uuid.UUID) (bool, error) {
	state, _, err := engine.Fold[person.State](ctx, l, stream.Name(stream.Person, id))
	if errors.Is(err, eventstore.ErrDeleted) {
		return false, nil
	}
	return state.Lives(), err
}

// SettleVisits ends the stream of visits of a person who is removed, or of a month that is older than the organization
// keeps. The records of its events stay. It leaves others alone.
func SettleVisits(ctx context.Context, l *engine.Journal, of work.Visits, now time.Time) (ended bool, err error) {
	who, month := stream.Visitor(of.Stream)
	begins, err := time.Parse("2006-01", month)
	if err != nil {
		return false, fmt.Errorf("month of visits: %w", err)
	}
	gone := false
	if who != uuid.Nil {
		lives, err := lives(ctx, l, who)
		if err != nil {
			return false, err
		}
		gone = !lives
	}
	if !gone {
		o, err := engine.ReadOrganization(ctx, l, of.Organization)
		if err != nil || now.Before(begins.AddDate(0, 1, o.VisitDays())) {
			return false, err
		}
	}
	err = erasure.On(l, l.Now).EraseVisits(ctx, of.Organization, of.Stream)
	return err == nil, err
}

// SetVisitsKept sets for how many days an organization keeps visits. Its faults are invalid-request and not-found.
func (s *Service) SetVisitsKept(ctx context.Context, call engine.Call, organizationID uuid.UUID, days int) error {
	return s.changeSettings(ctx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		return state.KeepVisits(organization.VisitsKeptSet{
			OrganizationID: organizationID, Days: days, SetAt: call.ReceivedAt,
		})
	})
}

// SetAuditorTexts sets whether auditors of an organization may read texts. Its fault is not-found.
func (s *Service) SetAuditorTexts(ctx context.Context, call engine.Call, organizationID uuid.UUID, allowed bool) error {
	return s.changeSettings(ctx, call, organizationID, func(state *organization.State) ([]event.Event, error) {
		return state.AllowTexts(organization.AuditorTextsSet{
			OrganizationID: organizationID, Allowed: allowed, SetAt: call.ReceivedAt,
		}), nil
	})
}

// changeSettings decides on an organization that is registered, and returns once the change is shown.
func (s *Service) changeSettings(ctx context.Context, call engine.Call, organizationID uuid.UUID,
	decide func(*organization.State) ([]event.Event, error),
) error {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	if err := s.checkRegistered(ctx, organizationID); err != nil {
		return err
	}
	return s.changeMembers(ctx, call, organizationID, decide)
}
