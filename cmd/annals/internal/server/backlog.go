package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/projections/datapoints"
)

const (
	// segmentEvents is how many events of a backlog are dropped together.
	segmentEvents = 64
	// maxSegments bounds the segments. Above it each two neighbours are merged.
	maxSegments = 4096
	// maxBlobs bounds the blobs whose projects are cached.
	maxBlobs = 4096
)

// amount is a number of events and their bytes, including the text that they refer to.
type amount struct {
	events int
	bytes  int64
}

func (a *amount) add(o amount) {
	a.events += o.events
	a.bytes += o.bytes
}

// backlog counts the newest events of the log by project. It covers the events that arrived since
// the process follows the log and that are not applied yet by the projections that writes need
// and by the recall index while it works.
type backlog struct {
	mu       sync.Mutex
	known    bool
	from     eventstore.Position // the backlog covers everything after it
	segments []segment
	arrived  uint64 // the number of all that arrived
	// blobs are the projects of new blobs by stream, since a chunk names no project.
	blobs map[string]uuid.UUID
	// clock is time.Now if it is nil.
	clock func() time.Time
}

// segment is the consecutive events up to a position.
type segment struct {
	end   eventstore.Position
	at    time.Time // when the last of them arrived
	all   amount
	share map[uuid.UUID]amount // by project
}

// Begins implements feed.Observer.
func (b *backlog) Begins(after eventstore.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known, b.from, b.segments = true, after, nil
}

// Arrived implements feed.Observer.
func (b *backlog) Arrived(f eventstore.DecodedEvent) {
	project, one := amountOf(f)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch f.Event.(type) {
	case *blob.Opened:
		if b.blobs == nil || len(b.blobs) >= maxBlobs {
			b.blobs = map[string]uuid.UUID{}
		}
		b.blobs[f.Stream] = project
	case blob.Chunk:
		project = b.blobs[f.Stream]
	}
	last := len(b.segments) - 1
	if last < 0 || b.segments[last].all.events >= segmentEvents {
		if len(b.segments) >= maxSegments {
			b.merge()
		}
		b.segments = append(b.segments, segment{share: map[uuid.UUID]amount{}})
		last = len(b.segments) - 1
	}
	b.arrived += uint64(one.events) //nolint:gosec // 0 or 1
	s := &b.segments[last]
	s.end, s.at = f.Position, b.now()
	s.all.add(one)
	if project != uuid.Nil {
		w := s.share[project]
		w.add(one)
		s.share[project] = w
	}
}

func (b *backlog) now() time.Time {
	if b.clock != nil {
		return b.clock()
	}
	return time.Now()
}

// waited returns how long ago the first events after a position arrived, 0 if there are none.
func (b *backlog) waited(position eventstore.Position, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.segments {
		if s.end > position {
			return now.Sub(s.at)
		}
	}
	return 0
}

// arrivals returns how many events arrived.
func (b *backlog) arrivals() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.arrived
}

// merge merges each two segments. The caller holds the lock.
func (b *backlog) merge() {
	merged := b.segments[:0]
	for i := 0; i < len(b.segments); i += 2 {
		s := b.segments[i]
		if i+1 < len(b.segments) {
			next := b.segments[i+1]
			s.end, s.at = next.end, next.at
			s.all.add(next.all)
			for project, w := range next.share {
				sum := s.share[project]
				sum.add(w)
				s.share[project] = sum
			}
		}
		merged = append(merged, s)
	}
	clear(b.segments[len(merged):])
	b.segments = merged
}

// applied drops the segments that end at a position or before it.
func (b *backlog) applied(position eventstore.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(b.segments) && b.segments[n].end <= position {
		b.from = b.segments[n].end
		n++
	}
	clear(b.segments[:n])
	b.segments = b.segments[n:]
	if len(b.segments) == 0 {
		b.segments = nil
	}
}

// after returns what arrived after a position, in total and by project. It counts the whole
// segment of the position. ok is false if the backlog does not cover all of that.
func (b *backlog) after(position eventstore.Position) (all amount, share map[uuid.UUID]amount, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.known || position < b.from {
		return amount{}, nil, false
	}
	share = map[uuid.UUID]amount{}
	for _, s := range b.segments {
		if s.end <= position {
			continue
		}
		all.add(s.all)
		for project, w := range s.share {
			sum := share[project]
			sum.add(w)
			share[project] = sum
		}
	}
	return all, share, true
}

// amountOf returns the project of an event, zero for none, and about what the event costs.
func amountOf(f eventstore.DecodedEvent) (uuid.UUID, amount) {
	if f.Stream == feed.SystemStream { // it costs next to nothing
		return uuid.Nil, amount{}
	}
	w := amount{events: 1, bytes: int64(f.Size())}
	if send, _, ok := datapoint.SendOf(f.Event); ok {
		w.bytes = max(w.bytes, send.Bytes)
		return send.ProjectID, w
	}
	return event.ProjectOf(f.Event), w
}

