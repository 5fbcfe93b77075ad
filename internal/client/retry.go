package client

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"
)

// The bounds of a wait between two attempts.
const (
	firstWait = 200 * time.Millisecond
	maxWait   = 10 * time.Second
	// maxRetryAfter is the longest wait that a server may request.
	maxRetryAfter = time.Minute
)

// again decides whether to try a call again, and after which wait.
func (c *Client) again(what call, attempt int, wait time.Duration, got answer, err error) (time.Duration, bool) {
	switch {
	case err != nil && isDial(err):
		return wait, attempt < c.dials // nothing was sent
	case err != nil:
		return wait, !what.once && attempt < c.tries
	case got.status == http.StatusTooManyRequests && envelopeless(got):
		return retryAfter(got, wait), attempt < c.tries
	case got.status == http.StatusServiceUnavailable && !final503(got):
		return retryAfter(got, wait), !what.once && attempt < c.tries
	default:
		return 0, false
	}
}

// envelopeless distinguishes the 429 of the rate limit, which passes soon, from that of a cap.
func envelopeless(a answer) bool { return len(a.body) == 0 }

// final503 reports a refusal that waiting does not change.
func final503(a answer) bool {
	e, ok := errors.AsType[*Error](a.failure("", nil))
	return ok && e.Code == "pipeline-disabled"
}

// isDial reports that no connection was made, so the server has not received the call.
func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// retryAfter returns the wait that the server requests, in seconds or as a date, else otherwise.
func retryAfter(a answer, otherwise time.Duration) time.Duration {
	if s, err := strconv.Atoi(a.retryAfter); err == nil && s >= 0 {
		return min(time.Duration(s)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(a.retryAfter); err == nil {
		return min(max(time.Until(at), 0), maxRetryAfter)
	}
	return otherwise
}
