package annals

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"
)

// RecallRequest is a question. Query and Identity are required.
type RecallRequest struct {
	Query string `json:"query"`
	// Identity is who recalls: what is project-visible is reached, and the audiences of the identity.
	Identity string `json:"identity"`
	// Limit is the most documents, 1 to 200; 0 is 100.
	Limit int `json:"limit,omitempty"`
	// Level is the budget of tokens, such as LevelLow, the default. Not with MaxTokens.
	Level string `json:"level,omitempty"`
	// MaxTokens is an explicit budget.
	MaxTokens int `json:"maxTokens,omitempty"`
	// QueryTimestamp is the perspective: only what occurred up to then counts. Days that the query names, such as
	// "yesterday", are days at its offset. "" is now.
	QueryTimestamp string `json:"queryTimestamp,omitempty"`
	// OccurredFrom and OccurredTo bound when a document occurred, both inclusive. A date alone is a day in UTC.
	OccurredFrom string `json:"occurredFrom,omitempty"`
	OccurredTo   string `json:"occurredTo,omitempty"`
	// Sort is SortRelevance, the default, or SortChronological.
	Sort string `json:"sort,omitempty"`
}

// Budgets of a recall, lowered to the ceiling of the plan.
const (
	LevelLow       = "low"        // 8,000 tokens
	LevelMedium    = "medium"     // 16,000 tokens
	LevelHigh      = "high"       // 24,000 tokens
	LevelExtraHigh = "extra-high" // 32,000 tokens
)

// Orders of a recall. Each document keeps its rank by relevance.
const (
	SortRelevance     = "relevance"
	SortChronological = "chronological"
)

// RecallResponse is the documents that fit the budget.
type RecallResponse struct {
	// AsOf is the perspective.
	AsOf time.Time `json:"asOf"`
	// UsedEvidenceTokens is what the documents use of the budget.
	UsedEvidenceTokens int `json:"usedEvidenceTokens"`
	// Results are empty if nothing matches that the identity may read.
	Results []RecallResult `json:"results"`
}

// RecallResult is one document.
type RecallResult struct {
	ID string `json:"id"`
	// Rank is from 1, without gaps.
	Rank       int            `json:"rank"`
	OccurredAt time.Time      `json:"occurredAt"`
	Content    string         `json:"content"`
	Artifact   Artifact       `json:"artifact"`
	Sources    []RecallSource `json:"sources"`
}

// Tokens returns what the document uses of a budget: content and excerpts at four characters a token, rounded up.
func (r RecallResult) Tokens() int {
	n := utf8.RuneCountInString(r.Content)
	for _, s := range r.Sources {
		for _, e := range s.Excerpts {
			n += utf8.RuneCountInString(e)
		}
	}
	return (n + 3) / 4
}

// Artifact is what a document is.
type Artifact struct {
	ID string `json:"id"`
	// Kind is one of the constants that begin with Artifact. Treat an unknown one as a memory.
	Kind       string    `json:"kind"`
	OccurredAt time.Time `json:"occurredAt"`
	// SupersededAt is when a later statement that the identity may read replaced this one, else nil.
	SupersededAt *time.Time `json:"supersededAt,omitempty"`
}

// Kinds of documents: a source is a data point as it was sent, the others are derived memories.
const (
	ArtifactSource         = "source"
	ArtifactObservation    = "observation"
	ArtifactClaim          = "claim"
	ArtifactRule           = "rule"
	ArtifactMembership     = "membership"
	ArtifactIdentity       = "identity"
	ArtifactMention        = "mention"
	ArtifactTemporalAnchor = "temporal-anchor"
)

