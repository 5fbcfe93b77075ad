package readapi

import (
	"time"

	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/projections/why"
)

// briefView is what every list shows of a node. The headline of a node whose data point was deleted is
// null.
type briefView struct {
	ID         uuid.UUID `json:"id"`
	Kind       string    `json:"kind"`
	MemoryKind *string   `json:"memoryKind"`
	Headline   *string   `json:"headline"`
}

func briefOf(b why.Brief) briefView {
	return briefView{ID: b.ID, Kind: b.Kind, MemoryKind: optional(b.MemoryKind), Headline: &b.Headline}
}

// optional is nil for "".
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// rootsView is the JSON of the roots.
type rootsView struct {
	Memories rootPage `json:"memories"`
	Sources  rootPage `json:"sources"`
}

type rootPage struct {
	Nodes     []rootView `json:"nodes"`
	HasMore   bool       `json:"hasMore"`
	EndCursor *string    `json:"endCursor"`
}

type rootView struct {
	briefView
	DataPointID string     `json:"dataPointId"`
	Revision    int        `json:"revision"`
	OccurredAt  time.Time  `json:"occurredAt"`
	CreatedAt   time.Time  `json:"createdAt"`
	ReadyAt     *time.Time `json:"readyAt"`
	Current     bool       `json:"current"`
	Phase       string     `json:"phase"`
}

func rootPageOf(p why.RootPage) rootPage {
	page := rootPage{Nodes: make([]rootView, len(p.Nodes)), HasMore: p.More}
	for n, r := range p.Nodes {
		page.Nodes[n] = rootView{
			briefView: briefOf(r.Brief), DataPointID: r.SourceID, Revision: r.Revision, OccurredAt: r.OccurredAt,
			CreatedAt: r.CreatedAt, ReadyAt: r.ReadyAt, Current: r.Current, Phase: r.Phase,
		}
	}
	if p.End != nil {
		cursor := p.End.String()
		page.EndCursor = &cursor
	}
	return page
}

// nodeView is the JSON of a node. Of a node whose data point was deleted only the id, the kind, the
// revision and the deletion remain.
type nodeView struct {
	briefView
	DataPointID  *string    `json:"dataPointId"`
	Revision     int        `json:"revision"`
	OccurredAt   *time.Time `json:"occurredAt"`
	CreatedAt    *time.Time `json:"createdAt"`
	ReadyAt      *time.Time `json:"readyAt"`
	ValidFrom    *time.Time `json:"validFrom"`
	ValidTo      *time.Time `json:"validTo"`
	Current      bool       `json:"current"`
	ReplacedID   *uuid.UUID `json:"replacedId"`
	ReplacedByID *uuid.UUID `json:"replacedById"`
	InputCount   int        `json:"inputCount"`
	OutputCount  int        `json:"outputCount"`
	Phase        string     `json:"phase"`
	RequestID    *uuid.UUID `json:"requestId"`
	IngestionID  *uuid.UUID `json:"ingestionId"`
	// Content and ContentTruncated are those of a source.
	Content          *string `json:"content,omitempty"`
	ContentTruncated *bool   `json:"contentTruncated,omitempty"`
	*deletedView
}

// deletedView records when a data point was deleted, and by which request: null if a version of the
// service that did not note it erased the data point.
type deletedView struct {
	DeletedAt          time.Time  `json:"deletedAt"`
	DeletedByRequestID *uuid.UUID `json:"deletedByRequestId"`
}

func deletedOf(d *why.Deleted) *deletedView {
	if d == nil {
		return nil
	}
	return &deletedView{DeletedAt: d.At, DeletedByRequestID: d.Request}
}

func nodeViewOf(n why.Node) nodeView {
	v := nodeView{briefView: briefOf(n.Brief), Revision: n.Revision, Phase: n.Phase, deletedView: deletedOf(n.Deleted)}
	if n.Deleted != nil {
		v.Headline = nil
		return v
	}
	v.DataPointID, v.RequestID, v.IngestionID = &n.SourceID, &n.Request, &n.Ingestion
	v.OccurredAt, v.CreatedAt, v.ReadyAt = &n.OccurredAt, &n.CreatedAt, n.ReadyAt
	v.ValidFrom, v.ValidTo, v.Current = &n.ValidFrom, n.ValidTo, n.Current
	v.ReplacedID, v.ReplacedByID = n.Replaced, n.ReplacedBy
	v.InputCount, v.OutputCount = n.Inputs, n.Outputs
	if n.Kind == why.KindSource {
		v.Content, v.ContentTruncated = &n.Content, &n.More
	}
	return v
}

