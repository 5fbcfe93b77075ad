package account

import (
	"context"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/projections/access"
)

const offersPath = "/offers"

// offered is the page of the offers to the address of a person, who sees them after proving that address.
type offered struct {
	Email    string  `json:"email"`
	Verified bool    `json:"verified"`
	Offers   []offer `json:"offers"`
	Mail     bool    `json:"-"`
}

type offer struct {
	ID           uuid.UUID         `json:"id"`
	Organization string            `json:"organization"`
	Role         organization.Role `json:"role"`
	ExpiresAt    time.Time         `json:"expiresAt"`
}

// offersOf finds the offers that the person of a request may accept.
func (d Deps) offersOf(r *web.Request) (verified bool, list []access.Offer, err error) {
	states, err := d.SignIn.States(r.Context(), r.Person.ID)
	if err != nil || !d.SignIn.Verified(states[r.Person.ID], r.Person.Email) {
		return false, nil, err
	}
	list, err = d.OffersTo(r.Context(), r.Person.Email)
	return true, list, err
}

func (d Deps) offers(r *web.Request) (offered, error) {
	verified, list, err := d.offersOf(r)
	v := offered{Email: r.Person.Email, Verified: verified, Offers: make([]offer, len(list)), Mail: d.Mail.Set()}
	for i, o := range list {
		v.Offers[i] = offer{o.ID, o.Name, o.Role, o.ExpiresAt}
	}
	return v, err
}

// answerOffer accepts or declines an offer. To who may not accept it, it does not exist.
func (d Deps) answerOffer(r *web.Request) error {
	_, list, err := d.offersOf(r)
	if err != nil {
		return err
	}
	for _, o := range list {
		if o.ID.String() != r.PathValue("offer") {
			continue
		}
		switch r.Field("do") {
		case "accept":
			return d.acceptOffer(r, o)
		case "decline":
			err := d.Commands.EndOffer(r.Context(), r.Command(), o.Organization, o.ID, organization.Declined)
			if err != nil {
				return err
			}
			return r.Done(offersPath, "declined")
		default:
			return fault.New(fault.Invalid, fault.CodeInvalidRequest, "accept or decline an offer")
		}
	}
	return organization.NoOffer()
}

func (d Deps) acceptOffer(r *web.Request, o access.Offer) error {
	_, err := d.Commands.AcceptOffer(r.Context(), r.Command(), o.Organization, o.ID, r.Person.Email)
	if err == nil {
		err = d.SignIn.ChooseOrganization(r.Context(), r.Session.ID, o.Organization)
	}
	if err != nil {
		return err
	}
	r.Redirect("/")
	return nil
}

// offerOf finds the open offer of an invite, zero for none.
func (d Deps) offerOf(ctx context.Context, link signin.Link) (access.Offer, error) {
	list, err := d.OffersTo(ctx, link.Email)
	for _, o := range list {
		if o.ID == link.Offer {
			return o, err
		}
	}
	return access.Offer{}, err
}

// acceptByLink accepts the offer of an invite for who has no way in.
func (d Deps) acceptByLink(r *web.Request) (signin.SignedIn, error) {
	return d.SignIn.Accept(r.Context(), r.PathValue("token"), attemptOf(r),
		func(ctx context.Context, link signin.Link) (uuid.UUID, error) {
			call := r.Command()
			call.Principal.Kind = "invite"
			return d.Commands.AcceptOffer(ctx, call, link.Organization, link.Offer, link.Email)
		})
}

// Forgotten is the page by which the person proves the address.
func (v offered) Forgotten() string { return "/sign-in/forgotten?email=" + url.QueryEscape(v.Email) }
