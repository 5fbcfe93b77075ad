// Package allowance shares a fixed number of bytes among the requests in flight, with a bound for
// each organization.
package allowance

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
)

// Config sets the bounds of an Allowance. All of them are required.
type Config struct {
	// Total is the most bytes that all organizations hold together, Share the most that one of them
	// holds.
	Total, Share int64
	// Wait is how long a reservation waits for room before it is refused.
	Wait time.Duration
	// Waiters is how many reservations wait at once, a quarter of them for one organization. Further
	// ones are refused at once; with 0 none waits.
	Waiters int
	// Refusal is the message of a refused reservation.
	Refusal string
}

// Allowance is a number of bytes that requests reserve before they use them.
type Allowance struct {
	cfg Config

	mu    sync.Mutex
	taken int64
	// tenants has an entry for each organization that holds bytes or waits for them.
	tenants map[uuid.UUID]*tenant
	waiting *list.List // of *waiter, in the order of their arrival
}

type tenant struct {
	taken   int64
	waiting int
}

type waiter struct {
	hold    *Hold
	bytes   int64
	granted chan struct{}
}

// New returns an allowance without reservations.
func New(cfg Config) *Allowance {
	return &Allowance{cfg: cfg, tenants: map[uuid.UUID]*tenant{}, waiting: list.New()}
}

// InUse returns how many bytes are reserved.
func (a *Allowance) InUse() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.taken
}

// Share returns the most bytes that one organization holds.
func (a *Allowance) Share() int64 { return a.cfg.Share }

// Open returns an empty hold of an organization.
func (a *Allowance) Open(organization uuid.UUID) *Hold {
	return &Hold{allowance: a, organization: organization}
}

// Hold is the reservation of one request. Its methods may be called at the same time. A nil hold
// reserves nothing.
type Hold struct {
	allowance    *Allowance
	organization uuid.UUID
	// held is guarded by the mutex of the allowance.
	held int64
}

// Reserve adds n bytes to the hold, and waits for room if there is none. A hold never exceeds the
// share of its organization: a request that needs more waits until it holds the whole share, and
// shares it with no other request.
//
// The error is service-unavailable if there was no room in time, or that of the context.
func (h *Hold) Reserve(ctx context.Context, n int64) error {
	if h == nil {
		return nil
	}
	a := h.allowance
	a.mu.Lock()
	n = min(n, a.cfg.Share-h.held)
	if n <= 0 {
		a.mu.Unlock()
		return nil
	}
	t := a.tenant(h.organization)
	w := &waiter{hold: h, bytes: n, granted: make(chan struct{})}
	t.waiting++
	place := a.waiting.PushBack(w)
	a.grant()
	granted := w.isGranted()
	full := !granted && (a.waiting.Len() > a.cfg.Waiters || t.waiting > max(a.cfg.Waiters/4, 1))
	if full {
		a.leave(place)
	}
	a.mu.Unlock()
	switch {
	case granted:
		return nil
	case full:
		return a.refusal()
	default:
		return a.await(ctx, w, place)
	}
}

func (w *waiter) isGranted() bool {
	select {
	case <-w.granted:
		return true
	default:
		return false
	}
}

// leave removes a reservation that was not granted from the queue. Later ones may have waited only
// for it.
func (a *Allowance) leave(place *list.Element) {
	w, _ := a.waiting.Remove(place).(*waiter)
	a.tenant(w.hold.organization).waiting--
	a.forget(w.hold.organization)
	a.grant()
}

// await waits until the reservation is granted, or removes it from the queue.
func (a *Allowance) await(ctx context.Context, w *waiter, place *list.Element) error {
	limited, cancel := context.WithTimeout(ctx, a.cfg.Wait)
	defer cancel()
	select {
	case <-w.granted:
		return nil
	case <-limited.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.isGranted() {
		return nil
	}
	a.leave(place)
	if err := ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return a.refusal()
}

// Return returns n bytes of the hold.
func (h *Hold) Return(n int64) {
	if h == nil {
		return
	}
	a := h.allowance
	a.mu.Lock()
	defer a.mu.Unlock()
	n = min(n, h.held)
	if n <= 0 {
		return
	}
	h.held -= n
	a.taken -= n
	a.tenant(h.organization).taken -= n
	a.forget(h.organization)
	a.grant()
}

// Release returns all bytes of the hold. It may be called again.
func (h *Hold) Release() { h.Return(h.Held()) }

// Held returns how many bytes the hold has.
func (h *Hold) Held() int64 {
	if h == nil {
		return 0
	}
	h.allowance.mu.Lock()
	defer h.allowance.mu.Unlock()
	return h.held
}

// grant serves waiting reservations in order. A reservation that waits for its own organization
// does not block others. One that waits for the total blocks all later ones, so that small
// reservations cannot starve a big one.
func (a *Allowance) grant() {
	for e := a.waiting.Front(); e != nil; {
		w := e.Value.(*waiter) //nolint:forcetypeassert // only waiters are pushed
		t, next := a.tenant(w.hold.organization), e.Next()
		switch {
		case t.taken+w.bytes > a.cfg.Share:
		case a.taken+w.bytes > a.cfg.Total:
			return
		default:
			a.waiting.Remove(e)
			t.waiting--
			t.taken += w.bytes
			a.taken += w.bytes
			w.hold.held += w.bytes
			close(w.granted)
		}
		e = next
	}
}

func (a *Allowance) tenant(organization uuid.UUID) *tenant {
	t := a.tenants[organization]
	if t == nil {
		t = &tenant{}
		a.tenants[organization] = t
	}
	return t
}

// forget drops the entry of an organization that neither holds nor waits.
func (a *Allowance) forget(organization uuid.UUID) {
	if t := a.tenants[organization]; t != nil && t.taken == 0 && t.waiting == 0 {
		delete(a.tenants, organization)
	}
}

func (a *Allowance) refusal() error {
	return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s", a.cfg.Refusal)
}

type contextKey struct{}

// NewContext returns a context that carries the hold of a request.
func NewContext(ctx context.Context, h *Hold) context.Context {
	return context.WithValue(ctx, contextKey{}, h)
}

// FromContext returns the hold of the request, nil if the context carries none.
func FromContext(ctx context.Context) *Hold {
	h, _ := ctx.Value(contextKey{}).(*Hold)
	return h
}

// Reserve reserves n bytes for the response of an API request. Call it before reading the bytes,
// and return unneeded ones with FromContext(ctx).Return. The rest is released when the response is
// written. A context without a hold reserves nothing.
func Reserve(ctx context.Context, n int64) error { return FromContext(ctx).Reserve(ctx, n) }
