// Package account is the pages by which people come in, and those of their own account.
package account

import (
	"context"
	"embed"
	"errors"
	"log/slog"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
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
		CreateOrganization(context.Context, commands.Call, commands.NewOrganization) (tenants.Organization, error)
		RemoveMember(ctx context.Context, call commands.Call, organization, member uuid.UUID) error
		ChangeAddress(ctx context.Context, call commands.Call, person uuid.UUID, email string) error
		RegisterPerson(ctx context.Context, call commands.Call, email string) (uuid.UUID, error)
		AcceptOffer(
			ctx context.Context, call commands.Call, organization, offer uuid.UUID, email string,
		) (member uuid.UUID, err error)
		EndOffer(
			ctx context.Context, call commands.Call, organization, offer uuid.UUID, end organization.OfferEnd,
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
