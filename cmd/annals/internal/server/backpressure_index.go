package server

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
)

// A project that delays others in the recall index waits early: if the index has not reached the head of
// indexLagTime ago, events of other projects wait there too, and more than indexLagEvents or ownLagBytes of what
// it has to apply are the project's own. Its batches wait, its live writes only if more than floodOfLive of them
// came in the last second: else they are not what the index has to apply.
const (
	indexLagTime   = 500 * time.Millisecond
	indexLagEvents = 1000
	floodOfLive    = 100
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

// checkIndexLag returns what all projections that count have applied, the index while it works, and the holds of the
// projects that delay others in it. It also drops what they have applied from the backlog.
func (p *backpressure) checkIndexLag(
	ctx context.Context, head, slowest eventstore.Position,
) (applied eventstore.Position, holds []hold, err error) {
	if p.backlog == nil {
		return slowest, nil, nil
	}
	index, working := runner.Status{}, false
	if p.index != nil {
		index, working = p.index(ctx)
	}
	if !working {
		p.backlog.applied(slowest)
		return slowest, nil, nil
	}
	applied = min(slowest, index.Position)
	p.backlog.applied(applied)
	m, marked := p.marks[recallindex.Name]
	if !marked || index.Position >= m.head {
		p.marks[recallindex.Name] = mark{head: head, at: p.now()}
		return applied, nil, nil
	}
	if p.now().Sub(m.at) < indexLagTime {
		return applied, nil, nil
	}
	_, shares, ok := p.backlog.after(index.Position)
	if !ok || len(shares) < 2 {
		return applied, nil, nil
	}
	owners, err := p.ownersOf(ctx, shares)
	if err != nil {
		return applied, nil, err
	}
	delaying, floods := overShare(shares, owners, amount{indexLagEvents, ownLagBytes}), map[uuid.UUID]bool{}
	for project := range delaying {
		if p.room.Live(project) > floodOfLive {
			floods[project] = true
		}
	}
	const words = "the project delays others in the recall index"
	return applied, append(holdProjects(projectDelays, delaying, words, "", "", admission.Bulk),
		holdProjects(projectDelays, floods, words, "", "", admission.Live)...), nil
}
