package account

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/person"
)

// linked is what the page of a one-time link shows. To look at it does not spend the link.
type linked struct {
	Purpose      signin.Purpose `json:"purpose"`
	Email        string         `json:"email"`
	ExpiresAt    time.Time      `json:"expiresAt"`
	Organization string         `json:"organization"`
	Longest      int            `json:"longestPassword"`
	Shortest     int            `json:"shortestPassword"`
}

func (d Deps) findLink(r *web.Request) (linked, signin.Link, error) {
	link, found, err := d.SignIn.Link(r.Context(), r.PathValue("token"))
	if err == nil && !found {
		err = signin.ErrLink
	}
	return linked{
		link.Purpose, link.Email, link.ExpiresAt, r.PostFormValue("organization"), signin.MaxPassword, signin.MinPassword,
	}, link, described(r, err)
}

func (d Deps) linkPage(r *web.Request) error {
	data, _, err := d.findLink(r)
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
	if link.Purpose == signin.Verification {
		return d.confirmAddress(r, link)
	}
	var in signin.SignedIn
	if link.Purpose == signin.SignUp {
		in, err = d.SignIn.SignUp(r.Context(), r.PathValue("token"), attemptOf(r), d.creation(r))
	} else {
		in, err = d.SignIn.SetPassword(r.Context(), r.PathValue("token"), attemptOf(r))
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
		_, err := d.Commands.CreateOrganization(ctx, call, commands.NewOrganization{
			Name: r.Field("organization"), Plan: metering.PayAsYouGo, OwnerEmail: email,
		})
		if err != nil {
			return uuid.Nil, err
		}
		id, _, err := d.SignIn.People.FindPerson(ctx, email)
		return id, err
	}
}

// confirmAddress gives the person of a verification the address of it. The person must be signed in: who reads the mail
// of another must not take over the account by its address.
func (d Deps) confirmAddress(r *web.Request, link signin.Link) error {
	if r.Session.Person != link.Person {
		return fault.New(fault.Unauthenticated, fault.CodeUnauthorized,
			"sign in as the person who asked for this link, in this browser, then open it again")
	}
	if err := d.Commands.ChangeAddress(r.Context(), r.Command(), link.Person, link.Email); err != nil {
		return err
	}
	if _, err := d.SignIn.Verify(r.Context(), r.PathValue("token")); err != nil {
		return described(r, err)
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
			"Somebody wanted to sign up with this address. You have an account already: sign in at %s/sign-in\n\n"+
				"If you forgot your password, ask an Admin of your organization for a link.", d.URL))
	} else {
		err = d.mailLink(r, signin.Link{Purpose: signin.SignUp, Email: email})
	}
	if err != nil {
		return err
	}
	return r.Render("sent.html", email)
}

// mailLink mails a link to the address that it verifies.
func (d Deps) mailLink(r *web.Request, link signin.Link) error {
	token, err := d.SignIn.NewLink(r.Context(), link)
	if err != nil {
		return err
	}
	return d.Mail.Send(r.Context(), link.Email, "Confirm your address for Annals", fmt.Sprintf(
		"Open this link to confirm your address. It works once, within an hour:\n\n%s\n\n"+
			"If you did not ask for it, ignore this mail: nothing happens then.", d.URL+web.Path("link", token)))
}
