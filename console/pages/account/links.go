package account

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/projections/access"
)

// linked is what the page of a one-time link shows. To look at it does not spend the link.
type linked struct {
	Purpose      signin.Purpose `json:"purpose"`
	Email        string         `json:"email"`
	ExpiresAt    time.Time      `json:"expiresAt"`
	Organization string         `json:"organization"`
	// Inviter is the organization of an invite whose offer is open. An acceptance that failed halfway is repeated without.
	Inviter string `json:"inviter,omitempty"`
	// SetsPassword is whether the use of the link sets a password.
	SetsPassword bool `json:"setsPassword"`
	Longest      int  `json:"longestPassword"`
	Shortest     int  `json:"shortestPassword"`
}

func (d Deps) findLink(r *web.Request) (linked, signin.Link, error) {
	link, found, err := d.SignIn.Link(r.Context(), r.PathValue("token"))
	if err == nil && !found {
		err = signin.ErrLink
	}
	sets := link.Purpose != signin.Verification
	if err == nil && !sets {
		var states map[uuid.UUID]signin.State
		states, err = d.SignIn.States(r.Context(), link.Person)
		sets = !states[link.Person].Proved()
	}
	inviter := ""
	if err == nil && link.Purpose == signin.Invite {
		var o access.Offer
		o, err = d.offerOf(r.Context(), link)
		inviter = o.Name
	}
	return linked{
		Purpose: link.Purpose, Email: link.Email, ExpiresAt: link.ExpiresAt,
		Organization: r.PostFormValue("organization"), Inviter: inviter, SetsPassword: sets,
		Longest: signin.MaxPassword, Shortest: signin.MinPassword,
	}, link, described(r, err)
}

func (d Deps) linkPage(r *web.Request) error {
	data, _, err := d.findLink(r)
	if err == nil && data.Purpose == signin.Invite && data.Inviter == "" {
		err = described(r, signin.ErrLink)
	}
	if err != nil {
		return err
	}
	return r.Render("link.html", data)
}

func (d Deps) useLink(r *web.Request) error {
	data, link, err := d.findLink(r)
	if err != nil {
		return err
	}
	if link.Purpose == signin.Verification && r.Session.Person != link.Person {
		// Who reads the mail of another must not take over the account by its address.
		return fault.New(fault.Unauthenticated, fault.CodeUnauthorized,
			"sign in as the person who asked for this link, in this browser, then open it again")
	}
	var in signin.SignedIn
	token, attempt := r.PathValue("token"), attemptOf(r)
	switch {
	case link.Purpose == signin.Verification && !data.SetsPassword:
		return d.confirmAddress(r, link)
	case link.Purpose == signin.Verification:
		in, err = d.SignIn.VerifyFirst(r.Context(), token, attempt, func(ctx context.Context) error {
			return d.Commands.ChangeAddress(ctx, r.Command(), link.Person, link.Email)
		})
	case link.Purpose == signin.SignUp:
		in, err = d.SignIn.SignUp(r.Context(), token, attempt, d.creation(r))
	case link.Purpose == signin.Join:
		in, err = d.SignIn.SignUp(r.Context(), token, attempt, d.registration(r))
	case link.Purpose == signin.Invite:
		in, err = d.acceptByLink(r)
	default:
		in, err = d.SignIn.SetPassword(r.Context(), token, attempt)
	}
	if err != nil {
		return r.Invalid(described(r, err), "link.html", data)
	}
	return d.begun(r, in, "/")
}

// creation creates the organization of a sign-up, with its owner.
func (d Deps) creation(r *web.Request) func(context.Context, string) (uuid.UUID, error) {
	return func(ctx context.Context, email string) (uuid.UUID, error) {
		call := r.Command()
		call.Principal.Kind = "sign-up"
		_, err := d.Commands.CreateOrganization(ctx, call, tenancy.NewOrganization{
			Name: r.Field("organization"), Plan: metering.PayAsYouGo, OwnerEmail: email,
		})
		if err != nil {
			return uuid.Nil, err
		}
		id, _, err := d.SignIn.People.FindPerson(ctx, email)
		return id, err
	}
}

// registration registers who has nothing but an offer, to accept it.
func (d Deps) registration(r *web.Request) func(context.Context, string) (uuid.UUID, error) {
	return func(ctx context.Context, email string) (uuid.UUID, error) {
		call := r.Command()
		call.Principal.Kind = "sign-in"
		return d.Commands.RegisterPerson(ctx, call, email)
	}
}

// confirmAddress gives the person of a verification the address of it. The person proved one before.
func (d Deps) confirmAddress(r *web.Request, link signin.Link) error {
	if err := d.Commands.ChangeAddress(r.Context(), r.Command(), link.Person, link.Email); err != nil {
		return err
	}
	if _, err := d.SignIn.Verify(r.Context(), r.PathValue("token")); err != nil {
		return described(r, err)
	}
	if err := d.visited(r, &visit.LinkUsed{Purpose: string(link.Purpose)}); err != nil {
		return err
	}
	return r.Done("/account", "saved")
}

