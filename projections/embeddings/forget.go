package embeddings

import (
	"cmp"
	"math"
	"slices"

	"github.com/google/uuid"
)

// forget forgets the data points that changed longest ago if the column is over its limit: an eighth more than
// needed, so that it is rare. The caller is the only one that changes the column.
func (col *column) forget() {
	if col.limit <= 0 || col.size.Load() <= col.limit {
		return
	}
	oldest := col.oldestWithin(col.limit / 8 * 7)
	vectors := 0
	for _, place := range col.order {
		if e := &col.entries[place]; e.position >= oldest {
			vectors += e.count
		}
	}
	words := (col.dims + signBits - 1) / signBits
	kept := column{
		scales: make([]float32, 0, vectors), codes: make([]byte, 0, vectors*col.dims),
		signs: make([]uint64, 0, vectors*words), places: make(map[uuid.UUID]int32),
	}
	for _, place := range col.order {
		e := col.entries[place]
		if e.position < oldest {
			continue
		}
		first, signs := e.first, e.signs
		if e.count > 0 {
			e.first, e.signs = len(kept.scales), len(kept.signs)
			kept.scales = append(kept.scales, col.scales[first:first+e.count]...)
			kept.codes = append(kept.codes, col.codes[first*col.dims:(first+e.count)*col.dims]...)
			kept.signs = append(kept.signs, col.signs[signs:signs+e.count*words]...)
		}
		at := int32(len(kept.entries))
		kept.entries, kept.places[e.id] = append(kept.entries, e), at
		kept.order, kept.ordered = append(kept.order, at), append(kept.ordered, at)
	}
	col.mu.Lock()
	defer col.mu.Unlock()
	col.entries, col.places, col.order, col.ordered = kept.entries, kept.places, kept.order, kept.ordered
	col.scales, col.codes, col.signs = kept.scales, kept.codes, kept.signs
	col.live, col.free, col.scattered = vectors, nil, 0
	col.join()
	col.account()
}

// oldestWithin returns the position from which on the data points and their vectors take at most some bytes.
func (col *column) oldestWithin(bytes int64) int64 {
	newest := slices.Clone(col.order)
	slices.SortFunc(newest, func(a, b int32) int {
		return cmp.Compare(col.entries[b].position, col.entries[a].position)
	})
	words := (col.dims + signBits - 1) / signBits
	oldest := int64(math.MaxInt64)
	for _, place := range newest {
		e := &col.entries[place]
		if bytes -= int64(entryBytes + e.count*(col.dims+4+8*words)); bytes < 0 {
			break
		}
		oldest = e.position
	}
	return oldest
}
