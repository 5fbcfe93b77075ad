package why_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
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

// longText returns a text of many passages, with the key in three of them.
func longText() string {
	var b strings.Builder
	for n := range 2100 {
		_, _ = fmt.Fprintf(&b, "%d Pump reading normal, pressure 4 bar, no alarm.\n", n)
		if n%700 == 650 {
			_, _ = fmt.Fprintf(&b, "The spare key number %d is under the crate.\n", n)
		}
	}
	return b.String()
}

// passages recalls the passages of a text and checks that there are three.
func passages(t *testing.T, h *harness) []recall.Result {
	t.Helper()
	var found []recall.Result
	for _, r := range h.Recall(h.Ask("spare key under the crate")).Results {
		if r.Artifact.Kind == memory.Observation {
			found = append(found, r)
		}
	}
	if len(found) != 3 {
		t.Fatalf("%d passages", len(found))
	}
	return found
}

// Every passage that recall returns is a node: an observation, of which the source is the input.
func TestPassage_Resolves(t *testing.T) {
	for _, big := range []bool{false, true} {
		h := newHarness(t)
		h.Send(recalltest.DataPoint{ID: "long", Content: longText(), OccurredAt: h.Now.Add(-time.Hour), Big: big})
		derived := h.Derive("long", 1, h.Now, false, claimOf("Ana's editor is Vim."))
		h.CatchUp()
		source := h.source("long", 1)
		for _, r := range passages(t, h) {
			n := h.node(r.ID)
			if n.ID != r.ID || n.Kind != why.KindMemory || n.MemoryKind != memory.Observation || !n.Current ||
				n.SourceID != "long" || n.Revision != 1 || n.Inputs != 1 || n.Outputs != 0 || n.ReplacedBy != nil ||
				n.Replaced != nil || !n.OccurredAt.Equal(r.OccurredAt) || !n.CreatedAt.Equal(h.Now) || !n.ValidFrom.Equal(h.Now) ||
				n.ValidTo != nil || n.Headline != strings.SplitN(r.Content, "\n", 2)[0] || n.Content != "" {
				t.Errorf("blob %t: %+v of %.50q", big, n, r.Content)
			}
			l, err := h.service.Lineage(t.Context(), h.Project, r.ID, false, nil, 400)
			if err != nil || len(l.Nodes) != 2 || l.Root.ID != r.ID || l.Nodes[1].ID != source || l.Hidden != 1 {
				t.Errorf("lineage %+v, %v", l, err)
			}
			if diff := cmp.Diff([]why.Edge{{Input: source, Derived: r.ID}}, l.Edges); diff != "" {
				t.Error(diff)
			}
			h.recalls = []why.Recall{{Request: uuid.New(), ReceivedAt: h.Now, Identity: "ana", Node: r.ID, Rank: 1}}
			line, err := h.service.Timeline(t.Context(), h.Project, r.ID, nil, nil)
			if err != nil || line.Root.ID != r.ID || len(line.Nodes) != 1 || line.Nodes[0].ID != source ||
				line.Nodes[0].Section != "built-from" || len(line.Recalls) != 1 {
				t.Errorf("timeline %+v, %v", line, err)
			}
			roots, err := h.service.Roots(t.Context(), h.Project, why.RootsQuery{Search: r.ID.String(), First: 25})
			if err != nil || len(roots.Memories.Nodes) != 1 || len(roots.Sources.Nodes) != 0 {
				t.Fatalf("roots %+v, %v", roots, err)
			}
			if root := roots.Memories.Nodes[0]; root.Brief != n.Brief || root.SourceID != "long" || root.Revision != 1 ||
				!root.Current || !root.CreatedAt.Equal(n.CreatedAt) || root.Phase != n.Phase {
				t.Errorf("root %+v", root)
			}
			after := why.RootsQuery{Search: r.ID.String(), First: 25, AfterMemories: roots.Memories.End}
			if roots, err = h.service.Roots(t.Context(), h.Project, after); err != nil || len(roots.Memories.Nodes) != 0 {
				t.Errorf("the next page: %+v, %v", roots, err)
			}
		}
		// What is built from the source is stored; passages are not.
		if n := h.node(source); n.Outputs != 1 {
			t.Errorf("the source has %d outputs", n.Outputs)
		}
		l, err := h.service.Lineage(t.Context(), h.Project, passages(t, h)[0].ID, true, nil, 400)
		if err != nil || len(l.Nodes) != 3 || l.Nodes[2].ID != derived[0] {
			t.Errorf("all of the lineage: %+v, %v", l, err)
		}
	}
}