// rootBrief is the root of a lineage or a timeline.
type rootBrief struct {
	ID       uuid.UUID `json:"id"`
	Kind     string    `json:"kind"`
	Headline *string   `json:"headline"`
	*deletedView
}

func rootBriefOf(b why.Brief, deleted *why.Deleted) rootBrief {
	root := rootBrief{ID: b.ID, Kind: b.Kind, Headline: &b.Headline, deletedView: deletedOf(deleted)}
	if deleted != nil {
		root.Headline = nil
	}
	return root
}

type lineageView struct {
	Root        rootBrief            `json:"root"`
	Nodes       []briefView          `json:"nodes"`
	Edges       []client.LineageEdge `json:"edges"`
	HiddenCount int                  `json:"hiddenCount"`
}

func lineageViewOf(l why.Lineage) lineageView {
	v := lineageView{
		Root: rootBriefOf(l.Root, l.Deleted), Nodes: make([]briefView, len(l.Nodes)),
		Edges: make([]client.LineageEdge, len(l.Edges)), HiddenCount: l.Hidden,
	}
	for n, b := range l.Nodes {
		v.Nodes[n] = briefOf(b)
	}
	for n, e := range l.Edges {
		v.Edges[n] = client.LineageEdge{InputID: e.Input.String(), DerivedID: e.Derived.String()}
	}
	return v
}

type timelineView struct {
	Root         rootBrief               `json:"root"`
	From         time.Time               `json:"from"`
	To           time.Time               `json:"to"`
	Nodes        []momentView            `json:"nodes"`
	Sends        []client.TimelineSend   `json:"sends"`
	Recalls      []client.TimelineRecall `json:"recalls"`
	Replacements []client.Replacement    `json:"replacements"`
	Truncated    bool                    `json:"truncated"`
}

type momentView struct {
	briefView
	Section      string     `json:"section"`
	OccurredAt   time.Time  `json:"occurredAt"`
	ArrivedAt    time.Time  `json:"arrivedAt"`
	SearchableAt *time.Time `json:"searchableAt"`
	Current      bool       `json:"current"`
	DataPointID  string     `json:"dataPointId"`
	Revision     int        `json:"revision"`
	IngestionID  uuid.UUID  `json:"ingestionId"`
}

func timelineViewOf(t why.Timeline) timelineView {
	v := timelineView{
		Root: rootBriefOf(t.Root, t.Deleted), From: t.From, To: t.To, Truncated: t.Truncated,
		Nodes: make([]momentView, len(t.Nodes)), Sends: make([]client.TimelineSend, len(t.Sends)),
		Recalls:      make([]client.TimelineRecall, len(t.Recalls)),
		Replacements: make([]client.Replacement, len(t.Replacements)),
	}
	for n, m := range t.Nodes {
		v.Nodes[n] = momentView{
			briefView: briefOf(m.Brief), Section: m.Section, OccurredAt: m.OccurredAt, ArrivedAt: m.ArrivedAt,
			SearchableAt: m.SearchableAt, Current: m.Current, DataPointID: m.SourceID, Revision: m.Revision,
			IngestionID: m.Ingestion,
		}
	}
	for n, s := range t.Sends {
		v.Sends[n] = client.TimelineSend{
			IngestionID: s.Ingestion.String(), RequestID: s.Request.String(), AcceptedAt: s.AcceptedAt,
			SettledAt: s.SettledAt, Phase: s.Phase, Items: s.Items,
		}
	}
	for n, r := range t.Recalls {
		v.Recalls[n] = client.TimelineRecall{
			RequestID: r.Request.String(), ReceivedAt: r.ReceivedAt, Identity: r.Identity, NodeID: r.Node.String(), Rank: r.Rank,
		}
	}
	for n, r := range t.Replacements {
		v.Replacements[n] = client.Replacement{ReplacedID: r.Replaced.String(), ReplacedByID: r.By.String(), At: r.At}
	}
	return v
}
