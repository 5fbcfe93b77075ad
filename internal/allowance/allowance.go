// Package allowance shares a fixed number of units, such as bytes or calls, among the requests in flight,
// with a bound for each organization and turns between those that wait.
package allowance

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/annals-project/annals/domain/fault"
)

// Config sets the bounds of an Allowance. Total, Share and Refusal are required.
type Config struct {
	// Total is the most that all organizations hold together, Share the most that one of them holds, and
	// Project the most that one project of it holds; 0 means Share. While other projects of the organization
	// want room, a project that has its part of the share gets no more.
	Total, Share, Project int64
	// Wait is how long a reservation waits for room before it is refused.
	Wait time.Duration
	// Waiters is how many reservations wait at once, a quarter of them for one organization. With 0
	// none waits.
	Waiters int
	// Step is how many bytes the peer of a hold moves in a second at least while others wait for the total; 0 is 16 KiB.
	// Slower peers lose what they hold.
	Step int
	// Refusal is the message of a refused reservation.
	Refusal string
}

// Allowance is a number of units that requests reserve before they use them.
type Allowance struct {
	cfg Config

	mu    sync.Mutex
	taken int64
	queue *Queue[*reservation]
	// refused counts the reservations that found no room in time.
	refused uint64
	// idle are the holds that wait for their peers, revoking is what the revoked ones still have.
	idle     map[*Hold]struct{}
	revoking int64
}

// reservation is what a hold waits for.
type reservation struct {
	hold *Hold
	n    int64
	// ended is closed once it is granted or refused.
	ended   chan struct{}
	granted bool
}

// New returns an allowance without reservations.
func New(cfg Config) *Allowance {
	cfg.Project = cmp.Or(cfg.Project, cfg.Share)
	return &Allowance{cfg: cfg, queue: NewQueue[*reservation](cfg.Waiters), idle: map[*Hold]struct{}{}}
}

// InUse returns how much is reserved.
func (a *Allowance) InUse() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.taken
}

// Waiting returns how many reservations wait.
func (a *Allowance) Waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queue.Len()
}

// Refused returns how many reservations found no room in time.
func (a *Allowance) Refused() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused
}

// Share returns the most that one organization holds.
func (a *Allowance) Share() int64 { return a.cfg.Share }

// Open returns an empty hold of an owner.
func (a *Allowance) Open(o Owner) *Hold { return &Hold{allowance: a, owner: o} }

// Hold is the reservation of one request. Its methods may be called at the same time. A nil hold
// reserves nothing.
type Hold struct {
	allowance *Allowance
	owner     Owner
	// held and idle are guarded by the mutex of the allowance.
	held int64
	idle idle
}

// Reserve adds n to the hold, and waits for room if there is none. A hold never exceeds the share of its
// organization: a request that needs more waits until it holds the whole share, and shares it with no
// other request.
//
// The error is service-unavailable if there was no room in time, or that of the context.
func (h *Hold) Reserve(ctx context.Context, n int64) error {
	if h == nil {
		return nil
	}
	a := h.allowance
	a.mu.Lock()
	n = min(n, min(a.cfg.Share, a.cfg.Project)-h.held)
	if n <= 0 {
		a.mu.Unlock()
		return nil
	}
	r := &reservation{hold: h, n: n, ended: make(chan struct{})}
	p := a.queue.project(h.owner)
	if a.fits(p, r) && a.taken+n <= a.cfg.Total && a.queue.next(a.isFree) == nil {
		a.give(p, r)
		a.mu.Unlock()
		return nil
	}
	w, removed := a.queue.Push(h.owner, r)
	if removed != nil {
		close(removed.Value.ended)
		a.grant()
	}
	a.mu.Unlock()
	return a.await(ctx, w)
}

