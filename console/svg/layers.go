package svg

import (
	"cmp"
	"math"
	"slices"
)

// arrow is an edge by the numbers of its ends. back is true if it closes a cycle: then it is laid out from its end to
// its start.
type arrow struct {
	from, to int
	class    string
	back     bool
}

// ends are the ends of an arrow, the one of the lower rank first.
func (a arrow) ends() (low, high int) {
	if a.back {
		return a.to, a.from
	}
	return a.from, a.to
}

// rankNodes returns the rank of each node, the longest path to it, and marks the arrows that close a cycle.
func rankNodes(n int, arrows []arrow) []int {
	inputs, ranks, open := make([][]int, n), slices.Repeat([]int{-1}, n), make([]bool, n)
	for i, a := range arrows {
		inputs[a.to] = append(inputs[a.to], i)
	}
	var visit func(v int) int
	visit = func(v int) int {
		if ranks[v] >= 0 {
			return ranks[v]
		}
		rank := 0
		open[v] = true
		for _, i := range inputs[v] {
			if arrows[i].back = open[arrows[i].from]; !arrows[i].back {
				rank = max(rank, visit(arrows[i].from)+1)
			}
		}
		ranks[v], open[v] = rank, false
		return rank
	}
	for v := range n {
		visit(v)
	}
	return ranks
}

// vertex is a box, or a lane through which long edges pass a rank. y is of its middle.
type vertex struct {
	rank          int
	isLane        bool
	height, y     float64
	before, after []int // what it is joined with in the rank before and in the one after
}

// route is the edges of one class that leave a box, or that lead back to it. They share their lanes.
type route struct {
	class string
	back  bool
	lanes []int    // one a rank, from the rank after the box
	pairs [][2]int // vertices of ranks that follow each other
}

// layout is boxes and lanes in ranks, each rank from top to bottom.
type layout struct {
	vertices []vertex // the boxes first
	ranks    [][]int
	routes   []*route
	// omitted is how many edges have no route since that would take too many lanes.
	omitted int
}

// layOut puts boxes of some ranks and heights in order and in place, with routes for the edges between them.
func layOut(ranks []int, heights []float64, arrows []arrow) *layout {
	l := &layout{}
	for box, rank := range ranks {
		l.add(vertex{rank: rank, height: heights[box]})
	}
	type start struct {
		box   int
		class string
		back  bool
	}
	routes := map[start]*route{}
	for _, a := range arrows {
		low, high := a.ends()
		r := routes[start{low, a.class, a.back}]
		if r == nil {
			r = &route{class: a.class, back: a.back}
			routes[start{low, a.class, a.back}], l.routes = r, append(l.routes, r)
		}
		between, last := ranks[high]-ranks[low]-1, low
		if len(l.vertices)-len(ranks)+between-len(r.lanes) > maxLanes {
			l.omitted++
			continue
		}
		for i := range between {
			if i == len(r.lanes) {
				r.lanes = append(r.lanes, l.add(vertex{rank: ranks[low] + 1 + i, isLane: true}))
				l.join(r, last, r.lanes[i])
			}
			last = r.lanes[i]
		}
		l.join(r, last, high)
	}
	l.place()
	return l
}

// add adds a vertex at the end of its rank and returns its number.
func (l *layout) add(v vertex) int {
	for len(l.ranks) <= v.rank {
		l.ranks = append(l.ranks, nil)
	}
	l.vertices = append(l.vertices, v)
	l.ranks[v.rank] = append(l.ranks[v.rank], len(l.vertices)-1)
	return len(l.vertices) - 1
}

func (l *layout) join(r *route, from, to int) {
	r.pairs = append(r.pairs, [2]int{from, to})
	l.vertices[from].after = append(l.vertices[from].after, to)
	l.vertices[to].before = append(l.vertices[to].before, from)
}

// place puts vertices near what they are joined with: it visits the ranks forwards and backwards in turn, sorts each by
// the mean place of what joins it to the rank visited before, so that few edges cross, and spreads it. Two more rounds
// keep the order and straighten the edges.
func (l *layout) place() {
	y, wanted := make([]float64, len(l.vertices)), make([]float64, len(l.vertices))
	for _, rank := range l.ranks {
		l.spread(rank, wanted, y)
	}
	for n := range sweeps + 2 {
		for i := range l.ranks {
			rank := l.ranks[i]
			if n%2 == 1 {
				rank = l.ranks[len(l.ranks)-1-i]
			}
			for _, v := range rank {
				near := l.vertices[v].before
				if n%2 == 1 {
					near = l.vertices[v].after
				}
				sum := 0.0
				for _, w := range near {
					sum += y[w]
				}
				if wanted[v] = y[v]; len(near) > 0 {
					wanted[v] = sum / float64(len(near))
				}
			}
			if n < sweeps {
				slices.SortStableFunc(rank, func(v, w int) int { return cmp.Compare(wanted[v], wanted[w]) })
			}
			l.spread(rank, wanted, y)
		}
	}
	least := 0.0
	for v := range y {
		least = min(least, y[v]-l.vertices[v].height/2)
	}
	for v := range y {
		l.vertices[v].y = math.Round(y[v] - least + margin)
	}
}

// spread gives the vertices of a rank places with the least squared distances from those that they want. Vertices that
// want to be too near to each other form a block, which lies at the mean of what they want.
func (l *layout) spread(rank []int, wanted, y []float64) {
	type block struct {
		sum, weight float64
		first       int
	}
	offsets, blocks := make([]float64, len(rank)), []block{}
	for i, v := range rank {
		if i > 0 {
			offsets[i] = offsets[i-1] + (l.vertices[rank[i-1]].height+l.vertices[v].height)/2 + boxGap
		}
		weight := 1.0
		if l.vertices[v].isLane {
			weight = laneWeight
		}
		b := block{(wanted[v] - offsets[i]) * weight, weight, i}
		for n := len(blocks) - 1; n >= 0 && blocks[n].sum/blocks[n].weight >= b.sum/b.weight; n-- {
			b = block{b.sum + blocks[n].sum, b.weight + blocks[n].weight, blocks[n].first}
			blocks = blocks[:n]
		}
		blocks = append(blocks, b)
	}
	for n, b := range blocks {
		for i := b.first; i < len(rank) && (n+1 == len(blocks) || i < blocks[n+1].first); i++ {
			y[rank[i]] = b.sum/b.weight + offsets[i]
		}
	}
}
