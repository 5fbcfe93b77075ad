package embeddings

import "github.com/google/uuid"

// A column is laid out again once a tidyShare of its entries, and at least tidyEntries, were put since the last time.
const (
	tidyShare   = 8
	tidyEntries = 1024
)

// tidy lays out the entries and the signs in their order: a search then reads memory from front to back, which is
// several times faster than in the order of their arrival. The caller is the only one that changes the column.
func (col *column) tidy() {
	if col.scattered < max(tidyEntries, len(col.order)/tidyShare) {
		return
	}
	words := (col.dims + signBits - 1) / signBits
	entries := make([]entry, len(col.order))
	signs := make([]uint64, 0, col.live*words)
	places := make(map[uuid.UUID]int32, len(col.order))
	order, ordered := make([]int32, len(col.order)), make([]int32, len(col.order))
	for i, place := range col.order {
		e := col.entries[place]
		if e.count > 0 {
			first := e.signs
			e.signs = len(signs)
			signs = append(signs, col.signs[first:first+e.count*words]...)
		}
		entries[i], places[e.id], order[i], ordered[i] = e, int32(i), int32(i), int32(i)
	}
	col.mu.Lock()
	defer col.mu.Unlock()
	col.entries, col.signs, col.places, col.order, col.ordered = entries, signs, places, order, ordered
	col.free, col.scattered = nil, 0
	col.account()
}
