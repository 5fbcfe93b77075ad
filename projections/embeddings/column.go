package embeddings

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
)

// entry is a data point of a column. It has count vectors from first on, and their signs from the word signs on. It
// occurred at at, in microseconds.
type entry struct {
	id, audience        uuid.UUID
	at, position        int64
	revision            int
	spoken              bool
	first, count, signs int
}

// column holds the vectors of one project by one model. A caller holds sync while it reads changes; mu guards the
// vectors.
type column struct {
	asked, size atomic.Int64
	// limit is about the most memory that it may take, 0 for no limit.
	limit int64

	sync sync.Mutex
	// position and removed are the positions up to which changes and removals were read.
	position, removed int64

	mu      sync.RWMutex
	dims    int
	entries []entry
	// places are those of the entries by id; free are the places of removed ones.
	places map[uuid.UUID]int32
	free   []int32
	// order lists the places by audience, time and id, so that the neighbours of a data point in its conversation are
	// next to it.
	order []int32
	// ordered is the inverse of order: the index in order of each place.
	ordered []int32
	// joined holds for each of the order whether it continues the conversation of the one before.
	joined []bool
	scales []float32
	codes  []byte
	// signs holds one bit for each dimension of each vector.
	signs []uint64
	live  int
	// scattered counts the entries that were put since the entries and signs were laid out in order.
	scattered int
}

// wasteful reports whether most of the vectors were replaced.
func (col *column) wasteful() bool { return len(col.scales) > 1024 && len(col.scales) > 2*col.live }

func (col *column) clear() {
	col.mu.Lock()
	defer col.mu.Unlock()
	col.position, col.removed = 0, 0
	col.dims, col.entries, col.places, col.free, col.order, col.ordered, col.joined = 0, nil, nil, nil, nil, nil, nil
	col.scales, col.codes, col.signs, col.live, col.scattered = nil, nil, nil, 0, 0
}

// change is a row to put into a column.
type change struct {
	entry
	dims   int
	packed []byte
}

// removal is a deleted data point. What was accepted after its position stays.
type removal struct {
	id       uuid.UUID
	position int64
}

// apply puts and removes data points.
func (col *column) apply(changes []change, removals []removal) {
	if len(changes) == 0 && len(removals) == 0 {
		return
	}
	col.mu.Lock()
	defer col.mu.Unlock()
	moved := make(map[int32]struct{}, len(changes)+len(removals))
	var put []int32
	for _, r := range removals {
		place, known := col.places[r.id]
		if !known || col.entries[place].position > r.position {
			continue
		}
		moved[place] = struct{}{}
		col.live -= col.entries[place].count
		col.entries[place] = entry{}
		delete(col.places, r.id)
		col.free = append(col.free, place)
	}
	for _, c := range changes {
		place, isNew := col.put(c)
		if _, twice := moved[place]; !twice || isNew {
			put = append(put, place)
		}
		moved[place] = struct{}{}
	}
	col.arrange(moved, put)
	col.scattered += len(put)
	col.account()
}

// entryBytes is about what an entry takes besides its vectors.
const entryBytes = 160

// account sets about how much memory the column takes.
func (col *column) account() {
	col.size.Store(int64(cap(col.codes) + 4*cap(col.scales) + 8*cap(col.signs) + entryBytes*len(col.entries)))
}

// put sets the vectors of a data point. Vectors with other dimensions than before replace all vectors of the column.
func (col *column) put(c change) (place int32, isNew bool) {
	if c.dims > 0 && col.dims != c.dims {
		for i := range col.entries {
			col.entries[i].count = 0
		}
		col.dims, col.scales, col.codes, col.signs, col.live = c.dims, nil, nil, nil, 0
	}
	e := c.entry
	e.first, e.signs = len(col.scales), len(col.signs)
	if c.dims > 0 {
		unpack(c.packed, c.dims, func(scale float32, code []byte) {
			col.scales, col.codes = append(col.scales, scale), append(col.codes, code...)
			col.signs = appendSigns(col.signs, code)
		})
	}
	e.count = len(col.scales) - e.first
	col.live += e.count
	place, known := col.places[e.id]
	switch {
	case known:
		col.live -= col.entries[place].count
		col.entries[place] = e
		return place, false
	case len(col.free) > 0:
		place, col.free = col.free[len(col.free)-1], col.free[:len(col.free)-1]
		col.entries[place] = e
	default:
		place = int32(len(col.entries))
		col.entries = append(col.entries, e)
	}
	if col.places == nil {
		col.places = make(map[uuid.UUID]int32)
	}
	col.places[e.id] = place
	return place, true
}

// arrange brings the order up to date: places that were put or removed leave it, and those that were put are merged
// into it.
func (col *column) arrange(moved map[int32]struct{}, put []int32) {
	slices.SortFunc(put, col.compare)
	put = slices.Compact(put)
	order := make([]int32, 0, len(col.order)+len(put))
	for _, place := range col.order {
		if _, gone := moved[place]; gone {
			continue
		}
		for len(put) > 0 && col.compare(put[0], place) < 0 {
			order, put = append(order, put[0]), put[1:]
		}
		order = append(order, place)
	}
	col.order = append(order, put...)
	col.ordered = slices.Grow(col.ordered[:0], len(col.entries))[:len(col.entries)]
	for i, place := range col.order {
		col.ordered[place] = int32(i)
	}
	col.join()
}

// join finds out which of the order continue a conversation.
func (col *column) join() {
	col.joined = slices.Grow(col.joined[:0], len(col.order))[:len(col.order)]
	for i := range col.joined {
		col.joined[i] = i > 0 && adjoin(&col.entries[col.order[i-1]], &col.entries[col.order[i]]) &&
			!col.together(i-1) && !col.together(i)
	}
}

// together reports whether an entry next to the one at a place of the order is of the same audience and instant. The
// order of such entries is chance, so they have no neighbours: another project would have others.
func (col *column) together(i int) bool {
	same := func(j int) bool {
		if j < 0 || j >= len(col.order) {
			return false
		}
		a, b := &col.entries[col.order[i]], &col.entries[col.order[j]]
		return a.at == b.at && a.audience == b.audience
	}
	return same(i-1) || same(i+1)
}

// compare orders two places by audience, time and id.
func (col *column) compare(a, b int32) int {
	x, y := &col.entries[a], &col.entries[b]
	return cmp.Or(bytes.Compare(x.audience[:], y.audience[:]), cmp.Compare(x.at, y.at), bytes.Compare(x.id[:], y.id[:]))
}

// continues reports whether the entry at a place of the order continues the conversation of the one before.
func (col *column) continues(i int) bool { return i < len(col.joined) && col.joined[i] }

// adjoin reports whether two entries, next to each other in the order, are of one conversation and one audience.
func adjoin(earlier, later *entry) bool {
	return earlier.spoken && later.spoken && earlier.audience == later.audience &&
		recall.SameThread(time.UnixMicro(earlier.at), time.UnixMicro(later.at))
}

// signBits is how many dimensions a word of signs holds.
const signBits = 64

// appendSigns appends a bit for each dimension of a vector: whether it is negative.
func appendSigns(signs []uint64, code []byte) []uint64 {
	for len(code) > 0 {
		word := uint64(0)
		n := min(signBits, len(code))
		for i, c := range code[:n] {
			word |= uint64(c>>7) << i
		}
		signs, code = append(signs, word), code[n:]
	}
	return signs
}
