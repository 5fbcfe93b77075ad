package admission

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/allowance"
)

// The bounds of writes that wait for room; the last row of the table.
const (
	// RoomWait is how long a write waits before it is refused, and RoomWaiters how many do, a quarter of them of
	// one organization.
	RoomWait    = 10 * time.Second
	RoomWaiters = 256
	// CheckEvery is the pause between two checks. Each grants at most liveGrants of the live writes that wait,
	// so that they do not all come at once when a reason ends.
	CheckEvery = 250 * time.Millisecond
	liveGrants = 16
	// bulkEvery is the time after which one batch is granted whatever is not applied yet, so that none starves.
	bulkEvery = 750 * time.Millisecond
	// A batch counts with its events until it ends, but no longer than runningTime: a slow body must not hold up
	// its project.
	runningTime = 2 * time.Second
	// itemBytes is the least that an item of a batch takes in its body. It counts until a project had a batch; sizesKept
	// is of how many projects the size of their items is remembered.
	itemBytes = 16
	sizesKept = 4096
	// liveSpan is over how many checks live writes are counted: about a second.
	liveSpan = 4
)

// State is what a check found out. A Room that knows none yet lets every write pass.
type State struct {
	// Waits returns why a write of a project waits, "" if it does not. It is called under a lock.
	Waits func(o allowance.Owner, l Lane) string
	// Budget is how many events may be unapplied before a batch waits, together and for a project its part of
	// it. 0 paces nothing.
	Budget int
	// Unapplied are the events that are not applied yet, by project; All is their number.
	Unapplied map[uuid.UUID]int
	All       int
}

// Room lets writes wait until there is room for what they derive, in turn between organizations and between the
// projects of each. Live writes pass unless their project has to wait. Batches are paced by what is not applied yet.
type Room struct {
	wait   time.Duration
	mu     sync.Mutex
	state  State
	queue  *allowance.Queue[*waiting]
	checks int
	// bulk are the batches that were let in, by project, and bulkAt when the last one was.
	bulk   map[allowance.Owner]*running
	bulkAt time.Time
	// sizes are the bytes of an item in the last batch of a project.
	sizes map[allowance.Owner]int64
	// live counts the live writes of the last checks, by project.
	live [liveSpan]map[uuid.UUID]int
}

type waiting struct {
	lane     Lane
	length   int64
	items    *Items
	arriving func() bool
	ended    chan struct{}
	granted  bool
	// pass is set once a batch is let in.
	pass *pass
}

// running are the batches of a project: those at work, and the events of those that ended since the last check and
// before it, which no check has surely counted.
type running struct {
	passes        map[*pass]struct{}
	ended, before int
}

type pass struct {
	events int
	items  *Items
	at     time.Time
	// arriving is that of Write. What does not arrive counts for its own organization alone.
	arriving func() bool
}

// NewRoom returns a room that nobody waits for, and in which a write waits no longer than wait: RoomWait, but in tests
// that must not depend on how fast the machine is.
func NewRoom(wait time.Duration) *Room {
	return &Room{
		wait: wait, queue: allowance.NewQueue[*waiting](RoomWaiters), bulk: map[allowance.Owner]*running{},
		sizes: map[allowance.Owner]int64{},
	}
}

// Enter returns once a write may pass; leave must be called when it has ended. Before it waits, it calls Parked.
// The error is service-unavailable if there was no room in time, or that of the context, also for a client that left.
func (r *Room) Enter(ctx context.Context, w Write) (leave func(), err error) {
	r.mu.Lock()
	asks := &waiting{
		lane: w.Lane, length: w.Length, items: w.Items, arriving: w.Arriving, ended: make(chan struct{}),
	}
	if w.Items != nil {
		w.Items.noted = func(n int) { r.counted(w, n) }
	}
	behind := false
	r.queue.Each(func(o allowance.Owner, other *waiting) {
		// A project that has a batch on its way does not pass those of others that wait for one.
		behind = behind || other.lane == w.Lane && (o == w.Owner || w.Lane == Bulk && r.own(w.Owner) > 0)
	})
	if !behind && r.fits(w.Owner, asks) {
		r.count(w.Owner, asks)
		r.mu.Unlock()
		return r.left(w.Owner, asks), nil
	}
	waiter, removed := r.queue.Push(w.Owner, asks)
	if removed != nil {
		close(removed.Value.ended)
	}
	r.mu.Unlock()
	if w.Parked != nil {
		w.Parked()
	}
	if err := r.await(ctx, w, asks); err != nil {
		return nil, r.leave(waiter, w, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !asks.granted {
		return nil, r.refusal(w) // it left the queue for another one
	}
	return r.left(w.Owner, asks), nil
}

// left returns what is called when a write that was let in has ended.
func (r *Room) left(o allowance.Owner, w *waiting) func() {
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.uncount(o, w)
	})
}

// await waits until a write was granted or refused.
func (r *Room) await(ctx context.Context, w Write, asks *waiting) error {
	end := time.NewTimer(r.wait)
	defer end.Stop()
	look := time.NewTicker(CheckEvery)
	defer look.Stop()
	for {
		select {
		case <-asks.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return context.DeadlineExceeded
		case <-look.C:
			if w.Gone != nil && w.Gone() {
				return context.Canceled
			}
		}
	}
}

// leave ends the wait of a write that was not granted in time.
func (r *Room) leave(waiter *allowance.Waiter[*waiting], w Write, cause error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if waiter.Value.granted {
		r.uncount(w.Owner, waiter.Value)
	}
	r.queue.Remove(waiter)
	if cause == context.DeadlineExceeded { //nolint:errorlint // await returns it as it is
		return r.refusal(w)
	}
	return cause
}

func (r *Room) refusal(w Write) error {
	why := "more batches are sent than can be applied"
	if r.state.Waits != nil {
		if waits := r.state.Waits(w.Owner, w.Lane); waits != "" {
			why = waits
		}
	}
	return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
		"%s: the write waited for room and found none, retry later; reads continue", why)
}

// eventsOf returns about how many events a batch becomes at first: by the size of the items before for one batch at a
// time, and by the least size of an item while another batch of the project has not been counted.
func (r *Room) eventsOf(o allowance.Owner, w *waiting) int {
	if w.length < 0 {
		return limit.BatchItems
	}
	size := int64(itemBytes)
	if r.allCounted(o) {
		size = max(r.sizes[o], itemBytes)
	}
	return int(min(w.length/size+1, limit.BatchItems))
}

// counted notes how many items a batch has. It may have been taken for more, so others may have room now.
func (r *Room) counted(w Write, items int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.Length > 0 {
		if len(r.sizes) >= sizesKept {
			clear(r.sizes)
		}
		r.sizes[w.Owner] = w.Length / int64(items)
	}
	r.grantBatches()
}

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
