package readapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/why"
)

// recallAPI is POST /api/v1/recall.
type recallAPI struct {
	recalls recaller
	terms   metering.PlanTerms
}

// post answers a recall.
func (a recallAPI) post(c echo.Context) error {
	body, err := httpx.Body(c, httpx.SmallLimit)
	if err != nil {
		return err
	}
	q, err := recall.ParseQuery(body)
	if err != nil {
		return err
	}
	principal, note := httpx.Principal(c), httpx.NoteOf(c)
	q.Values = recall.Values(httpx.ValuesOf(c))
	note.Identity = q.Identity
	found, err := a.recalls.Recall(c.Request().Context(), principal, q, httpx.ReceivedAt(c))
	if err != nil {
		return err
	}
	httpx.LeftOut(c, "metadata", found.MetadataLeftOut)
	note.CreditTenths = a.terms.Of(principal.Limits.Plan).RecallTenths
	noteResults(note, principal.Project.Namespace, found.Results)
	shell := recallResponse{AsOf: found.AsOf, UsedEvidenceTokens: found.UsedEvidenceTokens, Results: []recallResult{}}
	return httpx.Stream(c, shell, "results", recallResults(found.Results))
}

// noteResults notes the results of a recall, and the data points that they rest on.
func noteResults(note *httpx.Note, namespace uuid.UUID, found []recall.Result) {
	note.Hits = make([]uuid.UUID, len(found))
	for i, r := range found {
		note.Hits[i] = r.ID
		for _, s := range r.Sources {
			note.IDs = append(note.IDs, stream.DataPointID(namespace, s.SourceID))
		}
	}
}

// recallResponse is the JSON of a recall. Results are never null.
type recallResponse struct {
	AsOf               time.Time      `json:"asOf"`
	UsedEvidenceTokens int            `json:"usedEvidenceTokens"`
	Results            []recallResult `json:"results"`
}

// recallResult is the JSON of a source or a memory.
type recallResult struct {
	ID         uuid.UUID      `json:"id"`
	Rank       int            `json:"rank"`
	OccurredAt time.Time      `json:"occurredAt"`
	Content    string         `json:"content"`
	Artifact   recallArtifact `json:"artifact"`
	Sources    []recallSource `json:"sources"`
}

type recallArtifact struct {
	ID           uuid.UUID  `json:"id"`
	Kind         string     `json:"kind"`
	OccurredAt   time.Time  `json:"occurredAt"`
	SupersededAt *time.Time `json:"supersededAt,omitempty"`
}

