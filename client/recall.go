package annals

import (
	"context"
	"encoding/json"
	"net/http"
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
