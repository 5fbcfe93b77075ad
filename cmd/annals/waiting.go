package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/datapoints"
)

// Sends are refused before open items grow old, because sends then arrive faster than they are
// derived. Once a limit is reached, the newest item still waits for longer, in proportion to the
// excess. So the limits are well below a minute.
const (
	// While more than crowdWaits items wait: after ownWaitingFor, the organization with most of the
	// waiting items is refused; after waitingFor, all are. A refusal ends at half of its limit.
	ownWaitingFor = 10 * time.Second
	waitingFor    = 20 * time.Second
	// crowdWaits is how many items may wait for any time: a few items that cannot be derived must
	// not block others.
	crowdWaits = 256
	// waitingShare is how many of the oldest items are counted by organization.
	waitingShare = 2048
	// openLimit is the age from which /readyz names the oldest open item.
	openLimit = 30 * time.Second
)

// waits is the part of the derivation queue that backpressure reads.
type waits interface {
	Waiting(ctx context.Context, behind eventstore.Position, before int) (datapoints.Waiting, error)
	WaitingOf(ctx context.Context, behind eventstore.Position, limit int) (map[uuid.UUID]int, error)
}

// waited is the state of the queue and what follows from it.
type waited struct {
	datapoints.Waiting
	// late is why all organizations are refused, "" if they are not. own are the organizations that
	// are refused because of their own items.
	late string
	own  map[uuid.UUID]bool
}

// lookWaiting decides who is refused because items wait for derivation. Only items accepted since
// this process derives count, so a pause of derivation refuses nobody. If the queue cannot be read,
// the decision stays as it was.
func (p *pressure) lookWaiting(ctx context.Context, before waited) waited {
	if p.waits == nil {
		return waited{}
	}
	from, derives := eventstore.Position(p.derivesFrom.Load()), p.derives.Load()
	found, err := p.waits.Waiting(ctx, from, crowdWaits)
	if err != nil {
		return before
	}
	now := waited{Waiting: found}
	if !derives || found.Crowd.IsZero() {
		return now
	}
	age := p.since(found.Crowd)
	if age > waitingFor || before.late != "" && age > waitingFor/2 {
		now.late = "more is sent than can be derived"
	}
	if age > ownWaitingFor || len(before.own) > 0 && age > ownWaitingFor/2 {
		most, err := p.mostWaiting(ctx, from)
		if err != nil {
			return before
		}
		now.own = map[uuid.UUID]bool{}
		for organization := range before.own {
			now.own[organization] = true
		}
		if age > ownWaitingFor && most != uuid.Nil {
			now.own[most] = true
		}
	}
	return now
}

// begin marks the start of derivation: items accepted from now on count. With a model nothing is
// refused, because its endpoint sets the speed.
func (p *pressure) begin(ctx context.Context) error {
	if p.model || p.derives.Load() {
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

// mostWaiting returns the organization with most of the oldest waiting items.
func (p *pressure) mostWaiting(ctx context.Context, from eventstore.Position) (most uuid.UUID, err error) {
	counts, err := p.waits.WaitingOf(ctx, from, waitingShare)
	if err != nil {
		return uuid.Nil, err
	}
	shares := map[uuid.UUID]work{}
	for project, n := range counts {
		shares[project] = work{events: n}
	}
	sums, err := p.byOwner(ctx, shares)
	if err != nil {
		return uuid.Nil, err
	}
	n := 0
	for organization, w := range sums {
		if w.events > n || w.events == n && organization.String() < most.String() {
			most, n = organization, w.events
		}
	}
	return most, nil
}

// age is how long the oldest item has waited for derivation.
func (p *pressure) age() time.Duration {
	return p.since(p.found().waited.Item)
}

// since returns the time since an acceptance, 0 if there is none.
func (p *pressure) since(accepted time.Time) time.Duration {
	if accepted.IsZero() {
		return 0
	}
	return max(p.clock().Sub(accepted), 0)
}

// openTooLong describes an item or send that is open for longer than openLimit, "" if there is
// none.
func (p *pressure) openTooLong() string {
	w := p.found().waited
	if age := p.since(w.Item); age > openLimit {
		return fmt.Sprintf("the oldest item that waits to be derived was accepted %s ago", age.Truncate(time.Second))
	}
	if age := p.since(w.Captured); age > openLimit {
		return fmt.Sprintf("the oldest send that waits to be searchable was accepted %s ago", age.Truncate(time.Second))
	}
	return ""
}
