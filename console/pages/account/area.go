// Package account is the pages by which people come in, and those of their own account.
package account

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"rsc.io/qr"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read and change.
type Deps struct {
	SignIn   *signin.Service
	Commands interface {
		CreateOrganization(context.Context, engine.Call, tenancy.NewOrganization) (tenants.Organization, error)
		RemoveMember(ctx context.Context, call engine.Call, organization, member uuid.UUID) error
		ChangeAddress(ctx context.Context, call engine.Call, person uuid.UUID, email string) error
		RegisterPerson(ctx context.Context, call engine.Call, email string) (uuid.UUID, error)
		AcceptOffer(
			ctx context.Context, call engine.Call, organization, offer uuid.UUID, email string,
		) (member uuid.UUID, err error)
		EndOffer(
			ctx context.Context, call engine.Call, organization, offer uuid.UUID, end organization.OfferEnd,
		) error
	}
	// OffersTo lists the open offers to an address.
	OffersTo func(ctx context.Context, email string) ([]access.Offer, error)
	Mail     interface {
		Set() bool
		Send(ctx context.Context, to, subject, text string) error
	}
	// URL is the public address of the console.
	URL string
	// SignUp lets strangers create an organization.
	SignUp bool
	Logger *slog.Logger
}

// Area returns the pages.
func Area(d Deps) web.Area {
	offers := web.NewPage("offers.html", d.offers)
	routes := []web.Route{
		{Pattern: "GET /sign-in", Leaves: true, Serve: d.signInPage},
		{Pattern: "POST /sign-in", Leaves: true, Serve: d.signIn},
		{Pattern: "GET /sign-in/second-factor", Serve: d.secondFactorPage},
		{Pattern: "POST /sign-in/second-factor", Serve: d.secondFactor},
		{Pattern: "POST /sign-out", Serve: d.signOut},
		{Pattern: "POST /organization", Needs: web.SignedIn, Unguarded: true, Serve: d.chooseOrganization},
		{Pattern: "GET /invite/{token}", Serve: d.linkPage},
		{Pattern: "GET /link/{token}", Serve: d.linkPage},
		{Pattern: "POST /link/{token}", Serve: d.useLink},
		{Pattern: "GET /account", Needs: web.SignedIn, Serve: d.account},
		{Pattern: "POST /account/password", Needs: web.SignedIn, Serve: d.changePassword},
		{Pattern: "POST /account/zone", Needs: web.SignedIn, Serve: d.setZone},
		{Pattern: "POST /account/address", Needs: web.SignedIn, Serve: d.mailAddress},
		{Pattern: "POST /account/sessions", Needs: web.SignedIn, Serve: d.endSessions},
		{Pattern: "GET " + offersPath, Needs: web.SignedIn, Unguarded: true, Outside: true, Serve: offers.Show},
		{
			Pattern: "POST " + offersPath + "/{offer}", Needs: web.SignedIn, Unguarded: true, Outside: true,
			Serve: d.answerOffer,
		},
		{Pattern: "POST /account/leave", Needs: web.SignedIn, Serve: d.leave},
		{Pattern: "GET /account/confirm", Needs: web.SignedIn, Unguarded: true, Leaves: true, Serve: d.confirmPage},
		{Pattern: "POST /account/confirm", Needs: web.SignedIn, Unguarded: true, Leaves: true, Serve: d.confirm},
		{Pattern: "GET /account/second-factor", Needs: web.SignedIn, Unguarded: true, Serve: d.enrolPage},
		{Pattern: "POST /account/second-factor", Needs: web.SignedIn, Unguarded: true, Serve: d.enrol},
		{Pattern: "POST /account/second-factor/remove", Needs: web.SignedIn, Serve: d.removeSecondFactor},
		{Pattern: "GET " + codesPath, Needs: web.SignedIn, Serve: d.codesPage},
		{Pattern: "POST " + codesPath, Needs: web.SignedIn, Serve: d.recoveryCodes},
	}
	if d.SignIn.HasProvider() {
		routes = append(routes, web.Route{Pattern: "POST /sign-in/oidc", Leaves: true, Serve: d.startProvider},
			web.Route{Pattern: "GET /sign-in/oidc/callback", Leaves: true, Serve: d.finishProvider},
			web.Route{
				Pattern: "POST /account/confirm/oidc", Needs: web.SignedIn, Unguarded: true, Leaves: true,
				Serve: d.confirmAtProvider,
			})
	}
	if d.Mail.Set() {
		routes = append(routes, web.Route{Pattern: "GET /sign-in/forgotten", Leaves: true, Serve: d.forgottenPage},
			web.Route{Pattern: "POST /sign-in/forgotten", Leaves: true, Serve: d.forgotten},
			web.Route{Pattern: "GET /sign-in/forgotten/sent", Serve: sentPage("/sign-in/forgotten")})
	}
	if d.SignUp {
		routes = append(routes, web.Route{Pattern: "GET /sign-up", Leaves: true, Serve: d.signUpPage},
			web.Route{Pattern: "POST /sign-up", Leaves: true, Serve: d.signUp},
			web.Route{Pattern: "GET /sign-up/sent", Serve: sentPage("/sign-up")})
	}
	return web.Area{Templates: templates, Routes: routes}
}

