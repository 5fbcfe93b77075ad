package estimate

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
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
	Batches      []Batch
	// Rows are the data points that are shown, in the order of the plan.
	Rows []Row
	// FitsFirst is how many data points in the order of the plan fit the room.
	FitsFirst int
}

// Fits reports whether all of it fits.
func (e Estimate) Fits() bool { return e.FitsFirst == e.Points }

// Estimate orders the data points, cuts them into batches and compares them with the room.
func (p *Plan) Estimate(room Room) Estimate {
	e := Estimate{Files: p.files, Points: len(p.facts), Rows: p.rows.inOrder(), Batches: []Batch{}}
	b := batching{ids: map[uint64]bool{}}
	fits := true
	for i, place := range p.sorted() {
		f := p.facts[place]
		tenths := metering.IngestTenths(int64(f.bytes))
		e.Bytes += int64(f.bytes)
		e.CreditTenths += tenths
		fits = fits && (room.CreditTenths == nil || e.CreditTenths <= *room.CreditTenths) &&
			(room.Points == nil || int64(i) < *room.Points)
		if fits {
			e.FitsFirst++
		}
		if !b.takes(f) {
			e.Batches = append(e.Batches, b.close())
		}
		b.add(f, tenths)
	}
	if b.batch.Points > 0 {
		e.Batches = append(e.Batches, b.close())
	}
	return e
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
func (b *batching) takes(f fact) bool {
	return b.batch.Points == 0 ||
		b.batch.Points < limit.EstimateBatch && b.weight+int64(f.weight) <= limit.EstimateBatchBytes && !b.ids[f.id]
}

func (b *batching) add(f fact, tenths int64) {
	b.batch.Points++
	b.batch.Bytes += int64(f.bytes)
	b.batch.CreditTenths += tenths
	b.weight += int64(f.weight)
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
