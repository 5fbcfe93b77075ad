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
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
)

const (
	// A projection lags far if it has not reached the head of lagTime ago and has more than lagEvents
	// to apply. It has caught up once half as many are left.
	lagTime   = 30 * time.Second
	lagEvents = 1000
	// A project waits earlier than all: if projections have not reached the head of ownLagTime ago and this much
	// of what they have to apply is its own. It no longer does once half as much is left. If the projects of an
	// organization have more than this together, those with the most of it wait.
	ownLagTime   = 15 * time.Second
	ownLagEvents = 500
	ownLagBytes  = 32 << 20
	// maxOwners bounds the projects whose organizations are cached.
	maxOwners = 10000
)

// checkLag decides what waits or is refused because projections lag: projects wait by their own events,
// and all writes are refused if a projection lags by the events of the others.
func (p *backpressure) checkLag(ctx context.Context, before blocks, now *blocks) (holds []hold, err error) {
	head, err := p.head(ctx)
	if err != nil {
		return nil, err
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
	applied, delaying, err := p.checkIndexLag(ctx, head, slowest)
	if err != nil {
		return nil, err
	}
	ahead, err := p.checkOwn(ctx, slowest, longest, before.held(projectsBehind))
	if err != nil {
		return nil, err
	}
	limit, least := lagEvents, lagTime
	if before.has(behind) {
		limit, least = lagEvents/2, 0
	}
	for _, s := range health {
		if s.Position >= head || late[s.Name] < least {
			continue
		}
		n, err := p.countOthers(ctx, s.Position, limit+1, ahead)
		if err != nil {
			return nil, err
		}
		if n > limit {
			words := fmt.Sprintf("projection %s lags the log", s.Name)
			holds = []hold{{of: behind, words: words, more: words, until: "it has caught up"}}
			break
		}
	}
	now.slowest = applied
	own := holdProjects(projectsBehind, ahead, "the project sends faster than its events are processed",
		"sends faster than its events are processed", "send faster than their events are processed",
		admission.Live, admission.Bulk, admission.Settled)
	return slices.Concat(holds, own, delaying), nil
}

// checkOwn returns the projects whose own events make up too much of what the slowest projection has
// to apply.
func (p *backpressure) checkOwn(
	ctx context.Context, slowest eventstore.Position, late time.Duration, before map[uuid.UUID]bool,
) (over map[uuid.UUID]bool, err error) {
	over = map[uuid.UUID]bool{}
	if p.backlog == nil || late < ownLagTime && len(before) == 0 {
		return over, nil
	}
	_, shares, ok := p.backlog.after(slowest)
	if !ok {
		return over, nil
	}
	owners, err := p.ownersOf(ctx, shares)
	if err != nil {
		return nil, err
	}
	if late >= ownLagTime {
		over = overShare(shares, owners, amount{ownLagEvents, ownLagBytes})
	}
	for project := range before {
		if a := shares[project]; a.events > ownLagEvents/2 || a.bytes > ownLagBytes/2 {
			over[project] = true
		}
	}
	return over, nil
}

// overShare returns the projects that have too much: those that do not fit into the share of their organization, the
// ones with the least first.
func overShare(shares map[uuid.UUID]amount, owners map[uuid.UUID]uuid.UUID, share amount) map[uuid.UUID]bool {
	part := func(a amount) float64 {
		return max(float64(a.events)/float64(share.events), float64(a.bytes)/float64(share.bytes))
	}
	projects := slices.SortedFunc(maps.Keys(owners), func(a, b uuid.UUID) int {
		return cmp.Or(cmp.Compare(part(shares[a]), part(shares[b])), slices.Compare(a[:], b[:]))
	})
	over, taken := map[uuid.UUID]bool{}, map[uuid.UUID]float64{}
	for _, project := range projects {
		if taken[owners[project]] += part(shares[project]); taken[owners[project]] > 1 {
			over[project] = true
		}
	}
	return over
}

// ownersOf returns the organizations of projects. It leaves out projects whose organization is not known yet.
func (p *backpressure) ownersOf(ctx context.Context, shares map[uuid.UUID]amount) (map[uuid.UUID]uuid.UUID, error) {
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
	owners := map[uuid.UUID]uuid.UUID{}
	for project := range shares {
		if owner, known := p.known[project]; known {
			owners[project] = owner
		}
	}
	return owners, nil
}

// countOthers counts the events after a position that belong to no project that waits, up to a
// limit. If the backlog does not reach back that far, it counts all events in the log.
func (p *backpressure) countOthers(
	ctx context.Context, after eventstore.Position, limit int, waiting map[uuid.UUID]bool,
) (int, error) {
	if len(waiting) == 0 {
		return p.countAfter(ctx, after, limit)
	}
	all, shares, ok := p.backlog.after(after)
	if !ok {
		return p.countAfter(ctx, after, limit)
	}
	for project, share := range shares {
		if waiting[project] {
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