// clientOf is who sent a request.
func clientOf(r *web.Request) signin.Client {
	return signin.Client{
		Browser: r.UserAgent(), Address: r.Caller().String(), Known: r.Cookies().Value(r.Request, web.KnownCookie),
		Request: r.ID(),
	}
}

// visited records what the person of a request did.
func (d Deps) visited(r *web.Request, e visit.OfPerson) error {
	return d.SignIn.Record(r.Context(), clientOf(r), r.Person.ID, uuid.Nil, e)
}

// attemptOf is the password of a form, with who sent it and the session that the browser has.
func attemptOf(r *web.Request) signin.Attempt {
	return signin.Attempt{
		Email: r.Field("email"), Password: r.Raw("password"), Client: clientOf(r), Former: tokenOf(r),
	}
}

func tokenOf(r *web.Request) string { return r.Cookies().Value(r.Request, web.SessionCookie) }

// begun gives the browser a session that began, if one did, and goes on to the second factor or to where the person
// wanted to go.
func (d Deps) begun(r *web.Request, in signin.SignedIn, next string) error {
	if in.Proved {
		r.Redirect(next)
		return nil
	}
	d.setCookies(r, in)
	if in.Pending {
		r.Redirect("/sign-in/second-factor?next=" + url.QueryEscape(next))
		return nil
	}
	r.Redirect(next)
	return nil
}

// setCookies gives the browser a session that began, and makes it known.
func (d Deps) setCookies(r *web.Request, in signin.SignedIn) {
	r.Cookies().Set(r.Writer(), web.SessionCookie, in.Token, d.SignIn.Longest)
	if in.Known != "" {
		r.Cookies().Set(r.Writer(), web.KnownCookie, in.Known, signin.KnownLife)
	}
}

// nextOf is the page of this console that a request wants to go on to. A link must not send people elsewhere.
func nextOf(r *web.Request) string { return localPath(r.FormValue("next")) }

// maxNext bounds the address to go on to: a cookie holds it.
const maxNext = 2000

