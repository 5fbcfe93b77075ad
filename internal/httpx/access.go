package httpx

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
)

// atMost refuses calls of the API while n of them are being served; what an operator reads always gets through.
func atMost(n int64) echo.MiddlewareFunc {
	var serving atomic.Int64
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if !isAPI(c) {
				return next(c)
			}
			defer serving.Add(-1)
			if serving.Add(1) > n {
				return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "too many requests are being served; send the request again")
			}
			return next(c)
		}
	}
}

// atMostOfOne refuses calls of an organization while each of them are being served, so that the others find room under n.
func atMostOfOne(n, each int64) echo.MiddlewareFunc {
	calls := allowance.New(allowance.Config{
		Total: n, Share: each, Refusal: "too many requests of the organization are being served; send the request again",
	})
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if !isAPI(c) {
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

// refuseBrowsers refuses every call of the API that names an origin, preflight or not, before it looks at a credential:
// the API is called from servers. No response of the API carries Access-Control-Allow-Origin.
func refuseBrowsers(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if isAPI(c) && len(c.Request().Header.Values(echo.HeaderOrigin)) > 0 {
			return fault.New(fault.Forbidden, fault.CodeCORSRefused, "the API is called from a server: requests from a browser origin are refused")
		}
		return next(c)
	}
}

// authenticate finds the principal of every call of the API, also on paths that are no route.
func authenticate(a *auth.Authenticator) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if !isAPI(c) {
				return next(c)
			}
			req := c.Request()
			principal, err := a.Authenticate(req.Context(), req.Method, template(c), req.Header)
			if err != nil {
				stateOf(c).invalidToken = auth.CarriesAgentToken(req.Header)
				return err
			}
			stateOf(c).principal = principal
			return next(c)
		}
	}
}

// limitRate refuses calls beyond what the caller's organization may send in a minute, with no body. Routes outside of the limit
// neither count nor are refused.
func limitRate(ask func(auth.Principal) (retry time.Duration, ok bool)) echo.MiddlewareFunc {
	routes := auth.NewTable()
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if ask == nil || !isAPI(c) || routes.Find(c.Request().Method, template(c)).Unlimited {
				return next(c)
			}
			if retry, ok := ask(stateOf(c).principal); !ok {
				seconds := max(int64((retry+time.Second-1)/time.Second), 1)
				c.Response().Header().Set(echo.HeaderRetryAfter, strconv.FormatInt(seconds, 10))
				return c.NoContent(http.StatusTooManyRequests)
			}
			return next(c)
		}
	}
}

// narrow finds the project that a call names beside its key.
func narrow(a *auth.Authenticator) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if !isAPI(c) {
				return next(c)
			}
			req, state := c.Request(), stateOf(c)
			principal, err := a.Narrow(req.Context(), req.Method, template(c), req.URL.Query(), state.principal)
			if err != nil {
				return err
			}
			state.principal = principal
			return next(c)
		}
	}
}

// template is the template of the request's route, "" where it is none: the router takes a last parameter with slashes in it, the API does not.
func template(c echo.Context) string {
	if strings.Count(c.Path(), "/") != strings.Count(c.Request().URL.EscapedPath(), "/") {
		return ""
	}
	return c.Path()
}

// exactRoute refuses what the router takes too generously: see template, and OPTIONS.
func exactRoute(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if template(c) == "" {
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

// gate holds up the calls of the API while the service cannot take them.
func gate(ask func() error) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if ask != nil && isAPI(c) {
				if err := ask(); err != nil {
					return err
				}
			}
			return next(c)
		}
	}
}

// writesGate holds up the calls that write while the service takes none.
func writesGate(ask func(by auth.Principal, deletion bool) error) echo.MiddlewareFunc {
	routes := auth.NewTable()
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if ask != nil && isAPI(c) {
				if r := routes.Find(c.Request().Method, template(c)); r.Writes() {
					if err := ask(stateOf(c).principal, r.Deletes()); err != nil {
						return err
					}
				}
			}
			return next(c)
		}
	}
}
