package svg

import (
	"cmp"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Link is a link within a node.
type Link struct{ Text, Href string }

// Node is a node of a lineage.
type Node struct {
	ID, Title, Subtitle string
	Href, Class         string
	// Inputs and Outputs show more of a side of the node. They are not drawn without a text.
	Inputs, Outputs Link
}

// Edge leads from an input to what was derived from it.
type Edge struct{ From, To, Class string }

// Lineage is a directed graph.
type Lineage struct {
	Label string
	// Nodes begin with the most important one: of a rank with too many, the last ones are listed only.
	Nodes []Node
	Edges []Edge
	// Folded names n nodes that are listed only.
	Folded func(n int) string
}

// Drawing is a lineage from left to right, which keeps many nodes of a rank readable in a narrow page, and the lists of
// the nodes that are not drawn.
type Drawing struct {
	SVG, Lists template.HTML
	// Omitted is how many nodes and edges are neither drawn nor listed.
	Omitted int
}

const (
	maxNodes  = 1_000
	maxEdges  = 10_000
	maxLanes  = 4_000
	maxOfRank = 24
	sweeps    = 4

	boxWidth   = 208.0
	boxHeight  = 52.0
	linkHeight = 22.0 // of a line with links
	boxGap     = 14.0
	rankGap    = 84.0
	laneWeight = 4.0 // lanes want to be straight more than boxes do
	margin     = 8.0
	textWidth  = boxWidth - 24
	bold       = 1.15 // how much wider a bold text is
)

// box is a node, or those of a rank that are listed.
type box struct {
	Node
	List                       string // the id of the list
	Folded                     []Node
	ShortTitle, ShortSubtitle  string
	X, Y, Width, Height, Right float64
}

// Draw draws the lineage. The same lineage is always drawn in the same way.
func (l Lineage) Draw() Drawing {
	d, nodes := Drawing{}, l.Nodes
	if len(nodes) > maxNodes {
		nodes, d.Omitted = nodes[:maxNodes], len(nodes)-maxNodes
	}
	arrows, omitted := l.arrows(nodes)
	ranks := rankNodes(len(nodes), arrows)
	boxes, boxRanks, boxOf := l.fold(nodes, ranks)
	for i := range arrows {
		arrows[i].from, arrows[i].to = boxOf[arrows[i].from], boxOf[arrows[i].to]
	}
	heights := make([]float64, len(boxes))
	for i, b := range boxes {
		if heights[i] = boxHeight; b.Inputs.Text != "" || b.Outputs.Text != "" {
			heights[i] += linkHeight
		}
	}
	placed := layOut(boxRanks, heights, distinct(arrows))
	d.SVG, d.Lists = l.draw(boxes, placed), render("folded", boxes)
	d.Omitted += omitted + placed.omitted
	return d
}

// arrows returns the edges between different nodes that are drawn, and how many more there are.
func (l Lineage) arrows(nodes []Node) (arrows []arrow, omitted int) {
	byID := make(map[string]int, len(nodes))
	for i, n := range nodes {
		byID[n.ID] = i
	}
	for i, e := range l.Edges {
		from, hasFrom := byID[e.From]
		to, hasTo := byID[e.To]
		if i >= maxEdges || !hasFrom || !hasTo {
			omitted++
		} else if from != to {
			arrows = append(arrows, arrow{from: from, to: to, class: e.Class})
		}
	}
	return distinct(arrows), omitted
}

// distinct returns each arrow once.
func distinct(arrows []arrow) []arrow {
	seen := make(map[arrow]bool, len(arrows))
	return slices.DeleteFunc(arrows, func(a arrow) bool {
		had := seen[a]
		seen[a] = true
		return had
	})
}

// fold returns the boxes of the nodes with their ranks, and the box of each node.
func (l Lineage) fold(nodes []Node, ranks []int) (boxes []box, boxRanks, boxOf []int) {
	count, drawn, rest := map[int]int{}, map[int]int{}, map[int]int{}
	for _, rank := range ranks {
		count[rank]++
	}
	for i, n := range nodes {
		rank := ranks[i]
		if drawn[rank]++; count[rank] <= maxOfRank || drawn[rank] < maxOfRank {
			boxes, boxRanks, boxOf = append(boxes, box{Node: n}), append(boxRanks, rank), append(boxOf, len(boxes))
			continue
		}
		if drawn[rank] == maxOfRank {
			rest[rank] = len(boxes)
			list := "lineage-" + strconv.Itoa(rank)
			boxes = append(boxes, box{List: list, Node: Node{Class: "folded", Href: "#" + list}})
			boxRanks = append(boxRanks, rank)
		}
		b := &boxes[rest[rank]]
		b.Folded = append(b.Folded, n)
		b.Title = l.Folded(len(b.Folded))
		boxOf = append(boxOf, rest[rank])
	}
	return boxes, boxRanks, boxOf
}

func (l Lineage) draw(boxes []box, placed *layout) template.HTML {
	type path struct{ Class, D string }
	d := struct {
		Label         string
		Width, Height float64
		Paths         []path
		Boxes         []box
	}{Label: l.Label, Width: left(len(placed.ranks)) - rankGap + margin}
	for _, r := range placed.routes {
		if len(r.pairs) > 0 {
			d.Paths = append(d.Paths, path{r.class, placed.path(r)})
		}
	}
	for _, rank := range placed.ranks { // so that the keyboard visits them by rank, from top to bottom
		for _, n := range rank {
			v := placed.vertices[n]
			d.Height = max(d.Height, v.y+v.height/2+margin)
			if v.isLane {
				continue
			}
			b := boxes[n]
			b.X, b.Y, b.Width, b.Height = left(v.rank), v.y-v.height/2, boxWidth, v.height
			b.Right = b.X + b.Width
			b.ShortTitle, b.ShortSubtitle = cut(b.Title, textWidth, 13*bold), cut(b.Subtitle, textWidth, 11)
			d.Boxes = append(d.Boxes, b)
		}
	}
	return render("lineage", d)
}

// left is where the boxes of a rank begin.
func left(rank int) float64 { return margin + float64(rank)*(boxWidth+rankGap) }

// path returns the path of a route. It crosses a rank in its lane alone, and bends between ranks only.
func (l *layout) path(r *route) string {
	p := new(strings.Builder)
	write := func(letter string, numbers ...float64) {
		for _, n := range numbers {
			p.WriteString(letter + written(n))
			letter = " "
		}
	}
	head := func(x, y, back float64) {
		write("M", x+back, y-5)
		write("L", x, y, x+back, y+5)
	}
	for i, pair := range r.pairs {
		from, to := l.vertices[pair[0]], l.vertices[pair[1]]
		x1, x2 := left(from.rank)+boxWidth, left(to.rank)
		write("M", x1, from.y)
		write("C", (x1+x2)/2, from.y, (x1+x2)/2, to.y, x2, to.y)
		switch {
		case to.isLane:
			write("H", x2+boxWidth)
		case !r.back:
			head(x2, to.y, -5)
		}
		if r.back && i == 0 {
			head(x1, from.y, 5)
		}
	}
	return p.String()
}

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
