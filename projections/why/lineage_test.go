package why_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/projections/why"
)

// revisionOf is a revision with memories: each string lists the inputs of one, "s" for the source and
// a digit for a memory before it.
func revisionOf(inputs ...string) *why.Revision {
	point := uuid.UUID{1}
	r := &why.Revision{
		ID: datapoint.NodeID(point, 1), DataPoint: point, Accepted: &datapoint.RevisionAccepted{}, Content: "Ana moved.\nTo Rome.",
		Whole: true, Derived: &memory.Derived{},
	}
	r.Accepted.Effect.Revision = 1
	for n, from := range inputs {
		m := memory.Memory{ID: memory.ID(point, 1, n), Kind: memory.Claim, Content: "line"}
		for _, c := range from {
			m.Inputs = append(m.Inputs, nodeOf(r, string(c)))
		}
		r.Memories = append(r.Memories, m)
	}
	return r
}

// nodeOf is the id of "s", the source, or of a memory by its digit.
func nodeOf(r *why.Revision, name string) uuid.UUID {
	if name == "s" {
		return r.ID
	}
	return memory.ID(r.DataPoint, 1, int(name[0]-'0'))
}

// namesOf are the nodes of a lineage as revisionOf names them.
func namesOf(r *why.Revision, nodes []why.Brief) string {
	names := ""
	for _, n := range nodes {
		for _, name := range []string{"s", "0", "1", "2", "3", "4"} {
			if n.ID == nodeOf(r, name) {
				names += name
			}
		}
	}
	return names
}

func TestGraph_Lineage(t *testing.T) {
	// 0 is read from the source, 1 from 0, 2 from both, 3 from the source; an unknown input is no node.
	shape := []string{"s", "s0", "s01", "s"}
	for _, c := range []struct {
		name   string
		root   string
		all    bool
		reveal []string
		limit  int
		nodes  string
		edges  int
		hidden int
	}{
		{name: "inputs of the root by default", root: "2", limit: 400, nodes: "2s01", edges: 6, hidden: 1},
		{name: "a source has no inputs", root: "s", limit: 400, nodes: "s", hidden: 4},
		{name: "everything", root: "1", all: true, limit: 400, nodes: "1s023", edges: 7},
		{name: "everything from the source", root: "s", all: true, limit: 400, nodes: "s0123", edges: 7},
		{name: "outputs", root: "0", reveal: []string{"0:outputs"}, limit: 400, nodes: "012", edges: 3, hidden: 1},
		{name: "both sides of two", root: "0", reveal: []string{"0:inputs", "s:outputs"}, limit: 400, nodes: "0s123", edges: 7},
		{name: "a side of a node that is not reached", root: "3", reveal: []string{"0:inputs"}, limit: 400, nodes: "3", hidden: 1},
		{name: "the limit", root: "s", all: true, limit: 3, nodes: "s01", edges: 3, hidden: 2},
		{name: "one node", root: "s", all: true, limit: 1, nodes: "s", hidden: 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := revisionOf(shape...)
			r.Memories[3].Inputs = append(r.Memories[3].Inputs, uuid.New())
			var reveal []why.Side
			for _, side := range c.reveal {
				reveal = append(reveal, why.Side{Node: nodeOf(r, side[:1]), Of: side[2:]})
			}
			l := why.NewGraph(r).Lineage(nodeOf(r, c.root), c.all, reveal, c.limit)
			if got := namesOf(r, l.Nodes); got != c.nodes || len(l.Edges) != c.edges || l.Hidden != c.hidden {
				t.Errorf("%s with %d edges, %d hidden; want %s, %d, %d", got, len(l.Edges), l.Hidden, c.nodes, c.edges, c.hidden)
			}
			around := map[int]bool{} // nothing hidden next to nodes only if none is hidden at all
			for _, s := range l.Sides {
				around[s.Inputs+s.Outputs] = true
			}
			if len(l.Sides) != len(l.Nodes) || (len(around) == 1 && around[0]) != (l.Hidden == 0) {
				t.Errorf("%d hidden, at the sides %+v", l.Hidden, l.Sides)
			}
			if l.Root.ID != nodeOf(r, c.root) || l.Nodes[0] != l.Root {
				t.Errorf("root %+v", l.Root)
			}
			if diff := cmp.Diff(l, why.NewGraph(r).Lineage(nodeOf(r, c.root), c.all, reveal, c.limit)); diff != "" {
				t.Errorf("the second walk differs: %s", diff)
			}
		})
	}
}

func TestGraph_LineageOfManyMemories(t *testing.T) {
	r := revisionOf()
	for n := range 2000 {
		r.Memories = append(r.Memories, memory.Memory{ID: memory.ID(r.DataPoint, 1, n), Inputs: []uuid.UUID{r.ID}})
	}
	l := why.NewGraph(r).Lineage(r.ID, true, nil, limit.TraceNodes)
	if l.Sides[0] != (why.HiddenSides{Outputs: 1601}) || l.Sides[1] != (why.HiddenSides{}) {
		t.Errorf("hidden at the sides: %+v", l.Sides[:2])
	}
	if len(l.Nodes) != 400 || len(l.Edges) != 399 || l.Hidden != 1601 {
		t.Errorf("%d nodes, %d edges, %d hidden", len(l.Nodes), len(l.Edges), l.Hidden)
	}
}

func TestRevision_Headline(t *testing.T) {
	label, blank := "Call notes", " \n "
	for _, c := range []struct {
		name, content string
		label         *string
		want          string
	}{
		{"first line", "\n  Ana   moved. \nTo Rome.", nil, "Ana moved."},
		{"label", "Ana moved.", &label, "Call notes"},
		{"blank label", "Ana moved.", &blank, "Ana moved."},
		{"nothing", " \n ", nil, ""},
	} {
		r := revisionOf()
		r.Content, r.Accepted.Effect.Label = c.content, c.label
		if got := r.Headline(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
