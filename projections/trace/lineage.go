package trace

import (
	"github.com/google/uuid"
)

// The sides of a node that a lineage can reveal.
const (
	Inputs  = "inputs"
	Outputs = "outputs"
)

// Side is the inputs or the outputs of a node.
type Side struct {
	Node uuid.UUID
	Of   string
}

// Edge records that Derived was built from Input.
type Edge struct{ Input, Derived uuid.UUID }

// Lineage is the nodes around a root. The root is the first of them. Hidden is how many nodes next to
// those are not among them.
type Lineage struct {
	Root  Brief
	Nodes []Brief
	Edges []Edge
	// Hidden is how many neighbours of the nodes are not shown.
	Hidden int
	// Deleted is set if the data point of the root was deleted; there are no nodes then.
	Deleted *Deleted
}

// Lineage walks from a root over the revealed sides of the nodes that it reaches: all of them, or
// without any the inputs of the root. Breadth first, at most limit nodes; the order is always the
// same. Sides of nodes that it does not reach reveal nothing.
func (g *Graph) Lineage(root uuid.UUID, all bool, reveal []Side, limit int) Lineage {
	if !all && len(reveal) == 0 {
		reveal = []Side{{root, Inputs}}
	}
	revealed := make(map[Side]struct{}, len(reveal))
	for _, side := range reveal {
		revealed[side] = struct{}{}
	}
	shows := func(n int, side string) bool {
		_, ok := revealed[Side{g.nodes[n], side}]
		return all || ok
	}
	order, shown := []int{g.byID[root]}, make([]bool, len(g.nodes))
	shown[order[0]] = true
	visit := func(neighbours []int) {
		for _, n := range neighbours {
			if !shown[n] && len(order) < limit {
				shown[n], order = true, append(order, n)
			}
		}
	}
	for at := 0; at < len(order); at++ {
		if n := order[at]; shows(n, Inputs) {
			visit(g.inputs[n])
		}
		if n := order[at]; shows(n, Outputs) {
			visit(g.outputs[n])
		}
	}
	l := Lineage{Root: g.brief(order[0]), Nodes: make([]Brief, len(order)), Edges: []Edge{}}
	hidden := map[int]struct{}{}
	for i, n := range order {
		l.Nodes[i] = g.brief(n)
		for _, input := range g.inputs[n] {
			if shown[input] {
				l.Edges = append(l.Edges, Edge{Input: g.nodes[input], Derived: g.nodes[n]})
			} else {
				hidden[input] = struct{}{}
			}
		}
		for _, output := range g.outputs[n] {
			if !shown[output] {
				hidden[output] = struct{}{}
			}
		}
	}
	l.Hidden = len(hidden)
	return l
}
