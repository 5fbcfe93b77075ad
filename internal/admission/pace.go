package admission

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/allowance"
)

// Set takes what a check found out, and grants in turn what has room now.
func (r *Room) Set(s State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = s
	r.checks++
	r.live[r.checks%liveSpan] = map[uuid.UUID]int{}
	for o, b := range r.bulk {
		b.before, b.ended = b.ended, 0
		if len(b.passes) == 0 && b.before == 0 {
			delete(r.bulk, o)
		}
	}
	r.grantBatches()
	if time.Since(r.bulkAt) >= bulkEvery {
		w := r.queue.Next(func(o allowance.Owner, w *waiting) bool { return w.lane == Bulk && r.waits(o, Bulk) == "" })
		if w != nil {
			r.grant(w)
		}
	}
	for range liveGrants {
		w := r.queue.Next(func(o allowance.Owner, w *waiting) bool { return w.lane != Bulk && r.fits(o, w) })
		if w == nil {
			break
		}
		r.grant(w)
	}
}

// grantBatches grants the batches that have room.
func (r *Room) grantBatches() {
	for range RoomWaiters {
		w := r.queue.Next(func(o allowance.Owner, w *waiting) bool { return w.lane == Bulk && r.fits(o, w) })
		if w == nil {
			return
		}
		r.grant(w)
	}
}

func (r *Room) grant(w *allowance.Waiter[*waiting]) {
	w.Value.granted = true
	r.count(w.Owner(), w.Value)
	r.queue.Take(w)
	close(w.Value.ended)
}

func (r *Room) waits(o allowance.Owner, l Lane) string {
	if r.state.Waits == nil {
		return ""
	}
	return r.state.Waits(o, l)
}

// fits reports whether a write has room now. A project without any unapplied event may always have one batch, unless
// twice the budget is unapplied.
func (r *Room) fits(o allowance.Owner, w *waiting) bool {
	if r.waits(o, w.lane) != "" {
		return false
	}
	if w.lane != Bulk || r.state.Budget == 0 {
		return true
	}
	all := r.state.All
	for other, b := range r.bulk {
		all += b.events()
		if other.Organization != o.Organization {
			all -= b.arriving()
		}
	}
	own := r.own(o)
	if own == 0 {
		return all < 2*r.state.Budget
	}
	// Most checks end here while many wait: what is below looks at all of them.
	return all < r.state.Budget && own < r.state.Budget/r.parts(o)
}

// parts returns into how many parts the budget is divided: by the organizations that import, and by the projects of
// an owner's organization that do.
func (r *Room) parts(o allowance.Owner) int {
	organizations, projects := map[uuid.UUID]bool{o.Organization: true}, map[uuid.UUID]bool{o.Project: true}
	importing := func(other allowance.Owner) {
		organizations[other.Organization] = true
		if other.Organization == o.Organization {
			projects[other.Project] = true
		}
	}
	for other := range r.bulk {
		importing(other)
	}
	r.queue.Each(func(other allowance.Owner, w *waiting) {
		if w.lane == Bulk {
			importing(other)
		}
	})
	return len(organizations) * len(projects)
}

// own returns the events of a project that are not applied, or that its batches will become.
func (r *Room) own(o allowance.Owner) int {
	own := r.state.Unapplied[o.Project]
	if b := r.bulk[o]; b != nil {
		own += b.events()
	}
	return own
}

// events is what the batches of a project become that no check has counted.
func (b *running) events() (n int) {
	for p := range b.passes {
		if time.Since(p.at) < runningTime {
			n += p.count()
		}
	}
	return n + b.ended + b.before
}

// arriving is the part of events whose bodies have not arrived.
func (b *running) arriving() (n int) {
	for p := range b.passes {
		if time.Since(p.at) < runningTime && p.isArriving() {
			n += p.count()
		}
	}
	return n
}

// allCounted reports whether it is known of each batch of a project at work how many items it has.
func (r *Room) allCounted(o allowance.Owner) bool {
	b := r.bulk[o]
	if b == nil {
		return true
	}
	for p := range b.passes {
		if p.items == nil || p.items.n.Load() == 0 {
			return false
		}
	}
	return true
}

// count is how many events a batch becomes, once that is known, else its estimate.
func (p *pass) count() int {
	if p.items != nil {
		if n := p.items.n.Load(); n > 0 {
			return int(n)
		}
	}
	return p.events
}

func (p *pass) isArriving() bool { return p.arriving != nil && p.arriving() }

// count counts a write that is let in.
func (r *Room) count(o allowance.Owner, w *waiting) {
	switch w.lane {
	case Bulk:
		b := r.bulk[o]
		if b == nil {
			b = &running{passes: map[*pass]struct{}{}}
			r.bulk[o] = b
		}
		w.pass = &pass{events: r.eventsOf(o, w), items: w.items, at: time.Now(), arriving: w.arriving}
		b.passes[w.pass] = struct{}{}
		r.bulkAt = time.Now()
	case Live:
		if counts := r.live[r.checks%liveSpan]; counts != nil {
			counts[o.Project]++
		}
	case NoRoom, Settled:
	}
}

// uncount counts the end of a write.
func (r *Room) uncount(o allowance.Owner, w *waiting) {
	b := r.bulk[o]
	if b == nil || w.pass == nil {
		return
	}
	if time.Since(w.pass.at) < runningTime && !w.pass.isArriving() {
		b.ended += w.pass.count()
	}
	delete(b.passes, w.pass)
}

// Live returns how many live writes of a project came in about the last second.
func (r *Room) Live(project uuid.UUID) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, counts := range r.live {
		n += counts[project]
	}
	return n
}

// Waiting returns how many writes wait.
func (r *Room) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queue.Len()
}

// Importing returns the projects with a batch at work or waiting.
func (r *Room) Importing() map[uuid.UUID]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	projects := map[uuid.UUID]bool{}
	for o, b := range r.bulk {
		if len(b.passes) > 0 {
			projects[o.Project] = true
		}
	}
	r.queue.Each(func(o allowance.Owner, w *waiting) {
		if w.lane == Bulk {
			projects[o.Project] = true
		}
	})
	return projects
}