// Sends are refused before open items grow old, because sends then arrive faster than they are
// derived. Once a limit is reached, the newest item still waits for longer, in proportion to the
// excess. So the limits are well below a minute.
const (
	// While more than minBacklog single sends wait: after ownWaitLimit, the project with most of them in the
	// organization with most of them waits; after waitLimit, all do if the projects that do not wait yet have
	// more than minBacklog. That ends at half of the limit.
	ownWaitLimit = 10 * time.Second
	waitLimit    = 20 * time.Second
	// minBacklog is how many items may wait for any time: a few items that cannot be derived must
	// not block others.
	minBacklog = 256
	// oldestItems is how many of the oldest items are counted by organization.
	oldestItems = 2048
	// openLimit is the age from which /readyz names the oldest open item.
	openLimit = 30 * time.Second
	// elsewhereLimit is how long other processes may lease no item before derivation counts as paused.
	elsewhereLimit = 30 * time.Second
)

// derivationQueue is the part of the queue of derivation that backpressure reads.
type derivationQueue interface {
	Waiting(ctx context.Context, after eventstore.Position, before int) (datapoints.Waiting, error)
	WaitingByProject(ctx context.Context, after eventstore.Position, limit int) (map[uuid.UUID]int, error)
	BulkByProject(ctx context.Context) (map[uuid.UUID]datapoints.Bulk, error)
	// Leased reports whether any process has leased an item at a time.
	Leased(ctx context.Context, at time.Time) (bool, error)
}

// checkDerivation decides who waits because single sends wait for derivation. Only items accepted
// since derivation began count, so a pause of derivation refuses nobody.
func (p *backpressure) checkDerivation(ctx context.Context, before blocks, now *blocks) (holds []hold, err error) {
	if p.queue == nil {
		return nil, nil
	}
	if p.deriveElsewhere {
		p.followDerivation(ctx)
	}
	from, derives := eventstore.Position(p.derivesFrom.Load()), p.derives.Load()
	found, err := p.queue.Waiting(ctx, from, minBacklog)
	if err != nil {
		return nil, err
	}
	age := p.since(found.Backlogged)
	if !derives || found.Backlogged.IsZero() || age <= ownWaitLimit/2 {
		now.open = found
		return nil, nil
	}
	counts, err := p.queue.WaitingByProject(ctx, from, oldestItems)
	if err != nil {
		return nil, err
	}
	own := map[uuid.UUID]bool{}
	maps.Copy(own, before.held(projectsWait))
	if age > ownWaitLimit {
		most, err := p.mostWaiting(ctx, counts)
		if err != nil {
			return nil, err
		}
		if most != uuid.Nil {
			own[most] = true
		}
	}
	others := 0
	for project, n := range counts {
		if !own[project] {
			others += n
		}
	}
	if age > waitLimit && others > minBacklog || before.has(waiting) && age > waitLimit/2 {
		const words = "more is sent than can be derived"
		holds = []hold{{of: waiting, words: words, more: words, lanes: []admission.Lane{admission.Live}}}
	}
	now.open = found
	return append(holds, holdProjects(projectsWait, own, "the project sends more than can be derived",
		"sends more than can be derived", "send more than can be derived", admission.Live)...), nil
}

// begin marks the start of derivation: items accepted from now on count.
func (p *backpressure) begin(ctx context.Context) error {
	if p.slowExtractor || p.derives.Load() {
		return nil
	}
	head, err := p.head(ctx)
	if err != nil {
		return err
	}
	p.derivesFrom.Store(uint64(head))
	p.derives.Store(true)
	return nil
}

// followDerivation begins when another process derives, and ends once none has for a while. A failed
// read changes nothing.
func (p *backpressure) followDerivation(ctx context.Context) {
	leased, err := p.queue.Leased(ctx, p.clock())
	switch {
	case err != nil:
	case leased:
		p.leasedAt = p.now()
		if err := p.begin(ctx); err != nil {
			p.logger.DebugContext(ctx, "head of the log not read, will retry", "err", err)
		}
	case p.now().Sub(p.leasedAt) > elsewhereLimit:
		p.derives.Store(false)
	}
}

