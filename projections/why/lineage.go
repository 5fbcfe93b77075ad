package why

import (
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
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

// SidesOf reads the sides to reveal: the id of a node, a colon, inputs or outputs. Its fault is invalid-reveal.
func SidesOf(reveal []string) ([]Side, error) {
	var sides []Side
	for _, text := range reveal {
		node, of, _ := strings.Cut(text, ":")
		id, err := uuid.Parse(node)
		if err != nil || len(node) != 36 || of != Inputs && of != Outputs {
			return nil, fault.New(fault.Invalid, fault.CodeInvalidReveal, "reveal is %.80q: want <id>:%s or <id>:%s",
				text, Inputs, Outputs)
		}
		sides = append(sides, Side{Node: id, Of: of})
	}
	return sides, nil
}

// Edge records that Derived was built from Input.
type Edge struct{ Input, Derived uuid.UUID }

// Lineage is the nodes around a root. The root is the first of them. Hidden is how many nodes next to
// those are not among them.
type Lineage struct {
	Root  Brief
	Nodes []Brief
	Edges []Edge
	// Sides are, for each node, how many of its inputs and outputs are not shown.
	Sides []HiddenSides
	// Hidden is how many neighbours of the nodes are not shown.
	Hidden int
	// Deleted is set if the data point of the root was deleted; there are no nodes then.
	Deleted *Deleted
}

// HiddenSides counts what is next to a node and not shown.
type HiddenSides struct{ Inputs, Outputs int }

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
	l.Sides = make([]HiddenSides, len(order))
	hidden := map[int]struct{}{}
	for i, n := range order {
		l.Nodes[i] = g.brief(n)
		for _, input := range g.inputs[n] {
			if shown[input] {
				l.Edges = append(l.Edges, Edge{Input: g.nodes[input], Derived: g.nodes[n]})
			} else {
				hidden[input] = struct{}{}
				l.Sides[i].Inputs++
			}
		}
		for _, output := range g.outputs[n] {
			if !shown[output] {
				hidden[output] = struct{}{}
				l.Sides[i].Outputs++
			}
		}
	}
	l.Hidden = len(hidden)
	return l
}
