package estimate

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"math"
)

// fact is what a plan keeps of each data point: 48 bytes.
type fact struct {
	at  int64  // microseconds since 1970, math.MaxInt64 for none
	id  uint64 // a hash
	sum [16]byte
	// bytes is the size of the content, metadata that of the metadata, others that of all other texts with
	// which it is shown.
	bytes, metadata, others int32
	// number is what was added to its id because others have that id, 0 for nothing.
	number uint32
}

// weight is the size in a batch.
func (f *fact) weight() int64 { return int64(f.bytes) + int64(f.metadata) }

// size is that of all texts with which it is shown in full.
func (f *fact) size() int64 { return f.weight() + int64(f.others) }

// factOf returns the fact of a data point of a file at a path, without its id.
func factOf(p Point, path string) fact {
	f := fact{
		at: math.MaxInt64, bytes: int32(len(p.Content)), metadata: int32(len(p.Metadata)), //nolint:gosec // at most 17 MiB
		others: int32(len(p.ID) + len(p.Label) + len(p.Identity) + len(p.Audience) + len(path)), //nolint:gosec // a few KiB
	}
	if !p.At.IsZero() {
		f.at = p.At.UnixMicro()
	}
	return f
}

const (
	// factPage is how many facts are allocated at once: none is copied as their number grows.
	factPage = 1024
	// keptPoint is what a plan keeps of each data point: its fact, two places in the table of ids, and its
	// place in the order.
	keptPoint = 48 + 8 + 4
)

// facts are those of all data points of a plan, in the order in which they were added.
type facts struct {
	pages [][]fact
	count int
	seed  maphash.Seed
	// table finds the first fact of an id: a hash table of places, from 1, with open addressing. ids is how
	// many it holds.
	table []int32
	ids   int
}

func newFacts() facts { return facts{seed: maphash.MakeSeed()} }

func (f *facts) get(place int) *fact { return &f.pages[place/factPage][place%factPage] }

func (f *facts) hash(id string) uint64 { return maphash.String(f.seed, id) }

// first returns the place of the first fact with an id.
func (f *facts) first(id uint64) (place int, ok bool) {
	if len(f.table) == 0 {
		return 0, false
	}
	place = int(f.table[f.slot(id)]) - 1
	return place, place >= 0
}

// slot returns where in the table an id is, or would be.
func (f *facts) slot(id uint64) int {
	for at := int(id % uint64(len(f.table))); ; at = (at + 1) % len(f.table) { //nolint:gosec // less than the table
		if place := f.table[at]; place == 0 || f.get(int(place)-1).id == id {
			return at
		}
	}
}

// add appends a fact, and returns its place.
func (f *facts) add(x fact) int {
	place := f.count
	if place%factPage == 0 {
		f.pages = append(f.pages, make([]fact, factPage))
	}
	*f.get(place) = x
	f.count++
	if 2*(f.ids+1) > len(f.table) {
		f.grow()
	}
	if at := f.slot(x.id); f.table[at] == 0 {
		f.table[at] = int32(place) + 1 //nolint:gosec // at most limit.EstimatePoints
		f.ids++
	}
	return place
}

func (f *facts) grow() {
	old := f.table
	f.table = make([]int32, max(64, 2*len(old)))
	for place := range f.count - 1 {
		if id := f.get(place).id; f.table[f.slot(id)] == 0 {
			f.table[f.slot(id)] = int32(place) + 1 //nolint:gosec // at most limit.EstimatePoints
		}
	}
}

// truncate removes the facts from a place on, the last one first: what is looked for past the slot of a fact
// was added after it.
func (f *facts) truncate(from int) {
	for place := f.count - 1; place >= from; place-- {
		if at := f.slot(f.get(place).id); int(f.table[at]) == place+1 {
			f.table[at] = 0
			f.ids--
		}
	}
	f.count = from
	f.pages = f.pages[:(from+factPage-1)/factPage]
}

// sums computes the digests of data points.
type sums struct{ ids, labels, metadata prefixed }

// of returns the digest of everything that is sent of a data point, and of nothing else.
func (s *sums) of(p Point) (sum [16]byte) {
	h := sha256.New()
	var size [8]byte
	add := func(part string, long *prefixed) {
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		_, _ = h.Write(size[:]) // a hash takes everything
		if long != nil && len(part) > plainSum {
			_, _ = h.Write(long.sum(part, ""))
			return
		}
		writeText(h, part)
	}
	add(p.ID, &s.ids)
	add(p.Content, nil)
	add(p.Label, &s.labels)
	add(p.Identity, nil)
	add(p.Audience, nil)
	add(string(p.Metadata), &s.metadata)
	if !p.At.IsZero() {
		binary.BigEndian.PutUint64(size[:], uint64(p.At.UnixMicro())) //nolint:gosec // only compared
		_, _ = h.Write(size[:])
	}
	copy(sum[:], h.Sum(nil))
	return sum
}
