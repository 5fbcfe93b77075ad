package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/datapoints"
)

// Sends are refused before what is open grows old: items come faster than they are derived then. By the time that a limit is passed,
// what is accepted last waits for as much longer as sends come faster than they are derived, so the limits are well below a minute.
const (
	// An organization that has the most of what waits is refused once a crowd waits for ownWaitingFor, all are once one waits for
	// waitingFor. They are taken again once it is half as long.
	ownWaitingFor = 10 * time.Second
	waitingFor    = 20 * time.Second
	// crowdWaits is how many items may wait for however long: some that cannot be worked on are nobody else's fault.
	crowdWaits = 256
	// waitingShare is how many of the oldest items are looked at to find out whose they are.
	waitingShare = 2048
	// openLimit is from which age the oldest open item is named on /readyz.
	openLimit = 30 * time.Second
)

// waits is what the queue of derivation is asked.
type waits interface {
	Waiting(ctx context.Context, behind eventstore.Position, before int) (datapoints.Waiting, error)
	WaitingOf(ctx context.Context, behind eventstore.Position, limit int) (map[uuid.UUID]int, error)
}

// waited is what was found in the queue.
type waited struct {
	datapoints.Waiting
	// late says why all are refused, "" for not; own are the organizations that are refused for what they sent.
	late string
	own  map[uuid.UUID]bool
}

// lookWaiting finds who is refused since items wait for derivation. Only what was accepted since this process derives counts: it is
// no news that derivation was off. What cannot be found out stays as it was.
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

// begin says that derivation begins: what is accepted from now on counts. A model derives as fast as somebody else answers, so
// nothing is refused for it.
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

// mostWaiting is the organization that has the most of the oldest items that wait.
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

// age is since when the oldest item waits to be derived.
func (p *pressure) age() time.Duration {
	return p.since(p.found().waited.Item)
}

// since is for how long something waits that was accepted at a time, 0 for nothing.
func (p *pressure) since(accepted time.Time) time.Duration {
	if accepted.IsZero() {
		return 0
	}
	return max(p.clock().Sub(accepted), 0)
}

// openTooLong names what is open for longer than it may be, "" for nothing.
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