func (d Deps) signUpPage(r *web.Request) error { return r.Render("sign-up.html", d.entrance(r)) }

// signUp mails a link. The page is the same whether or not somebody has the address.
func (d Deps) signUp(r *web.Request) error {
	email := r.Field("email")
	if !d.Mail.Set() || !person.ValidEmail(email) {
		return r.Invalid(fault.New(fault.Invalid, fault.CodeInvalidRequest, "%q is no e-mail address", email),
			"sign-up.html", d.entrance(r))
	}
	if err := d.SignIn.LimitMail(r.Context(), clientOf(r), email); err != nil {
		return r.Invalid(described(r, err), "sign-up.html", d.entrance(r))
	}
	known, err := d.SignIn.Known(r.Context(), email)
	if err != nil {
		return err
	}
	if known {
		err = d.Mail.Send(r.Context(), email, "Your account at Annals", fmt.Sprintf(
			"Somebody wanted to sign up with this address. You have an account already: sign in at %[1]s/sign-in\n\n"+
				"If you forgot your password, set another one at %[1]s/sign-in/forgotten", d.URL))
	} else {
		err = d.mailLink(r, signin.Link{Purpose: signin.SignUp, Email: email})
	}
	if err != nil {
		return err
	}
	return toSent(r, "/sign-up", email)
}

// toSent leads to the page after a mail. Its address has the one of the mail, which the person typed.
func toSent(r *web.Request, form, email string) error {
	r.Redirect(form + "/sent?email=" + url.QueryEscape(email))
	return nil
}

// sentPage is the page after a mail that a form asked for.
func sentPage(form string) func(*web.Request) error {
	return func(r *web.Request) error { return r.Render("sent.html", sent{r.URL.Query().Get("email"), form}) }
}

// sent is what the page shows after a mail. Again is the page on which to ask for another one.
type sent struct {
	Email string `json:"email"`
	Again string `json:"-"`
}

func (d Deps) forgottenPage(r *web.Request) error { return r.Render("forgotten.html", d.entrance(r)) }

// forgotten mails a link to set another password. The page is the same whether or not somebody has the address, and a
// mail is sent in either case, so that the time is the same too.
func (d Deps) forgotten(r *web.Request) error {
	email := r.Field("email")
	if !person.ValidEmail(email) {
		return r.Invalid(fault.New(fault.Invalid, fault.CodeInvalidRequest, "%q is no e-mail address", email),
			"forgotten.html", d.entrance(r))
	}
	if err := d.SignIn.LimitMail(r.Context(), clientOf(r), email); err != nil {
		return r.Invalid(described(r, err), "forgotten.html", d.entrance(r))
	}
	link, err := d.recovery(r.Context(), email)
	if err != nil {
		return err
	}
	if link.Purpose != "" {
		err = d.mailLink(r, link)
	} else {
		err = d.Mail.Send(r.Context(), email, "Your password at Annals", fmt.Sprintf(
			"Somebody wanted to set a password for this address at %s. Nobody with this address is a member of an "+
				"organization there.\n\nIf you did not ask for it, ignore this mail.", d.URL))
	}
	if err != nil {
		return err
	}
	return toSent(r, "/sign-in/forgotten", email)
}

// recovery is the link by which the owner of an address sets a password, zero for an address without a member and
// without an offer.
func (d Deps) recovery(ctx context.Context, email string) (signin.Link, error) {
	id, member, err := d.SignIn.Member(ctx, email)
	if err != nil || member {
		return signin.Link{Purpose: signin.Recovery, Person: id, Email: email}, err
	}
	offers, err := d.OffersTo(ctx, email)
	if err != nil || len(offers) == 0 {
		return signin.Link{}, err
	}
	return signin.Link{Purpose: signin.Join, Email: email}, nil
}

// mailLink mails a link to the address that it proves.
func (d Deps) mailLink(r *web.Request, link signin.Link) error {
	token, err := d.SignIn.NewLink(r.Context(), link)
	if err != nil {
		return err
	}
	if err := d.linkMade(r, link); err != nil {
		return err
	}
	subject, purpose := "Confirm your address for Annals", "confirm your address"
	if link.Purpose == signin.Recovery || link.Purpose == signin.Join {
		subject, purpose = "Your password at Annals", "set another password"
	}
	return d.Mail.Send(r.Context(), link.Email, subject, fmt.Sprintf(
		"Open this link to %s. It works once, within an hour:\n\n%s\n\n"+
			"If you did not ask for it, ignore this mail: nothing happens then.", purpose, d.URL+web.Path("link", token)))
}

// linkMade records a link that is mailed to a person: the person asked for it, or for a forgotten password anybody.
func (d Deps) linkMade(r *web.Request, link signin.Link) error {
	made := &visit.LinkMade{Purpose: string(link.Purpose)}
	switch link.Person {
	case uuid.Nil:
		return nil
	case r.Person.ID:
		return d.visited(r, made)
	default:
		return d.SignIn.RecordAsked(r.Context(), clientOf(r), link.Person, made)
	}
}

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
