package main

import (
	"context"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/recallindex"
)

// An organization that others wait for is refused early: once the recall index has not come in crowdedFor to where the log ended
// then, events of other organizations wait there too, and more than crowdedEvents or ownBehindBytes of what it has to apply are
// the organization's own.
const (
	crowdedFor    = 500 * time.Millisecond
	crowdedEvents = 1000
)

// indexAtWork returns the state of the recall index. ok is false unless this process feeds it and its pages pass: an index that
// stopped refuses no write.
func indexAtWork(health func(context.Context) []projections.Status) func(context.Context) (s projections.Status, ok bool) {
	return func(ctx context.Context) (projections.Status, bool) {
		for _, s := range health(ctx) {
			if s.Name == recallindex.Name {
				return s, s.Active && s.Stop == nil && s.Repeat == nil && s.Trouble == nil
			}
		}
		return projections.Status{}, false
	}
}

// lookCrowding finds the organizations whose events the others' wait for in the recall index, and forgets what everything that
// counts has applied.
func (p *pressure) lookCrowding(ctx context.Context, head, slowest eventstore.Position) (map[uuid.UUID]work, error) {
	none := map[uuid.UUID]work{}
	if p.backlog == nil {
		return none, nil
	}
	index, working := projections.Status{}, false
	if p.index != nil {
		index, working = p.index(ctx)
	}
	if !working {
		p.backlog.applied(slowest)
		return none, nil
	}
	p.backlog.applied(min(slowest, index.Position))
	m, marked := p.marks[recallindex.Name]
	if !marked || index.Position >= m.head {
		p.marks[recallindex.Name] = mark{head: head, at: p.now()}
		return none, nil
	}
	if p.now().Sub(m.at) < crowdedFor {
		return none, nil
	}
	_, shares, ok := p.backlog.after(index.Position)
	if !ok {
		return none, nil
	}
	sums, err := p.byOwner(ctx, shares)
	if err != nil || len(sums) < 2 {
		return none, err
	}
	maps.DeleteFunc(sums, func(_ uuid.UUID, w work) bool { return w.events <= crowdedEvents && w.bytes <= ownBehindBytes })
	return sums, nil
}
