package httpx

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
)

// onAPI applies a check to the calls of the API only.
func onAPI(check func(c echo.Context, r *request) error) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if r := stateOf(c); r.api {
				if err := check(c, r); err != nil {
					return err
				}
			}
			return next(c)
		}
	}
}

// atMost refuses calls of the API while n of them are being served. It never refuses the operation
// routes.
func atMost(n int64) echo.MiddlewareFunc {
	var serving atomic.Int64
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if !stateOf(c).api {
				return next(c)
			}
			defer serving.Add(-1)
			if serving.Add(1) > n {
				return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
					"too many requests are being served; send the request again")
			}
			return next(c)
		}
	}
}

// atMostOfOne refuses calls of an organization while each of its calls are being served, so that
// one organization cannot use up the n of atMost.
func atMostOfOne(n, each int64) echo.MiddlewareFunc {
	calls := allowance.New(allowance.Config{
		Total: n, Share: each, Refusal: "too many requests of the organization are being served; send the request again",
	})
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if !stateOf(c).api {
				return next(c)
			}
			call := calls.Open(stateOf(c).principal.OrganizationID)
			if err := call.Reserve(c.Request().Context(), 1); err != nil {
				return err
			}
			defer call.Release()
			return next(c)
		}
	}
}

// refuseBrowsers refuses every call of the API that names an origin, preflight or not, before it
// looks at a credential: the API is called from servers. No response of the API carries
// Access-Control-Allow-Origin.
func refuseBrowsers(c echo.Context, _ *request) error {
	if len(c.Request().Header.Values(echo.HeaderOrigin)) > 0 {
		return fault.New(fault.Forbidden, fault.CodeCORSRefused,
			"the API is called from a server: requests from a browser origin are refused")
	}
	return nil
}

// authenticate finds the principal of every call of the API, for unknown paths as well.
func (e edge) authenticate(a *auth.Authenticator) echo.MiddlewareFunc {
	return onAPI(func(c echo.Context, r *request) (err error) {
		if r.route.Webhook {
			if r.principal, err = authenticateEvent(c, a); err != nil {
				return err
			}
			return e.logCall(c, r)
		}
		header := c.Request().Header
		if r.principal, err = a.Authenticate(c.Request().Context(), r.route, header); err != nil {
			r.invalidToken = auth.CarriesAgentToken(header)
		}
		if full := e.logCall(c, r); full != nil {
			return full
		}
		return err
	})
}

// limitRate refuses calls beyond the rate limit of the caller's organization, without a body. Exempt
// routes neither count nor are refused.
func limitRate(ask func(auth.Principal) (retry time.Duration, ok bool)) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := stateOf(c)
			if ask == nil || !r.api || r.route.Unlimited {
				return next(c)
			}
			if retry, ok := ask(r.principal); !ok {
				return r.refuseRate(c, retry)
			}
			return next(c)
		}
	}
}

// selectProject finds the project that a call names in addition to its key.
func (e edge) selectProject(a *auth.Authenticator) echo.MiddlewareFunc {
	return onAPI(func(c echo.Context, r *request) error {
		principal, err := a.SelectProject(c.Request().Context(), r.route, c.Request().URL.Query(), r.principal)
		if err != nil {
			return err
		}
		r.principal = principal
		return e.logCall(c, r)
	})
}

// template returns the template of the request's route, "" if no route matches. Unlike the router,
// the API accepts no slash in the last parameter.
func template(c echo.Context) string {
	if strings.Count(c.Path(), "/") != strings.Count(c.Request().URL.EscapedPath(), "/") {
		return ""
	}
	return c.Path()
}

// exactRoute refuses what only the router accepts: see template, and OPTIONS.
func exactRoute(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if stateOf(c).route.Path == "" {
			return echo.ErrNotFound
		}
		if c.Request().Method == http.MethodOptions && c.Get(echo.ContextKeyHeaderAllow) != nil {
			return echo.ErrMethodNotAllowed
		}
		return next(c)
	}
}

// registerResource serves the protected-resource document, which any origin may read.
func registerResource(e *echo.Echo, doc auth.Resource) {
	open := func(c echo.Context) {
		header := c.Response().Header()
		header.Set(echo.HeaderAccessControlAllowOrigin, "*")
		header.Set(echo.HeaderAccessControlAllowMethods, http.MethodGet)
		header.Set(echo.HeaderCacheControl, "public, max-age=300")
	}
	for _, path := range []string{auth.ResourcePath, strings.TrimSuffix(auth.ResourcePath, auth.Prefix)} {
		e.GET(path, func(c echo.Context) error {
			open(c)
			return c.JSON(http.StatusOK, doc)
		})
		e.OPTIONS(path, func(c echo.Context) error {
			open(c)
			return c.NoContent(http.StatusNoContent)
		})
	}
}

// admit refuses the calls of the API while the service is not ready for them.
func admit(ask func() error) echo.MiddlewareFunc {
	return onAPI(func(echo.Context, *request) error {
		if ask == nil {
			return nil
		}
		return ask()
	})
}

// admitWrites refuses the calls that write under backpressure.
func admitWrites(ask func(by auth.Principal, deletion bool) error) echo.MiddlewareFunc {
	return onAPI(func(_ echo.Context, r *request) error {
		if ask == nil || !r.route.Writes() {
			return nil
		}
		return ask(r.principal, r.route.Deletes())
	})
}
