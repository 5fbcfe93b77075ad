package svg

import (
	"html/template"
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
