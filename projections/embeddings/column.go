package embeddings

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/internal/panics"
)

// entry is a data point of a column. It has count vectors from place first on.
type entry struct {
	id, audience uuid.UUID
	occurredAt   time.Time
	revision     int
	first, count int
}

// column holds the vectors of one project. A caller holds sync while it reads changes; mu guards
// the vectors.
type column struct {
	asked, size atomic.Int64

	sync               sync.Mutex
	position, removals int64

	mu      sync.RWMutex
	dims    int
	entries []entry
	places  map[uuid.UUID]int
	scales  []float32
	codes   []byte
	live    int
}

// tolerated is how many data points may be deleted before the column is read again.
func (col *column) tolerated() int64 { return int64(64 + len(col.entries)/16) }

// wasteful reports whether most of the vectors were replaced.
func (col *column) wasteful() bool { return len(col.scales) > 1024 && len(col.scales) > 2*col.live }

func (col *column) clear(removals int64) {
	col.mu.Lock()
	defer col.mu.Unlock()
	col.position, col.removals = 0, removals
	col.dims, col.entries, col.places, col.scales, col.codes, col.live = 0, nil, nil, nil, nil, 0
}

// put sets the vectors of a data point. Vectors with other dimensions than before replace all
// vectors of the column.
func (col *column) put(e entry, dims int, packed []byte) {
	col.mu.Lock()
	defer col.mu.Unlock()
	if dims > 0 && col.dims != dims {
		for i := range col.entries {
			col.entries[i].count = 0
		}
		col.dims, col.scales, col.codes, col.live = dims, nil, nil, 0
	}
	e.first = len(col.scales)
	if dims > 0 {
		unpack(packed, dims, func(scale float32, code []byte) {
			col.scales, col.codes = append(col.scales, scale), append(col.codes, code...)
		})
	}
	e.count = len(col.scales) - e.first
	col.live += e.count
	if i, known := col.places[e.id]; known {
		col.live -= col.entries[i].count
		col.entries[i] = e
	} else {
		if col.places == nil {
			col.places = make(map[uuid.UUID]int)
		}
		col.places[e.id] = len(col.entries)
		col.entries = append(col.entries, e)
	}
	col.size.Store(int64(cap(col.codes) + 4*cap(col.scales) + 128*len(col.entries)))
}

// checkEvery is the number of entries between two checks whether the context has ended.
const checkEvery = 512

// minShared is the number of entries from which several goroutines share the work.
const minShared = 4096

// nearest compares all vectors that the query may read. The result is incomplete if the context
// ended.
func (col *column) nearest(ctx context.Context, log *slog.Logger, q Query, scale float32, code []byte) ([]Hit, error) {
	col.mu.RLock()
	defer col.mu.RUnlock()
	if col.dims != len(code) || q.Size <= 0 {
		return nil, nil
	}
	workers := 1
	if len(col.entries) > minShared {
		workers = runtime.GOMAXPROCS(0)
	}
	found := make([][]Hit, workers)
	var group errgroup.Group
	for w := range workers {
		group.Go(func() error {
			return panics.Call(ctx, log, "comparing vectors panicked", func() error {
				from, to := len(col.entries)*w/workers, len(col.entries)*(w+1)/workers
				found[w] = col.compare(ctx, q, scale, code, col.entries[from:to])
				return nil
			})
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return best(slices.Concat(found...), q.Size), nil
}

func (col *column) compare(ctx context.Context, q Query, scale float32, code []byte, entries []entry) []Hit {
	var hits []Hit
	for i := range entries {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return nil
		}
		e := &entries[i]
		if e.count == 0 || !slices.Contains(q.Audiences, e.audience) ||
			q.From != nil && e.occurredAt.Before(*q.From) || q.To != nil && e.occurredAt.After(*q.To) {
			continue
		}
		most := float32(-2)
		for n := e.first; n < e.first+e.count; n++ {
			most = max(most, col.scales[n]*float32(dot(code, col.codes[n*col.dims:(n+1)*col.dims])))
		}
		hits = append(hits, Hit{DataPoint: e.id, Revision: e.revision, Similarity: float64(most * scale)})
		if len(hits) >= 8*q.Size { // keep memory bounded
			hits = best(hits, q.Size)
		}
	}
	return hits
}

// best returns the size best hits, best first.
func best(hits []Hit, size int) []Hit {
	slices.SortFunc(hits, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Similarity, a.Similarity), slices.Compare(a.DataPoint[:], b.DataPoint[:]))
	})
	return hits[:min(len(hits), size)]
}

// dot returns the dot product of two codes of equal length.
func dot(a, b []byte) int32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 int32
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += int32(int8(a[i])) * int32(int8(b[i]))
		s1 += int32(int8(a[i+1])) * int32(int8(b[i+1]))
		s2 += int32(int8(a[i+2])) * int32(int8(b[i+2]))
		s3 += int32(int8(a[i+3])) * int32(int8(b[i+3]))
	}
	for ; i < len(a); i++ {
		s0 += int32(int8(a[i])) * int32(int8(b[i]))
	}
	return s0 + s1 + s2 + s3
}
