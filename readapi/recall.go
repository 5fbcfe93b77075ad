package readapi

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/recall"
)

const (
	defaultLimit = 100
	defaultLevel = "low"
)

// levels are the budgets by name, in tokens.
var levels = map[string]int{"low": 8000, "medium": 16000, "high": 24000, "extra-high": 32000}

// The orders of a page.
const (
	sortRelevance     = "relevance"
	sortChronological = "chronological"
)

// recallAPI is POST /api/v1/recall.
type recallAPI struct {
	charged
	terms metering.PlanTerms
}

// post answers a recall. A budget over the plan's ceiling is lowered to it. Where the plan has a
// price, the fault may be spend-cap-reached or out-of-credits.
func (a recallAPI) post(c echo.Context) error {
	body, err := httpx.Body(c, httpx.SmallLimit)
	if err != nil {
		return err
	}
	q, err := QueryOf(body)
	if err != nil {
		return err
	}
	principal, note := httpx.Principal(c), httpx.NoteOf(c)
	note.Identity = q.Identity
	q.Project, q.Organization = principal.Project, principal.OrganizationID
	q.Budget = min(q.Budget, a.meter.Ceiling(principal.Limits.Plan))
	found, err := a.Recall(c.Request().Context(), principal, q, httpx.ReceivedAt(c))
	if err != nil {
		return err
	}
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

// charged is a recaller whose calls are charged.
type charged struct {
	meter    meter
	recaller recaller
}

// Recall recalls for a caller at an instant, and charges it. The faults are those of meter and
// recaller.
func (c charged) Recall(ctx context.Context, p auth.Principal, q recall.Query, at time.Time) (recall.Response, error) {
	var found recall.Response
	err := c.meter.Charge(ctx, p, q.Identity, at, func() (err error) {
		found, err = c.recaller.Recall(ctx, q)
		return err
	})
	return found, err
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

// queryNames are the names of a recall.
var queryNames = httpx.NewNames(
	"query", "identity", "limit", "level", "maxTokens", "queryTimestamp", "occurredFrom", "occurredTo", "sort")

// QueryOf reads the body of a recall. The fault is recall-query-required, identity-required,
// recall-sort-invalid, recall-range-invalid, or invalid-request for whatever else is wrong with
// it.
func QueryOf(body []byte) (recall.Query, error) {
	var problems httpx.Problems
	f := httpx.FieldsOf(body, "", &problems, queryNames)
	if err := problems.Err(); err != nil {
		return recall.Query{}, err
	}
	text, identity := f.Text("query"), f.Text("identity")
	switch {
	case isBlank(f, "query", text):
		return recall.Query{}, fault.New(fault.Invalid, fault.CodeRecallQueryRequired, "query is required, and not blank")
	case isBlank(f, "identity", identity):
		return recall.Query{}, fault.New(fault.Invalid, fault.CodeIdentityRequired, "identity is required, and not blank")
	}
	chronological, err := isChronological(f)
	if err != nil {
		return recall.Query{}, err
	}
	q := recall.Query{Chronological: chronological, Limit: defaultLimit, Budget: budgetOf(f, &problems)}
	if results := f.Integer("limit", 1, limit.RecallResults); results != nil {
		q.Limit = *results
	}
	q.From = f.Instant("occurredFrom")
	if asked := f.Written("queryTimestamp"); asked != nil {
		q.At = &asked.At // in its zone, whose days the query names
	}
	if to := f.Written("occurredTo"); to != nil {
		q.To = new(to.Last())
	}
	f.Name("identity", 1, limit.Identity)
	if err := problems.Err(); err != nil {
		return recall.Query{}, err
	}
	if q.From != nil && q.To != nil && q.From.After(*q.To) {
		return recall.Query{}, fault.New(fault.Invalid, fault.CodeRecallRangeInvalid, "occurredFrom is after occurredTo")
	}
	q.Text, q.Identity = *text, *identity
	return q, nil
}

// isBlank reports whether a text is omitted or nothing but white space. What is no text at all is
// a problem of its own.
func isBlank(f httpx.Fields, name string, text *string) bool {
	if text == nil {
		return !f.Has(name)
	}
	return strings.TrimSpace(*text) == ""
}

func isChronological(f httpx.Fields) (bool, error) {
	if !f.Has("sort") {
		return false, nil
	}
	switch order, _ := rawjson.Text(f.Raw("sort")); order {
	case sortRelevance:
		return false, nil
	case sortChronological:
		return true, nil
	}
	return false, fault.New(fault.Invalid, fault.CodeRecallSortInvalid, "sort is %.100s: want %q or %q",
		f.Raw("sort"), sortRelevance, sortChronological)
}

// budgetOf is the tokens of a page: those of the level, or maxTokens where it is sent.
func budgetOf(f httpx.Fields, problems *httpx.Problems) int {
	if f.Has("level") && f.Has("maxTokens") {
		problems.Add("maxTokens", "send level or maxTokens, not both")
		return 0
	}
	if tokens := f.IntegerMax("maxTokens", 1, limit.EvidenceTokens); tokens != nil {
		return *tokens
	}
	level := f.Text("level")
	if level == nil {
		return levels[defaultLevel]
	}
	tokens, ok := levels[*level]
	if !ok {
		problems.Add("level", "is %.100q: want low, medium, high or extra-high", *level)
	}
	return tokens
}
