package trace

import (
	"cmp"
	"fmt"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/svg"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/projections/why"
)

func (d Deps) node(r *web.Request) error {
	nodeID, err := id(r, "node")
	if err != nil {
		return err
	}
	found, err := d.Trace.Node(r.Context(), r.Project.Project, nodeID)
	if err != nil {
		return err
	}
	return r.Render("node.html", found)
}

// lineageView is the data of a lineage.
type lineageView struct {
	why.Lineage
	Listed  []lineageNode
	Drawing svg.Drawing `json:"-"`
}

// lineageNode is a node with the references that show more of its sides, "" if nothing is hidden there.
type lineageNode struct {
	why.Brief
	Inputs, Outputs svg.Link
}

// maxReveal is how many sides the URL of a lineage reveals one by one. The next one reveals all.
const maxReveal = 16

func (d Deps) lineage(r *web.Request) error {
	root, err := id(r, "node")
	if err != nil {
		return err
	}
	all, texts := r.URL.Query().Get("revealAll") == "true", r.URL.Query()["reveal"]
	if len(texts) == 0 {
		texts = []string{root.String() + ":" + why.Inputs, root.String() + ":" + why.Outputs}
	}
	reveal, err := why.SidesOf(texts)
	if err != nil {
		return err
	}
	found, err := d.Trace.Lineage(r.Context(), r.Project.Project, root, all, reveal, limit.TraceNodes)
	if err != nil {
		return err
	}
	v := lineageView{Lineage: found}
	more := func(node uuid.UUID, side, text string, hidden int) (link svg.Link) {
		if hidden > 0 && !all {
			values := url.Values{"reveal": append(texts[:len(texts):len(texts)], node.String()+":"+side)}
			if len(texts) >= maxReveal {
				values = url.Values{"revealAll": {"true"}}
			}
			link = svg.Link{Text: fmt.Sprintf(text, hidden), Href: "?" + values.Encode()}
		}
		return link
	}
	drawn := svg.Lineage{
		Label:  fmt.Sprintf(lineageOf, found.Root.Headline),
		Folded: func(n int) string { return fmt.Sprintf(moreNodes, n) },
	}
	for i, n := range found.Nodes {
		listed := lineageNode{
			Brief:   n,
			Inputs:  more(n.ID, why.Inputs, moreInputs, found.Sides[i].Inputs),
			Outputs: more(n.ID, why.Outputs, moreOutputs, found.Sides[i].Outputs),
		}
		v.Listed = append(v.Listed, listed)
		class := n.Kind
		if n.ID == found.Root.ID {
			class += " root"
		}
		drawn.Nodes = append(drawn.Nodes, svg.Node{
			ID: n.ID.String(), Title: n.Headline, Subtitle: cmp.Or(n.MemoryKind, n.Kind), Class: class,
			Href: r.ProjectPath("trace", n.ID.String()), Inputs: listed.Inputs, Outputs: listed.Outputs,
		})
	}
	for _, e := range found.Edges {
		drawn.Edges = append(drawn.Edges, svg.Edge{From: e.Input.String(), To: e.Derived.String()})
	}
	v.Drawing = drawn.Draw()
	return r.Render("lineage.html", v)
}

// timelineView is the data of a timeline. Moments are those of the root.
type timelineView struct {
	why.Timeline
	Node    why.Node
	Drawing svg.Timeline `json:"-"`
}

func (d Deps) timeline(r *web.Request) error {
	root, err := id(r, "node")
	if err != nil {
		return err
	}
	var problems fields.Problems
	query := r.URL.Query()
	from, to := problems.Instant("from", query.Get("from")), problems.Instant("to", query.Get("to"))
	if err := problems.Err(); err != nil {
		return err
	}
	found, err := d.Trace.Timeline(r.Context(), r.Project.Project, root, from, to)
	if err != nil {
		return err
	}
	v := timelineView{Timeline: found}
	if v.Node, err = d.Trace.Node(r.Context(), r.Project.Project, root); err != nil {
		return err
	}
	v.Drawing = svg.Timeline{
		Label: fmt.Sprintf(timelineOf, found.Root.Headline),
		Rows:  timelineRows,
		From:  found.From, To: found.To, Zone: r.Zone(),
		Narrow: func(from, to time.Time) string {
			return r.With("from", from.UTC().Format(time.RFC3339Nano), "to", to.UTC().Format(time.RFC3339Nano))
		},
	}
	add := func(b why.Brief, class string, searchable *time.Time, at ...time.Time) {
		if searchable != nil {
			at = append(at, *searchable)
		}
		v.Drawing.Moments = append(v.Drawing.Moments, svg.Moment{
			Title: b.Headline, Class: class, Href: r.ProjectPath("trace", b.ID.String()), At: at,
		})
	}
	if found.Deleted == nil {
		add(found.Root, "root", v.Node.ReadyAt, v.Node.OccurredAt, v.Node.CreatedAt)
	}
	for _, m := range found.Nodes {
		add(m.Brief, m.Section, m.SearchableAt, m.OccurredAt, m.ArrivedAt)
	}
	for _, c := range found.Recalls {
		v.Drawing.Moments = append(v.Drawing.Moments, svg.Moment{
			Title: c.Identity, Class: "recall", Href: r.ProjectPath("requests", c.Request.String()),
			At: []time.Time{{}, {}, {}, c.ReceivedAt},
		})
	}
	return r.Render("timeline.html", v)
}