// An id that is not one of a passage of the project is not found, on any read.
func TestPassage_Unknown(t *testing.T) {
	h := newHarness(t)
	h.Send(recalltest.DataPoint{ID: "long", Content: longText()})
	h.Send(recalltest.DataPoint{ID: "short", Content: "The spare key is new."})
	h.CatchUp()
	source := h.source("long", 1)
	project := h.Project
	neighbour := auth.Project{ID: uuid.New(), Number: 2, Slug: "other", Namespace: project.Namespace}
	for _, c := range []struct {
		name    string
		project auth.Project
		id      uuid.UUID
	}{
		{"a number beyond the text", project, datapoint.PassageID(source, 100_000)},
		{"the largest number", project, datapoint.PassageID(source, 1<<32-1)},
		{"a revision that is not there", project, datapoint.PassageID(h.source("long", 2), 0)},
		{"a text of one passage", project, datapoint.PassageID(h.source("short", 1), 0)},
		{"of a neighbour", neighbour, datapoint.PassageID(source, 0)},
	} {
		_, err := h.service.Node(t.Context(), c.project, c.id)
		wantFault(t, err, fault.CodeNotFound)
		_, err = h.service.Lineage(t.Context(), c.project, c.id, true, nil, 400)
		wantFault(t, err, fault.CodeNotFound)
		_, err = h.service.Timeline(t.Context(), c.project, c.id, nil, nil)
		wantFault(t, err, fault.CodeNotFound)
		roots, err := h.service.Roots(t.Context(), c.project, why.RootsQuery{Search: c.id.String(), First: 25})
		if err != nil || len(roots.Memories.Nodes)+len(roots.Sources.Nodes) != 0 {
			t.Errorf("%s: roots %+v, %v", c.name, roots, err)
		}
	}
	if n := h.node(datapoint.PassageID(source, 0)); n.MemoryKind != memory.Observation {
		t.Errorf("the first passage: %+v", n)
	}
}

// A passage of a replaced revision remains a node, with what replaced it. A send lists a passage that it made.
func TestPassage_OlderRevision(t *testing.T) {
	h := newHarness(t)
	h.Send(recalltest.DataPoint{ID: "long", Content: longText()})
	h.CatchUp()
	id := passages(t, h)[0].ID
	first := h.node(id).Ingestion
	h.Now = h.Now.Add(time.Hour)
	h.Send(recalltest.DataPoint{ID: "long", Content: "The spare key is lost."})
	// The projection has applied nothing of this: the streams say it.
	if n := h.node(id); n.Current || n.ReplacedBy == nil || *n.ReplacedBy != h.source("long", 2) || n.ValidTo == nil ||
		!n.ValidTo.Equal(h.Now) || n.Revision != 1 || n.Headline == "" {
		t.Errorf("the replaced passage: %+v", n)
	}
	h.CatchUp("datapoints", "memories")
	for _, r := range h.Recall(h.Ask("spare key under the crate")).Results {
		if r.ID == id {
			t.Error("recall returns a passage of a replaced revision")
		}
	}
	for send, want := range map[uuid.UUID]int{first: 1, uuid.New(): 0} {
		q := why.RootsQuery{Search: id.String(), Ingestion: send, First: 25}
		roots, err := h.service.Roots(t.Context(), h.Project, q)
		if err != nil || len(roots.Memories.Nodes) != want {
			t.Errorf("roots of a send: %+v, %v", roots, err)
		}
	}
	h.Delete("long")
	if n := h.node(id); n.Deleted == nil || n.Kind != why.KindMemory || n.Headline != "" {
		t.Errorf("after the deletion: %+v", n)
	}
	h.CatchUp()
	roots, err := h.service.Roots(t.Context(), h.Project, why.RootsQuery{Search: id.String(), First: 25})
	if err != nil || len(roots.Memories.Nodes) != 0 {
		t.Errorf("roots after the deletion: %+v, %v", roots, err)
	}
}
