// Package httpx is the edge of every HTTP surface: request ids, the error envelope, bodies, path
// parameters, credentials, access log and metrics.
package httpx

import (
	"context"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
)

// headerRequestID is on every response; its value is made here, never taken from the caller.
const headerRequestID = "X-Request-Id"

// HeaderProject is on every response to a call whose project is known, but for the events of webhooks: an id that no
// other project has, in this store or another. An importer learns by it whether it sent to this project before.
const HeaderProject = "X-Annals-Project"

const requestKey = "annals.request"

// request is the state of a request at the edge.
type request struct {
	// api is true for a path under /api/v1, page for a page of the console; route is the requested route.
	api, page  bool
	route      auth.Route
	id         uuid.UUID
	receivedAt time.Time
	principal  auth.Principal
	// peer is the address of a caller without a key, as an id.
	peer uuid.UUID
	// query are the parameters that the route knows.
	query        url.Values
	invalidToken bool
	// code is the code of the answered fault, "" for a success.
	code string
	// refused is why the service cannot serve the call now, nil if it can.
	refused error
	// logged collects the request for the request log, nil if it is not logged. tee retains the
	// beginning of the response.
	logged *logged
	tee    *tee
	// note is what the handler adds for the request log.
	note Note
	// inner is a call in the process, nil for one from outside.
	inner *inner
	// timeout is how long the request may take once its body has arrived. bodies is the allowance of
	// its body.
	timeout time.Duration
	bodies  *Bodies
	// row is what the route asks for. holds are the places and slots of the call, answer is the reservation of
	// the response: they are returned once it is written. leave gives back the room of a write.
	row    admission.Route
	holds  []*allowance.Hold
	answer *allowance.Hold
	leave  func()
	// arriving is true while the body of a write has not arrived.
	arriving atomic.Bool
	// items is how many items the batch of the call has.
	items admission.Items
	// base is the context of the connection, cancels end those of the call.
	base    context.Context //nolint:containedctx // of the one request
	cancels []context.CancelFunc
	// release returns the reservation of the body. It runs when the response is written, since
	// decoded values live until then.
	release func()
}

func stateOf(c echo.Context) *request {
	if r, ok := c.Get(requestKey).(*request); ok {
		return r
	}
	return &request{}
}

// NoteItems notes how many items the batch of a request has, once its body was read.
func NoteItems(c echo.Context, n int) { stateOf(c).items.Note(n) }

// RequestID returns the UUIDv7 of the request, the same as in its X-Request-Id header.
func RequestID(c echo.Context) uuid.UUID { return stateOf(c).id }

// Query returns the parameters of the query that the route has in the table of routes. Others are ignored.
func Query(c echo.Context) url.Values { return stateOf(c).query }

// ReceivedAt returns the time of the request, in UTC, cut to microseconds.
func ReceivedAt(c echo.Context) time.Time { return stateOf(c).receivedAt }

// Principal returns the caller. It is zero on routes without credentials.
func Principal(c echo.Context) auth.Principal { return stateOf(c).principal }