// mostWaiting returns the project with most of the waiting items, in the organization with most of them.
func (p *backpressure) mostWaiting(ctx context.Context, counts map[uuid.UUID]int) (most uuid.UUID, err error) {
	shares, sums := map[uuid.UUID]amount{}, map[uuid.UUID]int{}
	for project, n := range counts {
		shares[project] = amount{events: n}
	}
	owners, err := p.ownersOf(ctx, shares)
	if err != nil {
		return uuid.Nil, err
	}
	for project, owner := range owners {
		sums[owner] += counts[project]
	}
	for project, owner := range owners {
		of := owners[most]
		if order := cmp.Or(sums[owner]-sums[of], -slices.Compare(owner[:], of[:]), counts[project]-counts[most],
			-slices.Compare(project[:], most[:])); order > 0 {
			most = project
		}
	}
	return most, nil
}

// age returns how long the oldest item has waited for derivation.
func (p *backpressure) age() time.Duration {
	return p.since(p.state().open.Item)
}

// since returns the time since an acceptance, 0 if there is none.
func (p *backpressure) since(accepted time.Time) time.Duration {
	if accepted.IsZero() {
		return 0
	}
	return max(p.clock().Sub(accepted), 0)
}

// openTooLong describes an item or send that is open for longer than openLimit, "" if there is
// none.
func (p *backpressure) openTooLong() string {
	w := p.state().open
	if age := p.since(w.Item); age > openLimit {
		return fmt.Sprintf("the oldest item that waits to be derived was accepted %s ago", age.Truncate(time.Second))
	}
	if age := p.since(w.Captured); age > openLimit {
		return fmt.Sprintf("the oldest send that waits to be searchable was accepted %s ago", age.Truncate(time.Second))
	}
	return ""
}

// The defaults of what may wait in batches; a project has at most half of it while others have batches.
const (
	DefaultBulkItems = 1_000_000
	DefaultBulkBytes = 4 << 30
)

// checkBulk decides whose batches wait because of what waits to be derived of them.
func (p *backpressure) checkBulk(ctx context.Context, _ blocks, _ *blocks) ([]hold, error) {
	if p.queue == nil {
		return nil, nil
	}
	backlog, err := p.queue.BulkByProject(ctx)
	if err != nil {
		return nil, err
	}
	var all datapoints.Bulk
	others := p.room.Importing()
	for project, b := range backlog {
		all.Items += b.Items
		all.Bytes += b.Bytes
		others[project] = true
	}
	if all.Items >= p.bulkItems || all.Bytes >= p.bulkBytes {
		const words = "more batches were sent than may wait to be derived"
		return []hold{{of: batchesWait, words: words, more: words, lanes: []admission.Lane{admission.Bulk}}}, nil
	}
	most := map[uuid.UUID]bool{}
	for project, b := range backlog {
		if len(others) > 1 && (b.Items >= p.bulkItems/2 || b.Bytes >= p.bulkBytes/2) {
			most[project] = true
		}
	}
	return holdProjects(projectBatches, most, "the batches of the project take half of what may wait to be derived",
		"", "", admission.Bulk), nil
}

const (
	// paceTime is how much of the applied events a batch finds unapplied at most: a text that is sent during an
	// import is recalled about this much later.
	paceTime = 400 * time.Millisecond
	// speedAtFirst is how many events a second count as applied before any were measured, and maxSpeed bounds what
	// is measured.
	speedAtFirst = 2500
	maxSpeed     = 100_000
)

// speed measures how many events a second the projections apply. Only checks that find events older than paceTime
// count: projections that pause between pages have work at most times, and yet could apply more.
type speed struct {
	perSecond float64
	applied   uint64
	unapplied int
	at        time.Time
}

// measure returns how many events may be unapplied, and how many are, in all and by project. Budget is 0 if the backlog
// does not cover the log. More may be unapplied while writes wait for what is applied soon.
func (s *speed) measure(
	b *backlog, position eventstore.Position, now time.Time, waiting bool,
) (budget, unapplied int, of map[uuid.UUID]int) {
	all, shares, ok := b.after(position)
	if !ok {
		*s = speed{}
		return 0, 0, nil
	}
	if s.perSecond == 0 {
		s.perSecond = speedAtFirst
	}
	applied, passed := b.arrivals()-uint64(all.events), now.Sub(s.at) //nolint:gosec // a count is not negative
	switch {
	case s.at.IsZero() || passed <= 0 || applied < s.applied:
	case s.unapplied > 0 && b.waited(position, now) >= paceTime:
		s.perSecond += 0.3 * (float64(applied-s.applied)/passed.Seconds() - s.perSecond)
	case waiting && s.unapplied > 0:
		s.perSecond *= 1.1
	}
	s.perSecond = min(max(s.perSecond, speedAtFirst), maxSpeed)
	s.applied, s.unapplied, s.at = applied, all.events, now
	of = map[uuid.UUID]int{}
	for project, a := range shares {
		of[project] = a.events
	}
	return max(int(s.perSecond*paceTime.Seconds()), limit.BatchItems), all.events, of
}
