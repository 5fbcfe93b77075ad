package account

import (
	"errors"
	"net/url"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
)

// confirmation is what the page that asks for a fresh proof shows: the ways in which the person can give one.
type confirmation struct {
	Email        string `json:"email"`
	Next         string `json:"next"`
	Password     bool   `json:"password"`
	SecondFactor bool   `json:"secondFactor"`
	Provider     bool   `json:"provider"`
}

func (d Deps) confirmation(r *web.Request, next string) (confirmation, error) {
	states, err := d.SignIn.States(r.Context(), r.Person.ID)
	state := states[r.Person.ID]
	return confirmation{
		r.Person.Email, next, state.Password, state.SecondFactor, d.SignIn.HasProvider() && state.Accounts > 0,
	}, err
}

func (d Deps) confirmPage(r *web.Request) error {
	data, err := d.confirmation(r, nextOf(r))
	if err != nil {
		return err
	}
	return r.Render("confirm.html", data)
}

func (d Deps) confirm(r *web.Request) error {
	err := d.SignIn.Prove(r.Context(), r.Session, r.Membership.Organization, r.Raw("password"), r.Field("code"))
	if err != nil {
		return d.unconfirmed(r, err, nextOf(r))
	}
	r.Redirect(nextOf(r))
	return nil
}

// confirmAtProvider has the provider ask the person again.
func (d Deps) confirmAtProvider(r *web.Request) error {
	to, attempt, err := d.SignIn.StartProof(r.Context(), r.Session)
	if err != nil {
		return d.unconfirmed(r, err, nextOf(r))
	}
	d.toProvider(r, to, attempt)
	return nil
}

// unconfirmed shows the page again, with what went wrong.
func (d Deps) unconfirmed(r *web.Request, err error, next string) error {
	data, unread := d.confirmation(r, next)
	if unread != nil {
		return errors.Join(err, unread)
	}
	shown := described(r, err)
	if errors.Is(err, signin.ErrProvider) {
		d.Logger.WarnContext(r.Context(), "a proof at the provider failed", "requestId", r.ID(), "err", err)
	}
	return r.Invalid(shown, "confirm.html", data)
}

// toConfirm leads to the page that asks for a fresh proof, and from there to another one.
func toConfirm(r *web.Request, next string) error {
	r.Redirect("/account/confirm?next=" + url.QueryEscape(next))
	return nil
}
