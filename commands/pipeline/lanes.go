package pipeline

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

const (
	// bulkShare is the part of the items that batches get however many live items wait: one of bulkShare.
	bulkShare = 4
	// maxBulkLag is how old the oldest memories of batches may be that a projection has not applied, for
	// more of them to be derived. The memories of a live send are applied after all that were appended
	// before them, so this is about how long they wait for those of batches.
	maxBulkLag = 250 * time.Millisecond
	// stalledLag is the age from which a projection is being rebuilt or cannot be written. Live sends wait
	// for that in any case, so batches are derived as fast as possible.
	stalledLag = 10 * time.Second
	// stepTime is the time within which results count as one step of the pace, and maxSteps bounds the
	// steps.
	stepTime = 20 * time.Millisecond
	maxSteps = 1024
)

// pacedBy are the projections that end a send. Batches are not derived ahead of them.
var pacedBy = []string{projection.DataPoints, projection.Memories, projection.RecallIndex}

// pace bounds by how much the memories of batches precede the projections. The zero value is ready for
// use.
type pace struct {
	mu    sync.Mutex
	steps []paceStep // oldest first
	// backlogSince is since when every request for batch items is filled, zero if the last one was not.
	backlogSince time.Time
}

// paceStep is what was appended up to a position, with the time of the first append.
type paceStep struct {
	position eventstore.Position
	at       time.Time
}

// appended records that memories of batches end at a position, 0 for none.
func (p *pace) appended(position eventstore.Position, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.steps) - 1
	switch {
	case position == 0:
	case last >= 0 && (now.Sub(p.steps[last].at) < stepTime || len(p.steps) >= maxSteps):
		p.steps[last].position = max(p.steps[last].position, position)
	default:
		p.steps = append(p.steps, paceStep{position: position, at: now})
	}
}

// isOpen reports whether more may be derived, once the projections have applied a position.
func (p *pace) isOpen(applied eventstore.Position, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.steps) && p.steps[n].position <= applied {
		n++
	}
	p.steps = p.steps[n:]
	if len(p.steps) == 0 {
		p.steps = nil
		return true
	}
	lag := now.Sub(p.steps[0].at)
	return lag < maxBulkLag || lag >= stalledLag
}

// leased records whether a request for batch items was filled.
func (p *pace) leased(filled bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !filled:
		p.backlogSince = time.Time{}
	case p.backlogSince.IsZero():
		p.backlogSince = now
	}
}

// backlogAge returns for how long items of batches have waited for others.
func (p *pace) backlogAge(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.backlogSince.IsZero() {
		return 0
	}
	return now.Sub(p.backlogSince)
}

// isPaceOpen reports whether batches may be derived beyond their share. If the state of a projection
// cannot be read, which is logged, they may not.
func (w *Worker) isPaceOpen(ctx context.Context) (open bool) {
	err := panics.Call(ctx, w.Logger, "pace of batches panicked", func() error {
		applied := eventstore.Position(math.MaxInt64)
		for _, name := range pacedBy {
			position, err := w.Progress.Position(ctx, name)
			if err != nil {
				return err
			}
			applied = min(applied, position)
		}
		open = w.pace.isOpen(applied, w.Now())
		return nil
	})
	if err != nil && ctx.Err() == nil {
		w.Logger.WarnContext(ctx, "positions of projections not read, batches wait, will retry", "err", err)
	}
	return open
}

// leaseRound leases at most leaseSize items, the live ones first in the list. Batches get their share of
// them, and beyond it what the live lane leaves, as far as the pace allows.
func (w *Worker) leaseRound(ctx context.Context) []work.Item {
	items := w.lease(ctx, work.LaneLive, leaseSize-leaseSize/bulkShare)
	limit := leaseSize - len(items)
	if !w.isPaceOpen(ctx) {
		limit = (len(items) + bulkShare - 2) / (bulkShare - 1)
	}
	if limit == 0 {
		return items
	}
	bulk := w.lease(ctx, work.LaneBulk, limit)
	w.pace.leased(len(bulk) == limit, w.Now())
	if len(bulk) < limit && len(items) == leaseSize-leaseSize/bulkShare {
		items = append(items, w.lease(ctx, work.LaneLive, limit-len(bulk))...)
	}
	return append(items, bulk...)
}

// leaseOne leases one item of any lane. Every fourth request, counted by turn, begins with batches.
func (w *Worker) leaseOne(ctx context.Context, turn int) []work.Item {
	if turn%bulkShare == 0 {
		if items := w.lease(ctx, work.LaneBulk, 1); len(items) > 0 {
			return items
		}
	}
	items := w.lease(ctx, work.LaneLive, 1)
	if len(items) == 0 && turn%bulkShare != 0 && w.isPaceOpen(ctx) {
		items = w.lease(ctx, work.LaneBulk, 1)
	}
	return items
}
