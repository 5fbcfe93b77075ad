package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/todo"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/usage"
)

// The limits at which writes are refused, and at which they are taken again.
const (
	// A projection is far behind once it has not come in farBehindFor to where the log ended then, and has more than
	// farBehindEvents to apply. It has caught up once half as many are left.
	farBehindFor    = 30 * time.Second
	farBehindEvents = 1000
	// An organization is refused before all others are: once projections have not come in ownBehindFor to where the log ended
	// then, and this much of what they have to apply is its own. It is taken again once half as much is left.
	ownBehindFor    = 15 * time.Second
	ownBehindEvents = 500
	ownBehindBytes  = 32 << 20
	// mostOwners bounds the projects whose organizations are remembered.
	mostOwners = 10000
	// A disk that was full takes writes again once a quarter more than the limit is free.
	againPercent = 125
	// What is deleted frees space, so deletions are taken until an eighth of the limit is left.
	deletionsPercent = 100 / 8
	pressureEvery    = 250 * time.Millisecond
)

// writesNeed are the projections that a write rests on: the caller, what is stored, what is left of limits, and the directory.
// A write does without the others, such as the recall index.
var writesNeed = []string{access.Name, datapoints.Name, usage.Name, directory.Name}

// neededByWrites narrows the states of projections to those that writes need.
func neededByWrites(health func(context.Context) []projections.Status) func(context.Context) []projections.Status {
	return func(ctx context.Context) []projections.Status {
		return slices.DeleteFunc(health(ctx), func(s projections.Status) bool { return !slices.Contains(writesNeed, s.Name) })
	}
}

// pressure refuses writes while the projections are far behind or the disk of the data folder is nearly full. Reads go on. It
// looks at both four times a second; a request only reads what was found.
type pressure struct {
	// minFree is how many bytes of the disk must be free; 0 looks at no disk.
	minFree uint64
	free    func() (bytes uint64, err error)
	// stopped says why the log takes no more writes until a new start, nil while it does.
	stopped func() error
	head    func(ctx context.Context) (eventstore.Position, error)
	// behind counts the events behind a position, up to a limit.
	behind func(ctx context.Context, after eventstore.Position, limit int) (int, error)
	health func(ctx context.Context) []projections.Status
	// index is the recall index while it is at work; nil looks at none.
	index func(ctx context.Context) (s projections.Status, ok bool)
	now   func() time.Time
	log   *slog.Logger
	marks map[string]mark
	// backlog knows whose the newest events are, owners the organizations of projects. Both may be nil: then all are refused
	// together.
	backlog *backlog
	owners  func(ctx context.Context, projects []uuid.UUID) (map[uuid.UUID]uuid.UUID, error)
	known   map[uuid.UUID]uuid.UUID
	blocked atomic.Pointer[refusals]
	// waits is the queue of derivation, nil if this process does not derive. derives is true once
	// it derives with the built-in extractor; only items accepted after derivesFrom count.
	waits       waits
	model       bool
	derives     atomic.Bool
	derivesFrom atomic.Uint64
	// clock is the clock that acceptance times are compared with.
	clock func() time.Time
}

// mark is where the log ended at a time, and a projection was not yet.
type mark struct {
	head eventstore.Position
	at   time.Time
}

// refusals are why what is refused; empty where it is not.
type refusals struct {
	behind, full, nearlyFull string
	// own are the organizations that are refused for what they sent.
	own map[uuid.UUID]work
	// waited is what the queue of derivation holds up.
	waited waited
}

func (r refusals) same(o refusals) bool {
	return r.behind == o.behind && r.full == o.full && r.nearlyFull == o.nearlyFull &&
		maps.EqualFunc(r.own, o.own, func(work, work) bool { return true }) &&
		r.waited.late == o.waited.late && maps.Equal(r.waited.own, o.waited.own)
}

// run looks until the context ends.
func (p *pressure) run(ctx context.Context) error {
	for {
		p.look(ctx)
		if !sleep(ctx, pressureEvery) {
			return nil
		}
	}
}

func (p *pressure) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	before := p.found()
	now := p.lookBehind(ctx, before)
	now.nearlyFull, now.full = p.lookDisk(before)
	now.waited = p.lookWaiting(ctx, before.waited)
	if !now.same(before) {
		p.log.WarnContext(ctx, "what is refused changed", "behind", now.behind, "disk", now.nearlyFull,
			"organizations", slices.Collect(maps.Keys(now.own)),
			"waiting", now.waited.late, "organizations that wait", slices.Collect(maps.Keys(now.waited.own)))
	}
	p.blocked.Store(&now)
}

func (p *pressure) found() refusals {
	if r := p.blocked.Load(); r != nil {
		return *r
	}
	return refusals{}
}

