package server

import (
	"context"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
)

// An organization that delays others in the recall index is refused early: if the index has not
// reached the head of indexLagTime ago, events of other organizations wait there too, and more than
// indexLagEvents or ownLagBytes of what it has to apply are the organization's own.
const (
	indexLagTime   = 500 * time.Millisecond
	indexLagEvents = 1000
)

// workingIndex returns the state of the recall index. ok is false unless this process feeds it
// and its pages pass: a stopped index refuses no write.
func workingIndex(health func(context.Context) []runner.Status) func(context.Context) (s runner.Status, ok bool) {
	return func(ctx context.Context) (runner.Status, bool) {
		for _, s := range health(ctx) {
			if s.Name == recallindex.Name {
				return s, s.Active && s.Stop == nil && s.Repeat == nil && s.LastErr == nil
			}
		}
		return runner.Status{}, false
	}
}

// checkIndexLag returns the organizations that delay others in the recall index. It also drops from
// the backlog what all the projections that count have applied.
func (p *backpressure) checkIndexLag(
	ctx context.Context, head, slowest eventstore.Position,
) (map[uuid.UUID]amount, error) {
	none := map[uuid.UUID]amount{}
	if p.backlog == nil {
		return none, nil
	}
	index, working := runner.Status{}, false
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
	if p.now().Sub(m.at) < indexLagTime {
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
	maps.DeleteFunc(sums, func(_ uuid.UUID, a amount) bool {
		return a.events <= indexLagEvents && a.bytes <= ownLagBytes
	})
	return sums, nil
}
