package pipeline

import (
	"context"
	"time"

	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

// awaited are the projections whose moves let the worker look for items: of the queue, and of the pace of
// batches.
var awaited = []string{projection.DataPoints, projection.Memories, projection.RecallIndex}

// bulkShare is the part of the items that batches get however many live items wait: one of bulkShare.
const bulkShare = 4

// leaseRound leases at most leaseSize items, the live ones first in the list. Batches get their share of
// them, and beyond it what the live lane leaves if the pace allows it.
func (w *Worker) leaseRound(ctx context.Context) []work.Item {
	items := w.lease(ctx, work.LaneLive, leaseSize-leaseSize/bulkShare)
	if len(items) > 0 {
		w.Pace.Live()
	}
	limit := leaseSize - len(items)
	if !w.Pace.IsOpen(ctx) {
		limit = (len(items) + bulkShare - 2) / (bulkShare - 1)
	}
	if limit == 0 {
		return items
	}
	bulk := w.lease(ctx, work.LaneBulk, limit)
	w.noteBacklog(len(bulk) == limit)
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
	if len(items) > 0 {
		w.Pace.Live()
	}
	if len(items) == 0 && turn%bulkShare != 0 && w.Pace.IsOpen(ctx) {
		items = w.lease(ctx, work.LaneBulk, 1)
	}
	return items
}

// noteBacklog records whether a request for items of batches was filled.
func (w *Worker) noteBacklog(filled bool) {
	switch {
	case !filled:
		w.backlogSince.Store(0)
	case w.backlogSince.Load() == 0:
		w.backlogSince.Store(w.Now().UnixNano())
	}
}

// backlogAge returns for how long items of batches have waited for others.
func (w *Worker) backlogAge() time.Duration {
	since := w.backlogSince.Load()
	if since == 0 {
		return 0
	}
	return w.Now().Sub(time.Unix(0, since))
}
