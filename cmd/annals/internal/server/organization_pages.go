package server

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/pages/organization"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/erasures"
	"github.com/annals-project/annals/projections/why"
)

// organizationPages are the pages of an organization.
func (s *Server) organizationPages() web.Area {
	people := peopleOf(s)
	if s.background != nil {
		people = s.background.finisher.People // knows why a step failed
	}
	return organization.Area(organization.Deps{
		Access: s.read.access, Commands: s.write.service, Links: s.memberLinks(), OfferLife: s.signin.InviteLife,
		History: s.history(),
		Takes: why.Takes{
			Log: s.requestLog(), Trace: s.trace(), Points: s.read.dataPoints, Directory: s.read.directory,
			Access: s.read.access, Logger: s.cfg.Logger,
		},
		Erasures: people, Names: erasures.Names{DB: s.storage.work}, PlanTerms: s.cfg.PlanTerms,
		People: s.signin,
	})
}

func (s *Server) memberLinks() memberLinks {
	return memberLinks{s.signin, s.urls.Console, s.cfg.SignIn.Mail, s.cfg.Logger}
}

// memberLinks lets people in who were invited or forgot a password (organization.Links).
type memberLinks struct {
	signIn  *signin.Service
	console string
	mail    Mailer
	log     *slog.Logger
}

// Invite implements organization.Links. The mail has no link of the offer: who comes by it proves the address. Nor has
// it a word of the organization, which may be anybody's.
func (l memberLinks) Invite(
	ctx context.Context, offer signin.Link,
) (address string, expires time.Time, mailed bool, err error) {
	token, err := l.signIn.NewLink(ctx, offer)
	if err != nil {
		return "", time.Time{}, false, err
	}
	address, expires = l.console+"/link/"+token, l.signIn.Now().Add(l.signIn.InviteLife)
	if !l.mail.Set() {
		return address, expires, false, nil
	}
	if err = l.signIn.LimitReceiver(ctx, offer.Email); err == nil {
		err = l.mail.Send(ctx, offer.Email, "An offer at Annals", fmt.Sprintf(
			"An organization offers you a membership at %[1]s.\n\nSign in there, and accept or decline it: %[1]s/offers\n"+
				"If you have no password there, or forgot it: %[1]s/sign-in/forgotten\n\n"+
				"If you expect none, ignore this mail: the offer ends by itself.", l.console))
	}
	if err != nil { // the link does without
		l.log.WarnContext(ctx, "the mail of an offer was not sent", "offer", offer.Offer, "err", err)
	}
	return address, expires, err == nil, nil
}

// Reset implements organization.Links.
func (l memberLinks) Reset(
	ctx context.Context, of, person uuid.UUID, email string,
) (address string, expires time.Time, err error) {
	if err := l.Revoke(ctx, of, person); err != nil {
		return "", time.Time{}, err
	}
	token, err := l.signIn.NewLink(ctx, signin.Link{Purpose: signin.Reset, Person: person, Email: email, Organization: of})
	return l.console + "/link/" + token, l.signIn.Now().Add(l.signIn.LinkLife), err
}

// Revoke implements organization.Links.
func (l memberLinks) Revoke(ctx context.Context, of, person uuid.UUID) error {
	return l.signIn.EndLinks(ctx, person, of)
}

// ResetSecondFactor implements organization.Links.
func (l memberLinks) ResetSecondFactor(ctx context.Context, person uuid.UUID) error {
	return l.signIn.ResetSecondFactor(ctx, person)
}

// CountSecondFactors implements organization.Links.
func (l memberLinks) CountSecondFactors(ctx context.Context, people []uuid.UUID) (n int, err error) {
	states, err := l.signIn.States(ctx, people...)
	for _, s := range states {
		if s.SecondFactor {
			n++
		}
	}
	return n, err
}

// End implements organization.Links.
func (l memberLinks) End(ctx context.Context, person uuid.UUID) error {
	return l.signIn.EndPerson(ctx, person)
}
