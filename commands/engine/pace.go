package engine

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/projection"
)

const (
	// busyAt is how many data points callers wait for when the write side counts as busy.
	busyAt = 12
	// cooldown is how long the write side stays busy after the last time. Appends that share an fsync
	// are answered at once, and their callers send the next ones a moment later.
	cooldown = 50 * time.Millisecond
)

// LoadGauge measures whether many callers wait for the write side, so that background work can slow
// down. The zero value is ready for use.
type LoadGauge struct {
	waiting  atomic.Int64
	mu       sync.Mutex
	lastBusy time.Time
}

// Enter adds data points whose callers wait, until leave is called.
func (f *LoadGauge) Enter(dataPoints int) (leave func()) {
	n := int64(dataPoints)
	f.record(f.waiting.Add(n))
	return func() { f.record(f.waiting.Add(-n) + n) }
}

func (f *LoadGauge) record(waiting int64) {
	if waiting < busyAt {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastBusy = time.Now()
}

// Busy reports whether the write side is busy, or was within the cooldown.
func (f *LoadGauge) Busy() bool {
	if f.waiting.Load() >= busyAt {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.lastBusy) < cooldown
}

const (
	// maxBatchLag is how old the oldest events of batches may be that a projection has not applied, for
	// more of them to be appended. A live send is applied after all that was appended before it, so this
	// is about how long it waits for batches. Far below two pages of the recall index, the index would
	// pause between pages.
	maxBatchLag = 300 * time.Millisecond
	// quietBatchLag takes its place while no live send came for liveQuiet: an import then begins at the
	// speed of the event store, and the next live send waits at most about that long.
	quietBatchLag = 5 * time.Second
	liveQuiet     = 10 * time.Second
	// aheadEvents is how many such events there may be whatever their age, so that a slow projection has
	// its next page while it applies one.
	aheadEvents = 512
	// stalledLag is the age from which a projection is being rebuilt or cannot be written. Live sends wait
	// for that in any case, so batches are not held up.
	stalledLag = 10 * time.Second
	// stepTime is the time within which appends count as one step, and maxSteps bounds the steps.
	stepTime = 20 * time.Millisecond
	maxSteps = 1024
	// paceTurns is how many parts of batches are appended at once, paceWaiters how many wait for that, and pacePoll
	// how often it looks.
	paceTurns   = 2
	paceWaiters = 4096
	pacePoll    = 10 * time.Millisecond
	// PaceWait is how long a batch is held up in all. The wait ends well before the finisher takes over.
	PaceWait = 8 * time.Second
)

// pacedBy are the projections that end a send. Batches do not run ahead of them.
var pacedBy = []string{projection.DataPoints, projection.Memories, projection.RecallIndex}

// Positions reads up to where projections have applied the log.
type Positions interface {
	Position(ctx context.Context, projection string) (eventstore.Position, error)
}

// BatchPace keeps the events of batches from running ahead of the projections that end a send, so that a
// live send does not wait for an import. It is safe for concurrent use. A nil BatchPace is always open.
type BatchPace struct {
	positions Positions
	logger    *slog.Logger
	now       func() time.Time
	// turns are given to one project after the other, so that an import does not hold up the batch of another.
	turns *allowance.Allowance
	// liveAt is when the last live send came, in nanoseconds of Unix time, 0 for none.
	liveAt atomic.Int64

	mu      sync.Mutex
	steps   []paceStep // oldest first
	pending int        // events of the steps
}

// paceStep is a number of events that were appended up to a position, with the time of the first append.
type paceStep struct {
	position eventstore.Position
	events   int
	at       time.Time
}

// NewBatchPace makes a BatchPace.
func NewBatchPace(positions Positions, logger *slog.Logger, now func() time.Time) *BatchPace {
	return &BatchPace{
		positions: positions, logger: logger, now: now,
		turns: allowance.New(allowance.Config{
			Total: paceTurns, Share: paceTurns, Wait: PaceWait, Waiters: paceWaiters, Refusal: "no turn came in time",
		}),
	}
}

// Live records a live send.
func (p *BatchPace) Live() {
	if p != nil {
		p.liveAt.Store(p.now().UnixNano())
	}
}

// maxLag returns how old the oldest event that is not applied may be.
func (p *BatchPace) maxLag(now time.Time) time.Duration {
	if at := p.liveAt.Load(); at == 0 || now.Sub(time.Unix(0, at)) >= liveQuiet {
		return quietBatchLag
	}
	return maxBatchLag
}

// Appended records events of batches that end at a position, 0 for none.
func (p *BatchPace) Appended(position eventstore.Position, events int) {
	if p == nil || position == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	p.pending += events
	if n := len(p.steps); n > 0 && (now.Sub(p.steps[n-1].at) < stepTime || n >= maxSteps) {
		last := &p.steps[n-1]
		last.position, last.events = max(last.position, position), last.events+events
		return
	}
	p.steps = append(p.steps, paceStep{position: position, events: events, at: now})
}

// IsOpen reports whether more may be appended. If the state of a projection cannot be read, which is
// logged, it may not.
func (p *BatchPace) IsOpen(ctx context.Context) (open bool) {
	if p == nil {
		return true
	}
	err := panics.Call(ctx, p.logger, "pace of batches panicked", func() error {
		applied := eventstore.Position(math.MaxInt64)
		for _, name := range pacedBy {
			position, err := p.positions.Position(ctx, name)
			if err != nil {
				return err
			}
			applied = min(applied, position)
		}
		open = p.isOpenAt(applied)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		p.logger.WarnContext(ctx, "positions of projections not read, batches wait, will retry", "err", err)
	}
	return open
}

func (p *BatchPace) isOpenAt(applied eventstore.Position) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.steps) && p.steps[n].position <= applied {
		p.pending -= p.steps[n].events
		n++
	}
	if p.steps = p.steps[n:]; len(p.steps) == 0 {
		p.steps = nil
		return true
	}
	now := p.now()
	lag := now.Sub(p.steps[0].at)
	return p.pending < aheadEvents || lag < p.maxLag(now) || lag >= stalledLag
}

// Turn waits until the next part of a batch of a project may be appended, at most for what is left of its wait. The
// caller must call end with what it appended.
func (p *BatchPace) Turn(
	ctx context.Context, project uuid.UUID, left *time.Duration,
) (end func(position eventstore.Position, events int)) {
	if p == nil {
		return func(eventstore.Position, int) {}
	}
	began := time.Now()
	waitCtx, cancel := context.WithTimeout(ctx, *left)
	defer cancel()
	defer func() { *left = max(*left-time.Since(began), 0) }()
	turn := p.turns.Open(allowance.Owner{Organization: project, Project: project})
	if turn.Reserve(waitCtx, 1) != nil {
		return p.Appended
	}
	for !p.IsOpen(waitCtx) && waitCtx.Err() == nil {
		_ = backoff.Pause(waitCtx, pacePoll, nil)
	}
	return func(position eventstore.Position, events int) {
		p.Appended(position, events)
		turn.Release()
	}
}
