package readapi

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/recall"
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
