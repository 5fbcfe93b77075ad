package embeddings

import (
	"cmp"
	"slices"
)

// nearest is a chosen entry: its place in the order and its similarities.
type nearest struct {
	place       int
	own, window float32
}

// refine returns the best of the chosen entries that are not too unlike the text. It compares all of them exactly, and
// the neighbours only of the best: the others are ranked by the rough similarities of their neighbours, which it scales
// to exact ones. roughly is the distribution of rough similarities.
func (s *search) refine(chosen []int, roughly distribution) []Hit {
	stretch := float32(s.ofOwn.deviation / roughly.deviation)
	shift := float32(s.ofOwn.mean) - stretch*float32(roughly.mean)
	stretched := func(i int) float32 {
		if s.own[i] == unknown {
			return unknown
		}
		return shift + stretch*s.own[i]
	}
	list := make([]nearest, 0, len(chosen))
	for _, i := range chosen {
		own := s.exactIfReadable(i)
		if s.unlike(own) {
			continue
		}
		before, after := unknown, unknown
		if s.col.continues(i) {
			before = stretched(i - 1)
		}
		if s.col.continues(i + 1) {
			after = stretched(i + 1)
		}
		list = append(list, nearest{i, own, mean(own, before, after)})
	}
	list = s.rank(list, refining*s.q.Size)
	for n, c := range list {
		list[n].own, list[n].window = s.exactAt(c.place)
	}
	list = s.rank(list, s.q.Size)
	hits := make([]Hit, len(list))
	for n, c := range list {
		hits[n] = s.hit(c.place, c.own, c.window)
	}
	return hits
}

// rank returns the size best of a list, best first.
func (s *search) rank(list []nearest, size int) []nearest {
	valueOf := s.values()
	slices.SortFunc(list, func(a, b nearest) int {
		return cmp.Compare(
			rankKey(valueOf(b.own, b.window), b.place), rankKey(valueOf(a.own, a.window), a.place),
		)
	})
	return list[:min(len(list), size)]
}
