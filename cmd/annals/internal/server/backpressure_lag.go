package server

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

const (
	// A projection lags far if it has not reached the head of lagTime ago and has more than lagEvents
	// to apply. It has caught up once half as many are left.
	lagTime   = 30 * time.Second
	lagEvents = 1000
	// One organization is refused earlier than all: if projections have not reached the head of
	// ownLagTime ago and this much of what they have to apply is its own. It is accepted again once
	// half as much is left.
	ownLagTime   = 15 * time.Second
	ownLagEvents = 500
	ownLagBytes  = 32 << 20
	// maxOwners bounds the projects whose organizations are cached.
	maxOwners = 10000
)

// checkLag decides what is refused because projections lag: organizations by their own events,
// and all writes if a projection lags by the events of the others. On an error it returns the
// previous result.
func (p *backpressure) checkLag(ctx context.Context, before blocks) blocks {
	previous := blocks{lagging: before.lagging, ahead: before.ahead}
	head, err := p.head(ctx)
	if err != nil {
		return previous
	}
	slowest, longest := head, time.Duration(0)
	late := map[string]time.Duration{}
	health := p.health(ctx)
	for _, s := range health {
		m, marked := p.marks[s.Name]
		if !marked || s.Position >= m.head {
			m = mark{head: head, at: p.now()}
			p.marks[s.Name] = m
		}
		if late[s.Name] = p.now().Sub(m.at); s.Position < head {
			longest = max(longest, late[s.Name])
		}
		slowest = min(slowest, s.Position)
	}
	aheadOfIndex, err := p.checkIndexLag(ctx, head, slowest)
	if err != nil {
		return previous
	}
	ahead, err := p.checkOwn(ctx, slowest, longest, before)
	if err != nil {
		return previous
	}
	maps.Copy(ahead, aheadOfIndex)
	now := blocks{ahead: ahead}
	limit, least := lagEvents, lagTime
	if before.lagging != "" {
		limit, least = lagEvents/2, 0
	}
	for _, s := range health {
		if s.Position >= head || late[s.Name] < least {
			continue
		}
		n, err := p.countOthers(ctx, s.Position, limit+1, ahead)
		if err != nil {
			return previous
		}
		if n > limit {
			now.lagging = fmt.Sprintf("projection %s lags the log", s.Name)
			break
		}
	}
	return now
}

// checkOwn returns the organizations whose own events make up too much of what the slowest
// projection has to apply.
func (p *backpressure) checkOwn(
	ctx context.Context, slowest eventstore.Position, late time.Duration, before blocks,
) (map[uuid.UUID]amount, error) {
	none := map[uuid.UUID]amount{}
	if p.backlog == nil {
		return none, nil
	}
	if late < ownLagTime && len(before.ahead) == 0 {
		return none, nil
	}
	_, shares, ok := p.backlog.after(slowest)
	if !ok {
		return none, nil
	}
	sums, err := p.byOwner(ctx, shares)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(sums, func(organization uuid.UUID, a amount) bool {
		if _, was := before.ahead[organization]; was {
			return a.events <= ownLagEvents/2 && a.bytes <= ownLagBytes/2
		}
		return late < ownLagTime || a.events <= ownLagEvents && a.bytes <= ownLagBytes
	})
	return sums, nil
}

// byOwner adds up the shares of projects by organization. It leaves out projects whose
// organization is not known yet.
func (p *backpressure) byOwner(ctx context.Context, shares map[uuid.UUID]amount) (map[uuid.UUID]amount, error) {
	var unknown []uuid.UUID
	for project := range shares {
		if _, known := p.known[project]; !known {
			unknown = append(unknown, project)
		}
	}
	if len(unknown) > 0 {
		found, err := p.owners(ctx, unknown)
		if err != nil {
			return nil, err
		}
		if len(p.known)+len(found) > maxOwners {
			clear(p.known)
		}
		maps.Copy(p.known, found)
	}
	sums := map[uuid.UUID]amount{}
	for project, share := range shares {
		if owner, known := p.known[project]; known {
			sum := sums[owner]
			sum.add(share)
			sums[owner] = sum
		}
	}
	return sums, nil
}

// countOthers counts the events after a position that belong to no refused organization, up to a
// limit. If the backlog does not reach back that far, it counts all events in the log.
func (p *backpressure) countOthers(
	ctx context.Context, after eventstore.Position, limit int, refused map[uuid.UUID]amount,
) (int, error) {
	if len(refused) == 0 {
		return p.countAfter(ctx, after, limit)
	}
	all, shares, ok := p.backlog.after(after)
	if !ok {
		return p.countAfter(ctx, after, limit)
	}
	for project, share := range shares {
		if _, is := refused[p.known[project]]; is {
			all.events -= share.events
		}
	}
	return min(all.events, limit), nil
}

// countEventsAfter counts the events of a log after a position, up to a limit.
func countEventsAfter(store eventstore.Store) func(context.Context, eventstore.Position, int) (int, error) {
	return func(ctx context.Context, after eventstore.Position, limit int) (int, error) {
		n := 0
		for n < limit {
			events, err := store.ReadAll(ctx, after, limit-n)
			if err != nil || len(events) == 0 {
				return n, err
			}
			n, after = n+len(events), events[len(events)-1].Position
		}
		return n, nil
	}
}
