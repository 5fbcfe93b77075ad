package signin

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/internal/visits"
)

// Refusal is why a sign-in was refused, for the metrics.
type Refusal string

// The refusals.
const (
	NobodyHas  Refusal = "unknown" // nobody has the address
	Wrong      Refusal = "wrong"   // the password, or the code of the second factor
	TooMany    Refusal = "throttled"
	NotInvited Refusal = "uninvited"
)

// byStranger is who caused what somebody did who is not signed in, byOperator what an operator did.
const (
	byStranger = "sign-in"
	byOperator = "operator"
)

// Record stores what a person did, to be appended to the log: for an organization, or if that is zero for each of which
// the person is a member.
func (s *Service) Record(ctx context.Context, c Client, person, organization uuid.UUID, e visit.OfPerson) error {
	return s.record(ctx, c, visits.Entry{Person: person, Organization: organization, Event: e})
}

// RecordAsked is Record for what somebody asked for who is not signed in.
func (s *Service) RecordAsked(ctx context.Context, c Client, person uuid.UUID, e visit.OfPerson) error {
	return s.record(ctx, c, visits.Entry{Person: person, Principal: byStranger, Event: e})
}

func (s *Service) record(ctx context.Context, c Client, e visits.Entry) error {
	b := &pgx.Batch{}
	if err := s.queueVisit(b, c, e); err != nil {
		return err
	}
	return failed("record a visit", s.DB.SendBatch(ctx, b).Close())
}

// queueVisit completes an entry with who sent it, and queues it in a batch, with which it is stored.
func (s *Service) queueVisit(b *pgx.Batch, c Client, e visits.Entry) error {
	if of, is := e.Event.(visit.OfPerson); is {
		of.Of().Network, of.Of().Browser = visits.Clean(c.Address), visits.Clean(c.Browser)
	}
	e.RequestID, e.At = c.Request, s.now()
	return visits.Add(b, e)
}

// linkMade records that an operator made a link for a person.
func (s *Service) linkMade(ctx context.Context, l Link) error {
	return s.record(ctx, Client{}, visits.Entry{
		Person: l.Person, Principal: byOperator, Event: &visit.LinkMade{Purpose: string(l.Purpose)},
	})
}

// refused counts a refused sign-in. Only that of a person is recorded: an address that nobody has adds nothing to the
// log.
func (s *Service) refused(ctx context.Context, c Client, person uuid.UUID, err error) error {
	_, throttled := errors.AsType[*ThrottledError](err)
	why := Wrong
	switch {
	case throttled:
		why = TooMany
	case errors.Is(err, ErrUninvited):
		why = NotInvited
	case !errors.Is(err, ErrRefused) && !errors.Is(err, ErrCode):
		return err
	case person == uuid.Nil:
		why = NobodyHas
	default:
		if lost := s.RecordAsked(ctx, c, person, &visit.SignInRefused{}); lost != nil {
			return lost
		}
	}
	if s.Refused != nil {
		s.Refused(ctx, c, why)
	}
	return err
}
