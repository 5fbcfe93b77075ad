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
	// maxRetryAfter is the longest wait that a server is granted.
	maxRetryAfter = time.Minute
)

// again decides whether a call is tried once more, and after which wait.
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

// envelopeless distinguishes the 429 of the per-minute limit, which passes, from that of a cap, which
// does not pass soon.
func envelopeless(a answer) bool { return len(a.body) == 0 }

// final503 is a refusal that waiting does not change.
func final503(a answer) bool {
	e, ok := errors.AsType[*Error](a.failure("", nil))
	return ok && e.Code == "pipeline-disabled"
}

// isDial reports that no connection was made, so that the server has not received the call.
func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// retryAfter is the wait that the server asks for, in seconds or as a date, else the one given.
func retryAfter(a answer, otherwise time.Duration) time.Duration {
	if s, err := strconv.Atoi(a.retryAfter); err == nil && s >= 0 {
		return min(time.Duration(s)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(a.retryAfter); err == nil {
		return min(max(time.Until(at), 0), maxRetryAfter)
	}
	return otherwise
}