type recallSource struct {
	SourceID   string          `json:"sourceId"`
	OccurredAt time.Time       `json:"occurredAt"`
	Label      *string         `json:"label,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	Excerpts   []string        `json:"excerpts"`
}

func recallResults(found []recall.Result) []recallResult {
	results := make([]recallResult, len(found))
	for i, r := range found {
		results[i] = recallResult{
			ID: r.ID, Rank: r.Rank, OccurredAt: r.OccurredAt, Content: r.Content,
			Artifact: recallArtifact(r.Artifact), Sources: make([]recallSource, len(r.Sources)),
		}
		for n, s := range r.Sources {
			results[i].Sources[n] = recallSource(s)
		}
	}
	return results
}

// tracer answers where memory comes from. The fault of a node that the project does not have is
// not-found.
type tracer interface {
	Roots(ctx context.Context, project auth.Project, q why.RootsQuery) (why.Roots, error)
	Node(ctx context.Context, project auth.Project, id uuid.UUID) (why.Node, error)
	// Lineage walks from a root: over all sides, or over those to reveal.
	Lineage(
		ctx context.Context, project auth.Project, root uuid.UUID, all bool, reveal []why.Side, limit int,
	) (why.Lineage, error)
	// Timeline reads a window; nil means the default. Its faults are also invalid-range and
	// range-too-wide.
	Timeline(ctx context.Context, project auth.Project, root uuid.UUID, from, to *instant.Written) (why.Timeline, error)
}

type traceAPI struct {
	queries tracer
}

// roots is GET /api/v1/trace/roots?search=&ingestionId=&first=&afterMemories=&afterSources=.
func (a traceAPI) roots(c echo.Context) error {
	q, err := why.RootsQueryOf(httpx.Query(c))
	if err != nil {
		return err
	}
	found, err := a.queries.Roots(c.Request().Context(), httpx.Principal(c).Project, q)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, client.Roots{Memories: rootPageOf(found.Memories), Sources: rootPageOf(found.Sources)})
}

// node is GET /api/v1/trace/nodes/:id.
func (a traceAPI) node(c echo.Context) error {
	id, err := httpx.PathUUID(c, "id")
	if err != nil {
		return err
	}
	found, err := a.queries.Node(c.Request().Context(), httpx.Principal(c).Project, id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, nodeViewOf(found))
}

// lineage is GET /api/v1/trace/lineage/:rootId?revealAll=&reveal=&limit=.
func (a traceAPI) lineage(c echo.Context) error {
	root, err := httpx.PathUUID(c, "rootId")
	if err != nil {
		return err
	}
	query, problems := httpx.Query(c), fields.Problems{}
	reveal, err := why.SidesOf(query["reveal"])
	if err != nil {
		return err
	}
	all, err := strconv.ParseBool(query.Get("revealAll"))
	if err != nil && query.Get("revealAll") != "" {
		problems.Add("revealAll", "want true or false, got %.40q", query.Get("revealAll"))
	}
	most := problems.Count("limit", query.Get("limit"), limit.TraceNodes, limit.TraceNodes)
	if err := problems.Err(); err != nil {
		return err
	}
	found, err := a.queries.Lineage(c.Request().Context(), httpx.Principal(c).Project, root, all, reveal, most)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, lineageViewOf(found))
}

// timeline is GET /api/v1/trace/timeline/:rootId?from=&to=.
func (a traceAPI) timeline(c echo.Context) error {
	root, err := httpx.PathUUID(c, "rootId")
	if err != nil {
		return err
	}
	query, problems := httpx.Query(c), fields.Problems{}
	from, to := problems.Instant("from", query.Get("from")), problems.Instant("to", query.Get("to"))
	if err := problems.Err(); err != nil {
		return err
	}
	found, err := a.queries.Timeline(c.Request().Context(), httpx.Principal(c).Project, root, from, to)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, timelineViewOf(found))
}

// optional is nil for "".
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func rootPageOf(p why.RootPage) client.RootPage {
	page := client.RootPage{Nodes: make([]client.Root, len(p.Nodes)), HasMore: p.More}
	for n, r := range p.Nodes {
		page.Nodes[n] = client.Root{
			ID: r.ID.String(), Kind: r.Kind, MemoryKind: optional(r.MemoryKind), Headline: r.Headline,
			DataPointID: r.SourceID, Revision: r.Revision, OccurredAt: r.OccurredAt,
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
	ID           uuid.UUID  `json:"id"`
	Kind         string     `json:"kind"`
	MemoryKind   *string    `json:"memoryKind"`
	Headline     *string    `json:"headline"`
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
	v := nodeView{
		ID: n.ID, Kind: n.Kind, MemoryKind: optional(n.MemoryKind), Revision: n.Revision, Phase: n.Phase,
		deletedView: deletedOf(n.Deleted),
	}
	if n.Deleted != nil {
		return v
	}
	v.Headline, v.DataPointID, v.RequestID, v.IngestionID = &n.Headline, &n.SourceID, &n.Request, &n.Ingestion
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
	Nodes       []client.LineageNode `json:"nodes"`
	Edges       []client.LineageEdge `json:"edges"`
	HiddenCount int                  `json:"hiddenCount"`
}

func lineageViewOf(l why.Lineage) lineageView {
	v := lineageView{
		Root: rootBriefOf(l.Root, l.Deleted), Nodes: make([]client.LineageNode, len(l.Nodes)),
		Edges: make([]client.LineageEdge, len(l.Edges)), HiddenCount: l.Hidden,
	}
	for n, b := range l.Nodes {
		v.Nodes[n] = client.LineageNode{
			ID: b.ID.String(), Kind: b.Kind, MemoryKind: optional(b.MemoryKind), Headline: b.Headline,
		}
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
	Nodes        []client.TimelineNode   `json:"nodes"`
	Sends        []client.TimelineSend   `json:"sends"`
	Recalls      []client.TimelineRecall `json:"recalls"`
	Replacements []client.Replacement    `json:"replacements"`
	Truncated    bool                    `json:"truncated"`
}

func timelineViewOf(t why.Timeline) timelineView {
	v := timelineView{
		Root: rootBriefOf(t.Root, t.Deleted), From: t.From, To: t.To, Truncated: t.Truncated,
		Nodes: make([]client.TimelineNode, len(t.Nodes)), Sends: make([]client.TimelineSend, len(t.Sends)),
		Recalls:      make([]client.TimelineRecall, len(t.Recalls)),
		Replacements: make([]client.Replacement, len(t.Replacements)),
	}
	for n, m := range t.Nodes {
		v.Nodes[n] = client.TimelineNode{
			ID: m.ID.String(), Kind: m.Kind, MemoryKind: optional(m.MemoryKind), Headline: m.Headline,
			Section: m.Section, OccurredAt: m.OccurredAt, ArrivedAt: m.ArrivedAt,
			SearchableAt: m.SearchableAt, Current: m.Current, DataPointID: m.SourceID, Revision: m.Revision,
			IngestionID: m.Ingestion.String(),
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
