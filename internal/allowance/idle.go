package allowance

import (
	"cmp"
	"time"
)

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