// lookBehind finds what is refused since projections are far behind: organizations whose own events they have to apply, and all
// writes once a projection is too far behind by the events of the others. What cannot be found out stays as it was.
func (p *pressure) lookBehind(ctx context.Context, before refusals) refusals {
	unknown := refusals{behind: before.behind, own: before.own}
	head, err := p.head(ctx)
	if err != nil {
		return unknown
	}
	if p.marks == nil {
		p.marks = map[string]mark{}
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
	crowding, err := p.lookCrowding(ctx, head, slowest)
	if err != nil {
		return unknown
	}
	own, err := p.lookOwn(ctx, slowest, longest, before)
	if err != nil {
		return unknown
	}
	maps.Copy(own, crowding)
	now := refusals{own: own}
	limit, least := farBehindEvents, farBehindFor
	if before.behind != "" {
		limit, least = farBehindEvents/2, 0
	}
	for _, s := range health {
		if s.Position >= head || late[s.Name] < least {
			continue
		}
		n, err := p.othersBehind(ctx, s.Position, limit+1, own)
		if err != nil {
			return unknown
		}
		if n > limit {
			now.behind = fmt.Sprintf("projection %s is far behind the log", s.Name)
			break
		}
	}
	return now
}

// lookOwn finds the organizations whose own part of what the slowest projection has to apply is over the limit.
func (p *pressure) lookOwn(ctx context.Context, slowest eventstore.Position, late time.Duration, before refusals) (map[uuid.UUID]work, error) {
	none := map[uuid.UUID]work{}
	if p.backlog == nil {
		return none, nil
	}
	if late < ownBehindFor && len(before.own) == 0 {
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
	maps.DeleteFunc(sums, func(organization uuid.UUID, w work) bool {
		if _, was := before.own[organization]; was {
			return w.events <= ownBehindEvents/2 && w.bytes <= ownBehindBytes/2
		}
		return late < ownBehindFor || w.events <= ownBehindEvents && w.bytes <= ownBehindBytes
	})
	return sums, nil
}

// byOwner adds the shares of projects up by their organizations. One whose organization is not known yet is nobody's.
func (p *pressure) byOwner(ctx context.Context, shares map[uuid.UUID]work) (map[uuid.UUID]work, error) {
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
		if p.known == nil || len(p.known)+len(found) > mostOwners {
			p.known = map[uuid.UUID]uuid.UUID{}
		}
		maps.Copy(p.known, found)
	}
	sums := map[uuid.UUID]work{}
	for project, w := range shares {
		if owner, known := p.known[project]; known {
			sum := sums[owner]
			sum.add(w)
			sums[owner] = sum
		}
	}
	return sums, nil
}

// othersBehind counts the events after a position that belong to nobody who is refused, up to a limit. Where the account does not
// reach back that far, the log is counted, with those of all.
func (p *pressure) othersBehind(ctx context.Context, after eventstore.Position, limit int, refused map[uuid.UUID]work) (int, error) {
	if len(refused) == 0 {
		return p.behind(ctx, after, limit)
	}
	all, shares, ok := p.backlog.after(after)
	if !ok {
		return p.behind(ctx, after, limit)
	}
	for project, w := range shares {
		if _, is := refused[p.known[project]]; is {
			all.events -= w.events
		}
	}
	return min(all.events, limit), nil
}

func (p *pressure) lookDisk(before refusals) (nearlyFull, full string) {
	if p.minFree == 0 {
		return "", ""
	}
	free, err := p.free()
	if err != nil {
		return before.nearlyFull, before.full
	}
	limit, last := p.minFree, p.minFree*deletionsPercent/100
	if before.nearlyFull != "" {
		limit = limit * againPercent / 100
	}
	if before.full != "" {
		last = last * againPercent / 100
	}
	reason := "the disk of the data folder is nearly full"
	if free < limit {
		nearlyFull = reason
	}
	if free < last {
		full = reason
	}
	return nearlyFull, full
}

// refuse is the answer to a write at present, nil where it is taken.
func (p *pressure) refuse(by auth.Principal, deletion bool) error {
	r := p.found()
	_, own := r.own[by.OrganizationID]
	switch {
	case p.stopped() != nil:
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the event store cannot write until the service is restarted; reads go on")
	case r.behind != "":
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s: writes are refused until it has caught up, retry later; reads go on", r.behind)
	case own:
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the organization is far ahead of what is processed: its writes are refused until half of that is done, retry later; reads go on")
	case !deletion && r.waited.late != "":
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"%s: writes are refused until it has caught up, retry later; reads go on", r.waited.late)
	case !deletion && r.waited.own[by.OrganizationID]:
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the organization sends more than can be derived: its writes are refused until that has caught up, retry later; "+
				"reads go on")
	case r.full != "", r.nearlyFull != "" && !deletion:
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s: writes are refused until there is room, retry later; reads go on", r.nearlyFull)
	default:
		return nil
	}
}

// reasons are why writes are refused, for the operator.
func (p *pressure) reasons() (list []string) {
	r := p.found()
	if err := p.stopped(); err != nil {
		list = append(list, "the event store cannot write until the service is restarted: "+err.Error())
	}
	for _, reason := range []string{r.behind, r.waited.late, r.nearlyFull} {
		if reason != "" {
			list = append(list, reason)
		}
	}
	if n := len(r.own); n > 0 {
		list = append(list, fmt.Sprintf("%d organizations are far ahead of what is processed", n))
	}
	if n := len(r.waited.own); n > 0 {
		list = append(list, fmt.Sprintf("%d organizations send more than can be derived", n))
	}
	return list
}

// roomyQueue gives nothing to derive while the disk is nearly full, or the log takes no more writes.
type roomyQueue struct {
	pipeline.Queue
	pressure *pressure
}

// Claim implements pipeline.Queue.
func (q roomyQueue) Claim(ctx context.Context, c todo.Claim) ([]todo.Item, uuid.UUID, error) {
	if q.pressure.stopped() != nil || q.pressure.found().nearlyFull != "" {
		return nil, c.After, nil
	}
	return q.Queue.Claim(ctx, c)
}

// diskFree is how many bytes of the disk of a folder this process may still write.
func diskFree(folder string) func() (uint64, error) {
	return func() (uint64, error) {
		var s syscall.Statfs_t
		if err := syscall.Statfs(folder, &s); err != nil {
			return 0, fmt.Errorf("look at the disk of %s: %w", folder, err)
		}
		return s.Bavail * uint64(s.Bsize), nil //nolint:gosec // the size of a block is positive
	}
}

// eventsBehind counts the events of a log behind a position, up to a limit.
func eventsBehind(store eventstore.Store) func(context.Context, eventstore.Position, int) (int, error) {
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
