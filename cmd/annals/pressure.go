package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/todo"
	"github.com/annals-project/annals/projections"
)

// The limits at which writes are refused, and at which they are taken again.
const (
	// A projection is far behind once it has not come in farBehindFor to where the log ended then, and has more than
	// farBehindEvents to apply. It has caught up once half as many are left.
	farBehindFor    = 30 * time.Second
	farBehindEvents = 1000
	// A disk that was full takes writes again once a quarter more than the limit is free.
	againPercent = 125
	// What is deleted frees space, so deletions are taken until an eighth of the limit is left.
	deletionsPercent = 100 / 8
	pressureEvery    = time.Second
)

// pressure refuses writes while the projections are far behind or the disk of the data folder is nearly full. Reads go on. It
// looks at both once a second; a request only reads what was found.
type pressure struct {
	// minFree is how many bytes of the disk must be free; 0 looks at no disk.
	minFree uint64
	free    func() (bytes uint64, err error)
	// stopped says why the log takes no more writes until a new start, nil while it does.
	stopped func() error
	head    func(ctx context.Context) (eventstore.Position, error)
	// behind counts the events behind a position, up to a limit.
	behind  func(ctx context.Context, after eventstore.Position, limit int) (int, error)
	health  func(ctx context.Context) []projections.Status
	now     func() time.Time
	log     *slog.Logger
	marks   map[string]mark
	blocked atomic.Pointer[refusals]
}

// mark is where the log ended at a time, and a projection was not yet.
type mark struct {
	head eventstore.Position
	at   time.Time
}

// refusals are why what is refused; empty where it is not.
type refusals struct{ behind, full, nearlyFull string }

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
	now := refusals{behind: p.lookBehind(ctx, before)}
	now.nearlyFull, now.full = p.lookDisk(before)
	if now != before {
		p.log.WarnContext(ctx, "what is refused changed", "behind", now.behind, "disk", now.nearlyFull)
	}
	p.blocked.Store(&now)
}

func (p *pressure) found() refusals {
	if r := p.blocked.Load(); r != nil {
		return *r
	}
	return refusals{}
}

// lookBehind names a projection that is far behind, "" for none. What cannot be found out stays as it was.
func (p *pressure) lookBehind(ctx context.Context, before refusals) string {
	head, err := p.head(ctx)
	if err != nil {
		return before.behind
	}
	if p.marks == nil {
		p.marks = map[string]mark{}
	}
	limit, least := farBehindEvents, farBehindFor
	if before.behind != "" {
		limit, least = farBehindEvents/2, 0
	}
	for _, s := range p.health(ctx) {
		m, marked := p.marks[s.Name]
		if !marked || s.Position >= m.head {
			m = mark{head: head, at: p.now()}
			p.marks[s.Name] = m
		}
		if s.Position >= head || p.now().Sub(m.at) < least {
			continue
		}
		n, err := p.behind(ctx, s.Position, limit+1)
		if err != nil {
			return before.behind
		}
		if n > limit {
			return fmt.Sprintf("projection %s is far behind the log", s.Name)
		}
	}
	return ""
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
func (p *pressure) refuse(deletion bool) error {
	r := p.found()
	switch {
	case p.stopped() != nil:
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the event store can write no more until the service is started anew; reads go on")
	case r.behind != "":
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s: writes are refused until it has caught up, retry later; reads go on", r.behind)
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
		list = append(list, "the event store can write no more until the service is started anew: "+err.Error())
	}
	for _, reason := range []string{r.behind, r.nearlyFull} {
		if reason != "" {
			list = append(list, reason)
		}
	}
	return list
}

// roomyQueue gives nothing to derive while the disk is nearly full, or the log takes no more writes.
type roomyQueue struct {
	pipeline.Queue
	pressure *pressure
}

// Claim implements pipeline.Queue.
func (q roomyQueue) Claim(ctx context.Context, holder string, limit int, now, until time.Time) ([]todo.Item, error) {
	if q.pressure.stopped() != nil || q.pressure.found().nearlyFull != "" {
		return nil, nil
	}
	return q.Queue.Claim(ctx, holder, limit, now, until)
}

// Release implements pipeline.Queue.
func (q roomyQueue) Release(ctx context.Context, holder string, dataPoints []uuid.UUID) error {
	return q.Queue.Release(ctx, holder, dataPoints)
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
