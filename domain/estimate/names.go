package estimate

import (
	"hash/maphash"
	"strconv"
)

// names counts the names of the elements of a file, by a hash.
type names struct {
	seed   maphash.Seed
	counts map[uint64]uint32
}

func newNames() names { return names{maphash.MakeSeed(), map[uint64]uint32{}} }

// unique returns the name of an element: its own id, else the digest of its content. From the second
// element of a name on, a number follows, and one that no element has. Each number is tried once for a
// name, so that equal names take linear time.
func (n names) unique(id, content string) string {
	if id == "" {
		id = digest(content)
	}
	id = fitID(id)
	name, at := id, maphash.String(n.seed, id)
	for own := at; n.counts[own] > 0; own = maphash.String(n.seed, name) {
		n.counts[at]++
		name = id + "~" + strconv.FormatUint(uint64(n.counts[at]), 10)
	}
	n.counts[maphash.String(n.seed, name)]++
	return name
}
