// Package httpx is the edge of every HTTP surface: request ids, the error envelope, bodies, path
// parameters, credentials, access log and metrics.
package httpx

import (
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
)

// HeaderRequestID is on every response; its value is made here, never taken from the caller.
const HeaderRequestID = "X-Request-Id"

const requestKey = "annals.request"

// request is what the edge knows of a request while it is served.
type request struct {
	// api reports that the path is under /api/v1; route is what the request asks for.
	api          bool
	route        auth.Route
	id           uuid.UUID
	receivedAt   time.Time
	principal    auth.Principal
	invalidToken bool
	// code is the code of the answered fault, "" for a success.
	code string
	// logged is what is collected for the request log, nil if the call is not logged; tee keeps the
	// beginning of the response.
	logged *logged
	tee    *tee
	// note is what the handler adds for the request log.
	note Note
	// timeout is how long the request may take once its body is there; bodies is the allowance that
	// the body is read under.
	timeout time.Duration
	bodies  *Bodies
	// answer is what the answer reserves; it is released when the response is written.
	answer *allowance.Hold
	// release gives back the share of the body. It runs when the response is written, since what is
	// decoded lives that long.
	release func()
}

func stateOf(c echo.Context) *request {
	if r, ok := c.Get(requestKey).(*request); ok {
		return r
	}
	return &request{}
}

// RequestID is the UUIDv7 of the request, the same as its X-Request-Id header.
func RequestID(c echo.Context) uuid.UUID { return stateOf(c).id }

// ReceivedAt is the time of the request, in UTC, cut to microseconds.
func ReceivedAt(c echo.Context) time.Time { return stateOf(c).receivedAt }

// Principal is who calls. It is zero on routes that take no credential.
func Principal(c echo.Context) auth.Principal { return stateOf(c).principal }