func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") ||
		strings.Contains(next, `\`) || len(next) > maxNext {
		return "/"
	}
	return next
}

// described makes the faults that pages show of the errors of a sign-in.
func described(r *web.Request, err error) error {
	if late, is := errors.AsType[*signin.ThrottledError](err); is {
		r.Writer().Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(late.Retry.Seconds()))))
		return fault.New(fault.LimitReached, "too-many-attempts", "too many attempts: try again in %s", waiting(late.Retry))
	}
	for _, known := range []struct {
		err  error
		kind fault.Kind
	}{
		{signin.ErrRefused, fault.Unauthenticated},
		{signin.ErrCode, fault.Invalid},
		{signin.ErrPassword, fault.Invalid},
		{signin.ErrGuessable, fault.Invalid},
		{signin.ErrEnrolled, fault.Conflict},
		{signin.ErrLink, fault.NotFound},
		{signin.ErrAttempt, fault.Invalid},
		{signin.ErrUnverified, fault.Forbidden},
		{signin.ErrUninvited, fault.Forbidden},
		{signin.ErrProvider, fault.Forbidden},
		{signin.ErrLinked, fault.Forbidden},
		{signin.ErrKnown, fault.Conflict},
		{signin.ErrOtherAccount, fault.Forbidden},
		{signin.ErrUnneeded, fault.Conflict},
		{signin.ErrElsewhere, fault.Conflict},
		{signin.ErrUnproved, fault.Conflict},
	} {
		if errors.Is(err, known.err) {
			return fault.New(known.kind, fault.CodeUnauthorized, "%s", known.err)
		}
	}
	return err
}

// waiting is a time as people say it, rounded up.
func waiting(d time.Duration) string {
	if d <= time.Minute {
		return "a minute"
	}
	return strconv.Itoa(int(math.Ceil(d.Minutes()))) + " minutes"
}

// own is what the page of one's account shows.
type own struct {
	Email    string               `json:"email"`
	Verified bool                 `json:"verified"`
	State    signin.State         `json:"state"`
	Sessions []signin.OpenSession `json:"sessions"`
	Current  uuid.UUID            `json:"session"`
	Mail     bool                 `json:"mail"`
	Shortest int                  `json:"shortestPassword"`
	Longest  int                  `json:"longestPassword"`
	// Fresh means that the person proved to be that person a short while ago.
	Fresh bool `json:"fresh"`
}

func (d Deps) own(r *web.Request) (o own, err error) {
	states, err := d.SignIn.States(r.Context(), r.Person.ID)
	if err != nil {
		return o, err
	}
	state := states[r.Person.ID]
	sessions, err := d.SignIn.Sessions(r.Context(), r.Person.ID)
	return own{
		r.Person.Email, d.SignIn.Verified(state, r.Person.Email), state, sessions, r.Session.ID, d.Mail.Set(),
		signin.MinPassword, signin.MaxPassword, d.SignIn.Fresh(r.Session),
	}, err
}

func (d Deps) account(r *web.Request) error {
	data, err := d.own(r)
	if err != nil {
		return err
	}
	return r.Render("account.html", data)
}

// change does what a form of the account asks for, and shows the page again if its input is wrong. What lacks a fresh
// proof leads to the page that asks for one.
func (d Deps) change(r *web.Request, do func() (done string, err error)) error {
	done, err := do()
	if err == nil {
		return r.Done("/account", done)
	}
	if errors.Is(err, signin.ErrProof) {
		return toConfirm(r, "/account")
	}
	data, unread := d.own(r)
	if unread != nil {
		return errors.Join(err, unread)
	}
	return r.Invalid(described(r, err), "account.html", data)
}

func (d Deps) changePassword(r *web.Request) error {
	return d.change(r, func() (string, error) {
		err := d.SignIn.ChangePassword(r.Context(), r.Session, r.Membership.Organization, r.Raw("current"), r.Raw("password"))
		if err == nil {
			err = d.visited(r, &visit.PasswordChanged{})
		}
		return "saved", err
	})
}

func (d Deps) setZone(r *web.Request) error {
	return d.change(r, func() (string, error) {
		known, err := d.SignIn.SetZone(r.Context(), r.Person.ID, r.Field("zone"))
		if err == nil && !known {
			err = fault.New(fault.Invalid, fault.CodeInvalidRequest, "there is no time zone %q: write one as Europe/Vienna",
				r.Field("zone"))
		}
		return "saved", err
	})
}

// mailAddress mails a link that verifies the address of the person, or changes it to another one.
func (d Deps) mailAddress(r *web.Request) error {
	return d.change(r, func() (string, error) {
		if !d.SignIn.Fresh(r.Session) {
			return "", signin.ErrProof
		}
		email := r.Field("email")
		if !d.Mail.Set() || !person.ValidEmail(email) {
			return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "%q is no e-mail address", email)
		}
		if err := d.SignIn.LimitMail(r.Context(), clientOf(r), email); err != nil {
			return "", err
		}
		return "sent", d.mailLink(r, signin.Link{Purpose: signin.Verification, Person: r.Person.ID, Email: email})
	})
}

// endSessions ends one session, or all; with them the one of this browser and, if the form asks for it, what programs
// may do.
func (d Deps) endSessions(r *web.Request) error {
	if r.PostFormValue("session") != "" {
		return d.change(r, func() (string, error) {
			id, err := uuid.Parse(r.Field("session"))
			if err != nil {
				return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "there is no such session")
			}
			if err = d.SignIn.EndSession(r.Context(), r.Person.ID, id); err == nil {
				err = d.visited(r, &visit.SessionsEnded{Ended: visit.OneEnded})
			}
			return "ended", err
		})
	}
	if err := d.SignIn.SignOutEverywhere(r.Context(), r.Person.ID, r.Field("programs") != ""); err != nil {
		return err
	}
	if err := d.visited(r, &visit.SessionsEnded{Ended: visit.Everywhere}); err != nil {
		return err
	}
	return d.leaveSession(r)
}

const (
	enrolPath = "/account/second-factor"
	// enrolCookie has the key of a second factor that is being set up, sealed, for a while.
	enrolCookie = "enrol"
	enrolLife   = 15 * time.Minute
)

// enrolment is a second factor that is being set up.
type enrolment struct {
	signin.Enrolment

	Picture template.HTML `json:"-"`
	// Required means that the organization of the person asks for one.
	Required bool
}

func (d Deps) enrolment(r *web.Request, sealed string) (enrolment, error) {
	made, err := d.SignIn.Enrol(r.Person.ID, r.Person.Email, sealed)
	if err != nil {
		return enrolment{}, err
	}
	picture, err := picture(made.URI)
	return enrolment{made, picture, r.Membership.SecondFactor}, err
}

func (d Deps) enrolPage(r *web.Request) error {
	if !d.SignIn.Fresh(r.Session) {
		return toConfirm(r, enrolPath)
	}
	// Another look shows the same key: it may have been scanned.
	data, err := d.enrolment(r, r.Cookies().Value(r.Request, enrolCookie))
	if err != nil {
		data, err = d.enrolment(r, "")
	}
	if err != nil {
		return err
	}
	r.Cookies().Set(r.Writer(), enrolCookie, data.Sealed, enrolLife)
	return r.Render("enrol.html", data)
}

func (d Deps) enrol(r *web.Request) error {
	sealed := r.PostFormValue("sealed")
	next, codes, err := d.SignIn.Confirm(r.Context(), r.Session, attemptOf(r), sealed, r.Field("code"))
	if errors.Is(err, signin.ErrProof) {
		return toConfirm(r, enrolPath)
	}
	if err != nil {
		data, unsealed := d.enrolment(r, sealed)
		if unsealed != nil {
			return described(r, err)
		}
		return r.Invalid(described(r, err), "enrol.html", data)
	}
	d.setCookies(r, next)
	r.Cookies().Set(r.Writer(), enrolCookie, "", 0)
	if err := d.visited(r, &visit.SecondFactorChanged{Change: visit.FactorSet}); err != nil {
		return err
	}
	began, _, err := d.SignIn.Session(r.Context(), next.Token)
	if err != nil {
		return err
	}
	return web.ShowOnceTo(r, began.ID, codesPath, codes)
}

const codesPath = "/account/recovery-codes"

// codesPage shows new recovery codes once.
func (d Deps) codesPage(r *web.Request) error {
	codes, err := web.Once[[]string](r)
	if err != nil {
		return err
	}
	return r.Render("codes.html", codes)
}

func (d Deps) recoveryCodes(r *web.Request) error {
	codes, err := d.SignIn.NewRecoveryCodes(r.Context(), r.Person.ID, r.Field("code"))
	if err != nil {
		return d.change(r, func() (string, error) { return "", err })
	}
	if err := d.visited(r, &visit.SecondFactorChanged{Change: visit.CodesMade}); err != nil {
		return err
	}
	return web.ShowOnce(r, codesPath, codes)
}

func (d Deps) removeSecondFactor(r *web.Request) error {
	return d.change(r, func() (string, error) {
		err := d.SignIn.RemoveSecondFactor(r.Context(), r.Person.ID, r.Field("code"))
		if err == nil {
			err = d.visited(r, &visit.SecondFactorChanged{Change: visit.FactorRemoved})
		}
		return "deleted", err
	})
}

// picture is a text as a QR code, dark on light in each theme, since apps read no other.
func picture(text string) (template.HTML, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return "", fmt.Errorf("draw a QR code: %w", err)
	}
	const quiet = 4
	size := code.Size + 2*quiet
	var dark strings.Builder
	for y := range code.Size {
		for x := range code.Size {
			if code.Black(x, y) {
				fmt.Fprintf(&dark, "M%d %dh1v1h-1z", x+quiet, y+quiet)
			}
		}
	}
	return template.HTML(fmt.Sprintf(`<svg width="240" height="240" viewBox="0 0 %d %d" role="img" `+ //nolint:gosec // numbers
		`aria-label="QR code of the key"><path fill="#fff" d="M0 0h%dv%dH0z"/><path fill="#000" d="%s"/></svg>`,
		size, size, size, size, dark.String())), nil
}