// RecallSource is the evidence of a document in one data point.
type RecallSource struct {
	// SourceID is the id that was sent.
	SourceID   string          `json:"sourceId"`
	OccurredAt time.Time       `json:"occurredAt"`
	Label      string          `json:"label,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	// Excerpts are words of the data point, none for a document that is the data point.
	Excerpts []string `json:"excerpts"`
}

// Recall asks a question as an identity.
func (c *Client) Recall(ctx context.Context, r RecallRequest) (*RecallResponse, error) {
	return send[RecallResponse](ctx, c, call{method: http.MethodPost, path: path("recall"), in: r, repeat: charged})
}

// Kinds of nodes: a revision of a data point, and what was derived from one.
const (
	NodeSource = "source"
	NodeMemory = "memory"
)

// ListRootsRequest selects nodes to begin a trace at.
type ListRootsRequest struct {
	// Search is the id of a node, a source id, or words.
	Search string
	// IngestionID selects the revisions of one send and their memories.
	IngestionID string
	// First is the most nodes of each group, 1 to 50; 0 is 25.
	First int
	// AfterMemories and AfterSources are the EndCursor of each group of the page before.
	AfterMemories, AfterSources string
}

// Roots are two pages of nodes.
type Roots struct {
	Memories RootPage `json:"memories"`
	Sources  RootPage `json:"sources"`
}

// RootPage is one page of nodes, newest first.
type RootPage struct {
	Nodes     []Root  `json:"nodes"`
	HasMore   bool    `json:"hasMore"`
	EndCursor *string `json:"endCursor"`
}

// Root is a node as a list shows it.
type Root struct {
	ID         string  `json:"id"`
	Kind       string  `json:"kind"`
	MemoryKind *string `json:"memoryKind"`
	Headline   string  `json:"headline"`
	// DataPointID is the source id.
	DataPointID string     `json:"dataPointId"`
	Revision    int        `json:"revision"`
	OccurredAt  time.Time  `json:"occurredAt"`
	CreatedAt   time.Time  `json:"createdAt"`
	ReadyAt     *time.Time `json:"readyAt"`
	Current     bool       `json:"current"`
	Phase       string     `json:"phase"`
}

// TraceNode is a node with all that is known of it. After a deletion most fields are nil.
type TraceNode struct {
	ID          string  `json:"id"`
	Kind        string  `json:"kind"`
	Headline    *string `json:"headline"`
	MemoryKind  *string `json:"memoryKind"`
	DataPointID *string `json:"dataPointId"`
	Revision    int     `json:"revision"`
	// CreatedAt is when the revision was accepted or the memory derived, ReadyAt since when its send is searchable.
	OccurredAt *time.Time `json:"occurredAt"`
	CreatedAt  *time.Time `json:"createdAt"`
	ReadyAt    *time.Time `json:"readyAt"`
	ValidFrom  *time.Time `json:"validFrom"`
	ValidTo    *time.Time `json:"validTo"`
	Current    bool       `json:"current"`
	// ReplacedID is what this node replaced, ReplacedByID what replaced it.
	ReplacedID   *string `json:"replacedId"`
	ReplacedByID *string `json:"replacedById"`
	InputCount   int     `json:"inputCount"`
	OutputCount  int     `json:"outputCount"`
	Phase        string  `json:"phase"`
	RequestID    *string `json:"requestId"`
	IngestionID  *string `json:"ingestionId"`
	// Content is the first 4,000 characters of a source.
	Content            string     `json:"content,omitempty"`
	ContentTruncated   bool       `json:"contentTruncated"`
	DeletedAt          *time.Time `json:"deletedAt,omitempty"`
	DeletedByRequestID *string    `json:"deletedByRequestId,omitempty"`
}

// TraceRoot is the node that a lineage or a timeline begins at.
type TraceRoot struct {
	ID                 string     `json:"id"`
	Kind               string     `json:"kind"`
	Headline           *string    `json:"headline"`
	DeletedAt          *time.Time `json:"deletedAt,omitempty"`
	DeletedByRequestID *string    `json:"deletedByRequestId,omitempty"`
}

// LineageRequest is a walk from a node along what it was built from and what was built from it.
type LineageRequest struct {
	RootID string
	// RevealAll walks every side, up to the limit.
	RevealAll bool
	// Reveal are the sides to walk: the id of a node with ":inputs" or ":outputs". None is the inputs of the root.
	Reveal []string
	// Limit is the most nodes, 1 to 400; 0 is 400.
	Limit int
}

// Lineage is the nodes of a walk.
type Lineage struct {
	Root  TraceRoot     `json:"root"`
	Nodes []LineageNode `json:"nodes"`
	Edges []LineageEdge `json:"edges"`
	// HiddenCount counts the nodes that were not walked to.
	HiddenCount int `json:"hiddenCount"`
}

// LineageNode is a node of a lineage.
type LineageNode struct {
	ID         string  `json:"id"`
	Kind       string  `json:"kind"`
	MemoryKind *string `json:"memoryKind"`
	Headline   string  `json:"headline"`
}

// LineageEdge is read: DerivedID was built from InputID.
type LineageEdge struct {
	InputID   string `json:"inputId"`
	DerivedID string `json:"derivedId"`
}

// TimelineRequest is a window around a node.
type TimelineRequest struct {
	RootID string
	// From and To are at most 31 days apart; "" is the recent history of the node.
	From, To string
}

// Timeline is what happened around a node.
type Timeline struct {
	Root         TraceRoot        `json:"root"`
	From         time.Time        `json:"from"`
	To           time.Time        `json:"to"`
	Nodes        []TimelineNode   `json:"nodes"`
	Sends        []TimelineSend   `json:"sends"`
	Recalls      []TimelineRecall `json:"recalls"`
	Replacements []Replacement    `json:"replacements"`
	// Truncated is true if a list was cut.
	Truncated bool `json:"truncated"`
}

// TimelineNode is a node of a timeline.
type TimelineNode struct {
	ID         string  `json:"id"`
	Kind       string  `json:"kind"`
	MemoryKind *string `json:"memoryKind"`
	Headline   string  `json:"headline"`
	// Section is revision, built-from, produced or elsewhere.
	Section      string     `json:"section"`
	OccurredAt   time.Time  `json:"occurredAt"`
	ArrivedAt    time.Time  `json:"arrivedAt"`
	SearchableAt *time.Time `json:"searchableAt"`
	Current      bool       `json:"current"`
	DataPointID  string     `json:"dataPointId"`
	Revision     int        `json:"revision"`
	IngestionID  string     `json:"ingestionId"`
}

// TimelineSend is a send of a timeline.
type TimelineSend struct {
	IngestionID string     `json:"ingestionId"`
	RequestID   string     `json:"requestId"`
	AcceptedAt  time.Time  `json:"acceptedAt"`
	SettledAt   *time.Time `json:"settledAt"`
	Phase       string     `json:"phase"`
	// Items counts the data points.
	Items int `json:"items"`
}

// TimelineRecall is a recall that returned a node.
type TimelineRecall struct {
	RequestID  string    `json:"requestId"`
	ReceivedAt time.Time `json:"receivedAt"`
	Identity   string    `json:"identity"`
	NodeID     string    `json:"nodeId"`
	Rank       int       `json:"rank"`
}

// Replacement is a node that another one replaced.
type Replacement struct {
	ReplacedID   string    `json:"replacedId"`
	ReplacedByID string    `json:"replacedById"`
	At           time.Time `json:"at"`
}

// ListRoots returns one page of nodes in two groups. [Client.MemoryRoots] and [Client.SourceRoots] read all of one.
func (c *Client) ListRoots(ctx context.Context, r ListRootsRequest) (*Roots, error) {
	query := params{}
	query.text("search", r.Search)
	query.text("ingestionId", r.IngestionID)
	query.number("first", r.First)
	query.text("afterMemories", r.AfterMemories)
	query.text("afterSources", r.AfterSources)
	return get[Roots](ctx, c, path("trace", "roots"), url.Values(query))
}

// MemoryRoots yields the memories of ListRoots.
func (c *Client) MemoryRoots(ctx context.Context, r ListRootsRequest) iter.Seq2[Root, error] {
	return pages(r.AfterMemories, func(after string) ([]Root, *string, error) {
		r.AfterMemories = after
		return c.roots(ctx, r, func(roots *Roots) RootPage { return roots.Memories })
	})
}

// SourceRoots yields the sources of ListRoots.
func (c *Client) SourceRoots(ctx context.Context, r ListRootsRequest) iter.Seq2[Root, error] {
	return pages(r.AfterSources, func(after string) ([]Root, *string, error) {
		r.AfterSources = after
		return c.roots(ctx, r, func(roots *Roots) RootPage { return roots.Sources })
	})
}

func (c *Client) roots(
	ctx context.Context, r ListRootsRequest, group func(*Roots) RootPage,
) ([]Root, *string, error) {
	roots, err := c.ListRoots(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	page := group(roots)
	return page.Nodes, following(page.HasMore, page.EndCursor), nil
}

// GetNode returns a node: a revision of a data point, or a memory.
func (c *Client) GetNode(ctx context.Context, id string) (*TraceNode, error) {
	return get[TraceNode](ctx, c, path("trace", "nodes", id), nil)
}

// GetLineage returns what a node was built from, and what was built from it.
func (c *Client) GetLineage(ctx context.Context, r LineageRequest) (*Lineage, error) {
	query := params{}
	if r.RevealAll {
		query.text("revealAll", "true")
	}
	query.text("reveal", r.Reveal...)
	query.number("limit", r.Limit)
	return get[Lineage](ctx, c, path("trace", "lineage", r.RootID), url.Values(query))
}

// GetTimeline returns what happened around a node.
func (c *Client) GetTimeline(ctx context.Context, r TimelineRequest) (*Timeline, error) {
	query := params{}
	query.text("from", r.From)
	query.text("to", r.To)
	return get[Timeline](ctx, c, path("trace", "timeline", r.RootID), url.Values(query))
}
