package account

import (
	"errors"
	"net/url"
	"strings"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/projections/access"
)

// entrance is what the pages for people who are not signed in show.
type entrance struct {
	Email    string `json:"email"`
	Next     string `json:"next"`
	Provider bool   `json:"provider"`
	SignUp   bool   `json:"signUp"`
	Mail     bool   `json:"mail"`
	// URL is the address of the console, and Origin that as browsers write it.
	URL    string `json:"-"`
	Origin string `json:"-"`
}

func (d Deps) entrance(r *web.Request) entrance {
	return entrance{
		r.FormValue("email"), nextOf(r), d.SignIn.HasProvider(), d.SignUp, d.Mail.Set(), d.URL, web.OriginOf(d.URL),
	}
}

func (d Deps) signInPage(r *web.Request) error {
	if r.SignedIn() {
		r.Redirect(nextOf(r))
		return nil
	}
	return r.Render("sign-in.html", d.entrance(r))
}

func (d Deps) signIn(r *web.Request) error {
	in, err := d.SignIn.SignIn(r.Context(), attemptOf(r))
	if err != nil {
		return r.Invalid(described(r, err), "sign-in.html", d.entrance(r))
	}
	return d.begun(r, in, nextOf(r))
}

func (d Deps) secondFactorPage(r *web.Request) error {
	return r.Render("second-factor.html", d.entrance(r))
}

func (d Deps) secondFactor(r *web.Request) error {
	in, err := d.SignIn.SecondFactor(r.Context(), tokenOf(r), r.Field("code"), clientOf(r))
	if err != nil {
		return r.Invalid(described(r, err), "second-factor.html", d.entrance(r))
	}
	return d.begun(r, in, nextOf(r))
}

func (d Deps) signOut(r *web.Request) error {
	if r.SignedIn() {
		if err := d.visited(r, &visit.SessionsEnded{Ended: visit.SignedOut}); err != nil {
			return err
		}
	}
	return d.leaveSession(r)
}

// leaveSession ends the session of the browser.
func (d Deps) leaveSession(r *web.Request) error {
	if err := d.SignIn.SignOut(r.Context(), tokenOf(r)); err != nil {
		return err
	}
	r.Cookies().Set(r.Writer(), web.SessionCookie, "", 0)
	r.Redirect("/sign-in")
	return nil
}

func (d Deps) chooseOrganization(r *web.Request) error {
	for _, m := range r.Person.Memberships {
		if m.Organization.String() == r.Field("organization") {
			if err := d.SignIn.ChooseOrganization(r.Context(), r.Session.ID, m.Organization); err != nil {
				return err
			}
			r.Redirect("/")
			return nil
		}
	}
	return fault.New(fault.NotFound, fault.CodeNotFound, "you are not a member of this organization")
}

// providerCookie holds the attempt at the provider, with where to go on to.
const providerCookie = "oidc"

func (d Deps) startProvider(r *web.Request) error {
	to, attempt, err := d.SignIn.Start(r.Context(), d.SignUp && r.Field("sign-up") != "")
	if err != nil {
		return d.providerFailed(r, err)
	}
	d.toProvider(r, to, attempt)
	return nil
}

// toProvider leads to the provider. The browser keeps the attempt.
func (d Deps) toProvider(r *web.Request, to, attempt string) {
	r.Cookies().Set(r.Writer(), providerCookie, attempt+"|"+url.QueryEscape(nextOf(r)), signin.AttemptLife)
	r.Redirect(to)
}

func (d Deps) finishProvider(r *web.Request) error {
	attempt, next := splitCookie(r.Cookies().Value(r.Request, providerCookie))
	query := r.URL.Query()
	in, signUp, err := d.SignIn.Finish(r.Context(), signin.Callback{
		State: query.Get("state"), Code: query.Get("code"), Issuer: query.Get("iss"), Cookie: attempt,
		Client: clientOf(r), Former: tokenOf(r),
	})
	if !errors.Is(err, signin.ErrAttempt) { // another site can send a browser here, and must not end its attempt
		r.Cookies().Set(r.Writer(), providerCookie, "", 0)
	}
	if err != nil && r.SignedIn() {
		return d.unconfirmed(r, err, next)
	}
	if err != nil {
		return d.providerFailed(r, err)
	}
	if signUp != "" {
		r.Redirect(web.Path("link", signUp))
		return nil
	}
	return d.begun(r, in, next)
}

// providerFailed shows the page to sign in again, with what went wrong. Why the provider is not to be trusted is in the
// log alone.
func (d Deps) providerFailed(r *web.Request, err error) error {
	shown := described(r, err)
	if shown != err { //nolint:errorlint // whether it was described
		d.Logger.WarnContext(r.Context(), "sign-in at the provider failed", "requestId", r.ID(), "err", err)
	}
	return r.Invalid(shown, "sign-in.html", d.entrance(r))
}

func splitCookie(value string) (attempt, next string) {
	attempt, page, _ := strings.Cut(value, "|")
	next, err := url.QueryUnescape(page)
	if err != nil {
		next = ""
	}
	return attempt, localPath(next)
}

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

// leave ends a membership of the person. Who is a member of nothing then is signed out at once.
func (d Deps) leave(r *web.Request) error {
	m, err := leaves(r)
	if err == nil {
		err = d.Commands.RemoveMember(r.Context(), r.Command(), m.Organization, r.Person.ID)
	}
	if err != nil {
		return d.change(r, func() (string, error) { return "", err })
	}
	left, err := d.SignIn.IsMember(r.Context(), r.Person.ID)
	if err != nil {
		return err
	}
	if left {
		return r.Done("/account", "left")
	}
	if err := d.SignIn.EndPerson(r.Context(), r.Person.ID); err != nil {
		return err
	}
	return d.signOut(r)
}

// leaves is the membership that a form ends.
func leaves(r *web.Request) (access.Membership, error) {
	for _, m := range r.Person.Memberships {
		if m.Organization.String() != r.Field("organization") {
			continue
		}
		if r.Field("sure") == "" {
			return m, fault.New(fault.Invalid, fault.CodeInvalidRequest, "tick the box to leave %s", m.Name)
		}
		return m, nil
	}
	return access.Membership{}, fault.New(fault.NotFound, fault.CodeNotFound, "you are not a member of this organization")
}
