package httpx

import (
	"context"
	"fmt"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/requestlog"
)

// EventAdmission decides whether a webhook may receive events now.
type EventAdmission interface {
	// Includes reports whether the plan of a webhook has webhooks.
	Includes(p auth.Principal) bool
	// Count counts an event of a webhook over all processes. ok is false if there are too many in this
	// minute; then retry is when to try again.
	Count(ctx context.Context, webhookID string) (retry time.Duration, ok bool, err error)
}

// authenticateEvent finds the webhook of a call by its URL. What cannot be a path parameter is no token.
func authenticateEvent(ctx context.Context, c echo.Context, a *auth.Authenticator) (auth.Principal, error) {
	parameter := func(name string) string {
		value, err := PathParam(c, name)
		if err != nil {
			return ""
		}
		return value
	}
	return a.AuthenticateEvent(ctx, parameter("webhookId"), parameter("token"))
}

// events applies the checks of a webhook to its events, in the order of the contract, before their body is read.
func (g *gates) events(c echo.Context, r *request) error {
	if !r.route.Webhook {
		return nil
	}
	w := r.principal.Webhook
	if admission := g.cfg.Events; admission != nil {
		if !admission.Includes(r.principal) {
			return fault.New(fault.PaymentRequired, fault.CodeWebhooksNotIncluded, "the plan has no webhooks: change the plan")
		}
		retry, ok, err := admission.Count(c.Request().Context(), w.ID)
		if err != nil {
			return err
		}
		if !ok {
			return rateError{retry}
		}
	}
	switch {
	case w.Paused:
		return fault.New(fault.Conflict, fault.CodeWebhookPaused, "the webhook is paused: the event is not kept")
	case w.Archived:
		return fault.New(fault.Forbidden, fault.CodeProjectArchived, "the project of this webhook is archived")
	}
	return nil
}

// rateError refuses a call beyond a rate limit: without a body, and without a row in the request log.
type rateError struct{ retry time.Duration }

// Error implements error.
func (e rateError) Error() string { return "too many calls in this minute" }

func (e rateError) write(c echo.Context, r *request) error {
	seconds := max(int64((e.retry+time.Second-1)/time.Second), 1)
	c.Response().Header().Set(echo.HeaderRetryAfter, strconv.FormatInt(seconds, 10))
	c.Response().Header().Set(echo.HeaderContentLength, "0")
	r.unlog()
	if r.inner != nil {
		r.inner.refusal = &fault.Error{Kind: fault.LimitReached, Msg: fmt.Sprintf("%v: try again in %d s", e, seconds)}
	}
	return c.NoContent(http.StatusTooManyRequests)
}

// EventID returns the id of the event that a request carries: "evt_" and the 26 characters of the request
// id in Crockford's base 32, which sort by time.
func EventID(requestID uuid.UUID) string {
	text := []byte("evt_00000000000000000000000000")
	bits, left, at := uint32(0), 0, len(text)
	for i := len(requestID) - 1; i >= 0; i-- {
		bits |= uint32(requestID[i]) << left
		for left += 8; left >= 5; left -= 5 {
			at--
			text[at] = alphabet[bits&31]
			bits >>= 5
		}
	}
	text[at-1] = alphabet[bits&31] // the 3 bits that are left
	return string(text)
}

// alphabet are the digits of ids of events.
const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// RequestOfEvent returns the id of the request that carried an event, if the text is the id of one.
func RequestOfEvent(id string) (request uuid.UUID, ok bool) {
	digits, is := strings.CutPrefix(id, "evt_")
	if !is || len(digits) != 26 {
		return request, false
	}
	number := new(big.Int)
	for _, c := range []byte(digits) {
		digit := strings.IndexByte(alphabet, c)
		if digit < 0 {
			return request, false
		}
		number.Add(number.Lsh(number, 5), big.NewInt(int64(digit)))
	}
	if number.BitLen() > 128 {
		return request, false
	}
	number.FillBytes(request[:])
	return request, true
}

// eventOf is the event of a call for the request log, nil for another call. A refused event has no verdict.
func (r *request) eventOf() *requestlog.Webhook {
	w := r.principal.Webhook
	if w == nil {
		return nil
	}
	event := &requestlog.Webhook{
		ID: w.ID, Name: w.Settings.Name, EventID: EventID(r.id), Verdict: r.note.Verdict,
	}
	if r.inner != nil {
		event.Test, event.Replay = r.inner.call.Test, r.inner.call.Replay
	}
	if r.note.DroppedBy != "" {
		event.DroppedBy = &r.note.DroppedBy
	}
	return event
}
