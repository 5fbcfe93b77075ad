package server

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/pages/organization"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/erasures"
)

// organizationPages are the pages of an organization.
func (s *Server) organizationPages() web.Area {
	people := peopleOf(s)
	if s.background != nil {
		people = s.background.finisher.People // knows why a step failed
	}
	return organization.Area(organization.Deps{
		Access: s.read.access, Commands: s.write.service, Links: memberLinks{s.signin, s.urls.Console},
		History:  s.history(),
		Erasures: people, Names: erasures.Names{DB: s.storage.work}, PlanTerms: s.cfg.PlanTerms,
	})
}

// memberLinks lets people in who were invited or forgot a password (organization.Links).
type memberLinks struct {
	signIn  *signin.Service
	console string
}

// Invite implements organization.Links. Nobody is let in by it who has another way in: an Admin who invites
// an address that is known elsewhere would take the account over.
func (l memberLinks) Invite(
	ctx context.Context, of, person uuid.UUID, email string,
) (address string, expires time.Time, err error) {
	states, err := l.signIn.States(ctx, person)
	if state := states[person]; err != nil || state.Password || state.Accounts > 0 {
		return "", time.Time{}, err
	}
	link := signin.Link{Purpose: signin.Invite, Person: person, Email: email, Organization: of}
	return l.link(ctx, link, l.signIn.InviteLife)
}

// Reset implements organization.Links.
func (l memberLinks) Reset(
	ctx context.Context, of, person uuid.UUID, email string,
) (address string, expires time.Time, err error) {
	link := signin.Link{Purpose: signin.Reset, Person: person, Email: email, Organization: of}
	return l.link(ctx, link, l.signIn.LinkLife)
}

// Revoke implements organization.Links.
func (l memberLinks) Revoke(ctx context.Context, of, person uuid.UUID) error {
	return l.signIn.EndLinks(ctx, person, of)
}

// ResetSecondFactor implements organization.Links.
func (l memberLinks) ResetSecondFactor(ctx context.Context, person uuid.UUID) error {
	return l.signIn.ResetSecondFactor(ctx, person)
}

// End implements organization.Links.
func (l memberLinks) End(ctx context.Context, person uuid.UUID) error {
	return l.signIn.EndPerson(ctx, person)
}

// link makes a link in the place of those that the organization made before.
func (l memberLinks) link(
	ctx context.Context, link signin.Link, life time.Duration,
) (address string, expires time.Time, err error) {
	if err := l.Revoke(ctx, link.Organization, link.Person); err != nil {
		return "", time.Time{}, err
	}
	token, err := l.signIn.NewLink(ctx, link)
	return l.console + "/link/" + token, l.signIn.Now().Add(life), err
}
