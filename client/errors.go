package annals

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// APIError is a refusal by the service. Match on Code; Status alone if Code is "".
type APIError struct {
	// Status is that of HTTP.
	Status int
	// Code is the code of the error, "" if the answer names none, as that of a proxy.
	Code string
	// Message is for people; its words may change.
	Message string
	// RequestID is the id of the request in the log of the service.
	RequestID string
	// RetryAfter is the pause that the service asks for, 0 if it names none.
	RetryAfter time.Duration
	// Data is a JSON object with details that depend on the code, nil for none.
	Data json.RawMessage
}

// Error names the status, the code and the request.
func (e *APIError) Error() string {
	text := fmt.Sprintf("the server answered %d", e.Status)
	if e.Code != "" {
		text += " " + e.Code
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// ConnectionError is a call without an answer. Whether it took effect is not known, unless no connection was made.
type ConnectionError struct {
	BaseURL string
	Err     error
}

// Error names the server and the cause.
func (e *ConnectionError) Error() string {
	return fmt.Sprintf("no answer from %s: %v", e.BaseURL, e.Err)
}

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }

// connectionError returns the error of a failed attempt without the path of its URL, which may hold a token.
func (c *Client) connectionError(err error) *ConnectionError {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return &ConnectionError{c.base, err}
}

// apiError reads a response that is no success.
func apiError(res *http.Response, body []byte) *APIError {
	e := &APIError{Status: res.StatusCode, RequestID: res.Header.Get("X-Request-Id")}
	e.RetryAfter, _ = retryAfter(res.Header)
	var envelope struct {
		Code         string          `json:"code"`
		DebugMessage string          `json:"debugMessage"`
		Data         json.RawMessage `json:"data"`
	}
	// Without an envelope, as in the page of a proxy, only the status is known.
	if json.Unmarshal(body, &envelope) == nil {
		e.Code, e.Message, e.Data = envelope.Code, envelope.DebugMessage, envelope.Data
	}
	return e
}

// retryAfter returns the pause that a response asks for, in seconds or as a date.
func retryAfter(h http.Header) (time.Duration, bool) {
	text := h.Get("Retry-After")
	if s, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(s) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0), true
	}
	return 0, false
}

// Codes of errors. The API document lists those of each route; the list can grow.
const (
	CodeInvalidRequest       = "invalid-request"
	CodeInvalidIngestion     = "invalid-ingestion"
	CodeInvalidRange         = "invalid-range"
	CodeRangeTooWide         = "range-too-wide"
	CodeInvalidDeletion      = "invalid-deletion"
	CodeAudienceUnknown      = "audience-unknown"
	CodeTraitsInvalid        = "traits-invalid"
	CodeBulkInvalidRows      = "bulk-invalid-rows"
	CodeAudienceSlugInvalid  = "audience-slug-invalid"
	CodeAudienceSlugReserved = "audience-slug-reserved"
	CodeAudienceKindInvalid  = "audience-kind-invalid"
	CodeAudienceKindMismatch = "audience-kind-mismatch"
	CodeAudienceRuleInvalid  = "audience-rule-invalid"
	CodeAudienceKindSwitch   = "audience-kind-switch-invalid"
	CodeAudienceLimitReached = "audience-limit-reached"
	CodeOutOfCredits         = "out-of-credits"
	CodeProjectLimitReached  = "project-limit-reached"
	CodeWebhooksNotIncluded  = "webhooks-not-included"
	CodeWebhookPaused        = "webhook-paused"
	CodeWebhookBodyTooLarge  = "webhook-body-too-large"
	CodeConflict             = "conflict"
	CodeProjectCapReached    = "project-cap-reached"
	CodeSpendCapReached      = "spend-cap-reached"
	CodeProjectRequired      = "project-required"
	CodeProjectMismatch      = "project-mismatch"
	CodeProjectNotFound      = "project-not-found"
	CodeRecallQueryRequired  = "recall-query-required"
	CodeIdentityRequired     = "identity-required"
	CodeRecallSortInvalid    = "recall-sort-invalid"
	CodeRecallRangeInvalid   = "recall-range-invalid"
	CodeInvalidReveal        = "invalid-reveal"
	CodeProjectNameInvalid   = "project-name-invalid"
	CodeKeyNameInvalid       = "key-name-invalid"
	CodeMissingAPIKey        = "missing-api-key"
	CodeMalformedAPIKey      = "malformed-api-key"
	CodeUnauthorized         = "unauthorized"
	CodeProjectArchived      = "project-archived"
	CodeInsufficientScope    = "insufficient-scope"
	CodeCORSRefused          = "cors-refused"
	CodeNotFound             = "not-found"
	CodeDataPointNotFound    = "data-point-not-found"
	CodeMethodNotAllowed     = "method-not-allowed"
	CodeIdempotencyConflict  = "idempotency-conflict"
	CodeDataPointDeleted     = "data-point-deleted"
	CodeIngestionNotStopped  = "ingestion-not-stopped"
	CodeContentTooLarge      = "content-too-large"
	CodeUnsupportedMediaType = "unsupported-media-type"
	CodeInternal             = "internal"
	CodeServiceUnavailable   = "service-unavailable"
	CodeOrganizationNotReady = "organization-not-ready"
	CodePipelineDisabled     = "pipeline-disabled"
	CodeTimeout              = "timeout"
)