// await waits until the reservation is granted, or removes it from the queue.
func (a *Allowance) await(ctx context.Context, w *Waiter[*reservation]) error {
	limited, cancel := context.WithTimeout(ctx, a.cfg.Wait)
	defer cancel()
	check := time.NewTicker(idleCheck)
	defer check.Stop()
	for waiting := true; waiting; {
		select {
		case <-w.Value.ended:
			waiting = false
		case <-limited.Done():
			waiting = false
		case <-check.C:
			a.mu.Lock()
			a.reclaim()
			a.mu.Unlock()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.Value.granted {
		return nil
	}
	a.queue.Remove(w)
	a.grant() // later ones may have waited only for it
	if err := ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	a.refused++
	return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s", a.cfg.Refusal)
}

// Return returns n of the hold.
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
	if h.idle.revoked {
		a.revoking -= n
	}
	if h.held == 0 {
		delete(a.idle, h)
	}
	p := a.queue.project(h.owner)
	p.taken -= n
	p.of.taken -= n
	a.queue.forget(p)
	a.grant()
}

// Release returns all of the hold. It may be called again.
func (h *Hold) Release() { h.Return(h.Held()) }

// Held returns how much the hold has.
func (h *Hold) Held() int64 {
	if h == nil {
		return 0
	}
	h.allowance.mu.Lock()
	defer h.allowance.mu.Unlock()
	return h.held
}

// grant serves waiting reservations in turn. A reservation that waits for its own organization does not
// block others. One that waits for the total blocks all later ones, so that small reservations cannot
// starve a big one.
func (a *Allowance) grant() {
	for {
		w := a.queue.next(a.isFree)
		if w == nil || a.taken+w.Value.n > a.cfg.Total {
			return
		}
		a.give(w.project, w.Value)
		close(w.Value.ended)
		a.queue.Remove(w)
	}
}

func (a *Allowance) isFree(w *Waiter[*reservation]) bool { return a.fits(w.project, w.Value) }

// fits reports whether the organization and the project of a reservation have room for it. A project that
// has its part of the share leaves the rest to other projects that want it: those that wait, or all that
// hold something where none can wait.
func (a *Allowance) fits(p *project, r *reservation) bool {
	if p.of.taken+r.n > a.cfg.Share || p.taken+r.n > a.cfg.Project {
		return false
	}
	if a.cfg.Waiters > 0 && p.of.waiting == p.waiting {
		return true
	}
	n := int64(len(p.of.projects))
	return p.taken < (a.cfg.Share+n-1)/n
}

func (a *Allowance) give(p *project, r *reservation) {
	a.queue.turn(p)
	p.taken += r.n
	p.of.taken += r.n
	a.taken += r.n
	r.hold.held += r.n
	r.granted = true
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

const (
	// idleStep is how many bytes a peer moves at least in idleTime while another organization waits for the total,
	// unless the allowance asks for more.
	idleStep = 16 << 10
	idleTime = time.Second
	// idleCheck is the pause between two looks at holds whose peers are silent, while somebody waits.
	idleCheck = 250 * time.Millisecond
)

// idle is what a hold knows of a peer that it waits for.
type idle struct {
	// revoke ends the wait for the peer; nil while the hold is at work.
	revoke  func()
	revoked bool
	// moved counts the bytes since a step was complete, at since. left is when the hold went on with its work, whose time
	// is not the peer's.
	moved       int
	since, left time.Time
}

// Await reports that a hold waits for its peer, until Moved. If another organization waits for the total meanwhile and
// the peer stays silent, revoke is called, once and under a lock: it must end the wait and do nothing else. So who is
// silent holds what nobody else wants.
func (h *Hold) Await(revoke func()) {
	if h == nil {
		return
	}
	a := h.allowance
	a.mu.Lock()
	defer a.mu.Unlock()
	if h.idle.since.IsZero() {
		h.idle.since, h.idle.left = time.Now(), time.Now()
	}
	h.idle.since = h.idle.since.Add(time.Since(h.idle.left))
	h.idle.revoke = revoke
	if h.held > 0 && !h.idle.revoked {
		a.idle[h] = struct{}{}
	}
}

// Moved ends Await: the peer moved n bytes. After it revoke is not called. It returns false if it was called: the
// caller releases the hold.
func (h *Hold) Moved(n int) bool {
	if h == nil {
		return true
	}
	a := h.allowance
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.idle, h)
	h.idle.revoke, h.idle.left = nil, time.Now()
	if h.idle.moved += n; h.idle.moved >= cmp.Or(a.cfg.Step, idleStep) {
		h.idle.moved, h.idle.since = 0, time.Now()
	}
	return !h.idle.revoked
}

// reclaim revokes holds of silent peers until the next reservation has room: of the organizations that hold most, and
// never of one that holds no more than each of those that wait.
func (a *Allowance) reclaim() {
	next := a.queue.next(a.isFree)
	if next == nil {
		return
	}
	least := next.project.of.taken
	for _, w := range a.queue.waiting {
		least = min(least, w.project.of.taken)
	}
	for a.taken-a.revoking+next.Value.n > a.cfg.Total {
		h := a.silent(least)
		if h == nil {
			return
		}
		delete(a.idle, h)
		h.idle.revoked = true
		a.revoking += h.held
		h.idle.revoke()
	}
}

// silent returns the hold to revoke next, nil if there is none: of the organization that holds most, beyond least, the
// one whose peer is silent for longest.
func (a *Allowance) silent(least int64) (found *Hold) {
	var most int64
	for h := range a.idle {
		taken := a.queue.project(h.owner).of.taken
		if taken <= least || time.Since(h.idle.since) < idleTime {
			continue
		}
		if found == nil || taken > most || taken == most && h.idle.since.Before(found.idle.since) {
			found, most = h, taken
		}
	}
	return found
}
