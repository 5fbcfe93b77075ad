package estimate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
)

// Batch is a part of an import that is sent in one call.
type Batch struct {
	// From and To are the first and the last time of its data points, the zero time for none.
	From, To     time.Time
	Points       int
	Bytes        int64
	CreditTenths int64
	// IdempotencyKey depends on everything that is sent, and on nothing else.
	IdempotencyKey string
}

// Room is what a project may still ingest. A nil field does not bind.
type Room struct {
	CreditTenths *int64
	Points       *int64
}

// Estimate is what a plan costs.
type Estimate struct {
	Files        []FileTotal
	Points       int
	Bytes        int64
	CreditTenths int64
	// Shown is how many data points are shown, the first in the order of the plan.
	Shown int
	// FitsFirst is how many data points in the order of the plan fit the room.
	FitsFirst int

	plan *Plan
	// order holds the places of the data points in the order of the plan.
	order []int32
}

// Fits reports whether all of it fits.
func (e *Estimate) Fits() bool { return e.FitsFirst == e.Points }

// Estimate orders the data points and compares them with the room. The error is that of the context.
func (p *Plan) Estimate(ctx context.Context, room Room) (*Estimate, error) {
	w := watch{ctx: ctx, ended: ctx.Err()}
	e := &Estimate{Files: p.files, Points: p.facts.count, Shown: p.facts.count, plan: p, order: p.sorted(&w)}
	if p.Rows >= 0 {
		e.Shown = min(p.Rows, e.Points)
	}
	fits := true
	for i, place := range e.order {
		if w.over(keptPoint) {
			break
		}
		f := p.facts.get(int(place))
		e.Bytes += int64(f.bytes)
		e.CreditTenths += metering.IngestTenths(int64(f.bytes))
		fits = fits && (room.CreditTenths == nil || e.CreditTenths <= *room.CreditTenths) &&
			(room.Points == nil || int64(i) < *room.Points)
		if fits {
			e.FitsFirst++
		}
	}
	if w.ended != nil {
		return nil, w.ended
	}
	return e, nil
}

// sorted returns the places of the data points by time, then as they were added. Those without a time come
// last: a send gives them the time at which it is accepted.
func (p *Plan) sorted(w *watch) []int32 {
	places := make([]int32, p.facts.count)
	for i := range places {
		places[i] = int32(i) //nolint:gosec // at most limit.EstimatePoints
	}
	slices.SortFunc(places, func(a, b int32) int {
		if w.over(1) {
			return 0
		}
		return cmp.Or(cmp.Compare(p.facts.get(int(a)).at, p.facts.get(int(b)).at), cmp.Compare(a, b))
	})
	return places
}

// Batches cuts the data points into batches, in the order of the plan.
func (e *Estimate) Batches() iter.Seq[Batch] {
	return func(yield func(Batch) bool) {
		b := batching{ids: map[uint64]bool{}}
		for _, place := range e.order {
			f := e.plan.facts.get(int(place))
			if !b.takes(f) && !yield(b.close()) {
				return
			}
			b.add(f)
		}
		if b.batch.Points > 0 {
			yield(b.close())
		}
	}
}

// batching is the batch that is being filled.
type batching struct {
	batch  Batch
	weight int64
	ids    map[uint64]bool
	sums   []byte
}

// takes reports whether a data point still belongs to the batch. One that exceeds the size of a batch is
// alone in its own.
func (b *batching) takes(f *fact) bool {
	return b.batch.Points == 0 ||
		b.batch.Points < limit.EstimateBatch && b.weight+f.weight() <= limit.EstimateBatchBytes && !b.ids[f.id]
}

func (b *batching) add(f *fact) {
	b.batch.Points++
	b.batch.Bytes += int64(f.bytes)
	b.batch.CreditTenths += metering.IngestTenths(int64(f.bytes))
	b.weight += f.weight()
	b.ids[f.id] = true
	b.sums = append(b.sums, f.sum[:]...)
	if f.at != math.MaxInt64 {
		b.batch.To = time.UnixMicro(f.at).UTC()
		if b.batch.From.IsZero() {
			b.batch.From = b.batch.To
		}
	}
}

// close returns the batch, and begins the next.
func (b *batching) close() Batch {
	sum := sha256.Sum256(b.sums)
	done := b.batch
	done.IdempotencyKey = "estimate-" + hex.EncodeToString(sum[:])
	clear(b.ids)
	b.batch, b.weight, b.sums = Batch{}, 0, b.sums[:0]
	return done
}
