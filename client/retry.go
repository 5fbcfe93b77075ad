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
	"strings"
	"time"
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