// The pauses between two attempts, unless the service names one.
const (
	firstPause = 200 * time.Millisecond
	maxPause   = 10 * time.Second
)

// repeat is which failures let a call be sent again.
type repeat int

const (
	// once sends a call again only if no connection was made: a second attempt might do it twice.
	once repeat = iota
	// safe is a call whose second attempt changes nothing.
	safe
	// deletion is safe, and a 404 after a lost answer counts as done.
	deletion
	// charged is sent again only after a 503, which charges nothing. An ingest without a key is repeated in the same way.
	charged
)

// final is an error that another attempt would not change.
type final struct{ error }

func (e final) Unwrap() error { return e.error }

// attempts counts and paces the attempts of one call.
type attempts struct {
	client *Client
	repeat repeat
	n      int
	pause  time.Duration
	// unconnected is when the first of the latest attempts without a connection failed.
	unconnected time.Time
	// lost is true if an attempt may have taken effect whose answer is not known.
	lost bool
}

// next waits before the next attempt. It returns an error if there is none: err, that of the attempt before.
func (a *attempts) next(ctx context.Context, err error) error {
	a.n++
	connected := !isUnconnected(err)
	if connected {
		a.unconnected = time.Time{}
	} else if a.unconnected.IsZero() {
		a.unconnected = time.Now()
	}
	a.lost = a.lost || isLost(err)
	if ctx.Err() != nil || !a.repeat.allows(err) || a.client.maxAttempts > 0 && a.n >= a.client.maxAttempts {
		return err
	}
	wait := a.wait(err)
	if limit := a.client.connectWait; !connected && limit >= 0 && time.Since(a.unconnected)+wait > limit {
		return err
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
}

// wait returns the next pause: the one that the service names, or twice the one before, shortened at random by up to a
// half. A named pause is lengthened at random by up to a tenth, so that callers do not return at the same instant.
func (a *attempts) wait(err error) time.Duration {
	a.pause = min(max(2*a.pause, firstPause), maxPause)
	var refused *refusal
	if errors.As(err, &refused) && refused.named {
		return refused.RetryAfter + rand.N(refused.RetryAfter/10+1)
	}
	return a.pause - rand.N(a.pause/2+1)
}

// refusal is an APIError, and whether it names a pause, which may be 0.
type refusal struct {
	*APIError
	named bool
}

func (e *refusal) Unwrap() error { return e.APIError }

// allows reports whether a call may be sent again after an error.
func (r repeat) allows(err error) bool {
	var refused *refusal
	switch {
	case !errors.As(err, &refused):
		if isUnconnected(err) {
			return r != charged && !isPermanent(err)
		}
		return (r == safe || r == deletion) && !isPermanent(err)
	case refused.Status == http.StatusServiceUnavailable:
		return r != once
	case refused.Status == http.StatusTooManyRequests:
		return (r == safe || r == deletion) && !strings.HasSuffix(refused.Code, "-cap-reached")
	case refused.Status == http.StatusBadGateway || refused.Status == http.StatusGatewayTimeout:
		return r == safe || r == deletion
	}
	return false
}

// isUnconnected reports whether no connection was made, so that the service did not receive the call.
func isUnconnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// isPermanent reports whether a connection fails in the same way each time.
func isPermanent(err error) bool {
	var (
		last        final
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
	)
	return errors.As(err, &last) || errors.As(err, &name) && name.IsNotFound || errors.As(err, &certificate) ||
		errors.As(err, &record)
}

// isLost reports whether an attempt may have taken effect.
func isLost(err error) bool {
	var refused *refusal
	if !errors.As(err, &refused) {
		return !isUnconnected(err)
	}
	switch refused.Status {
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	case http.StatusServiceUnavailable:
		var data struct {
			Committed bool `json:"committed"`
		}
		_ = json.Unmarshal(refused.Data, &data) // without data, nothing is known to be committed
		return data.Committed || refused.Code == "" || refused.Code == CodeTimeout
	}
	return false
}
