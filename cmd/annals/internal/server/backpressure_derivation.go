package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/projections/datapoints"
)

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
