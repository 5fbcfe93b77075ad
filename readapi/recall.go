package readapi

import (
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/rawjson"
	"github.com/annals-project/annals/projections/recall"
)

const (
	maxIdentity  = 200
	maxResults   = 200
	defaultLimit = 100
	// ceiling is the most tokens of a page; maxTokens is lowered to it.
	ceiling      = 32000
	defaultLevel = "low"
)

// levels are the budgets by name, in tokens.
var levels = map[string]int{"low": 8000, "medium": 16000, "high": 24000, "extra-high": 32000}

// The orders of a page.
const (
	sortRelevance     = "relevance"
	sortChronological = "chronological"
)

type recallAPI struct {
	queries recaller
	meter   meter
}

// recall is POST /api/v1/recall. A budget over the plan's ceiling is lowered to it. It is counted before it is answered; where the plan
// has a price for it, it is refused with spend-cap-reached, then out-of-credits.
func (a recallAPI) recall(c echo.Context) error {
	body, err := httpx.Body(c, httpx.SmallLimit)
	if err != nil {
		return err
	}
	q, err := queryOf(body)
	if err != nil {
		return err
	}
	ctx, principal := c.Request().Context(), httpx.Principal(c)
	q.Project, q.Organization = principal.Project, principal.OrganizationID
	q.Budget = min(q.Budget, a.meter.Ceiling(principal.Limits.Plan))
	var page recall.Page
	err = a.meter.Recall(ctx, principal, q.Identity, httpx.ReceivedAt(c), func() (err error) {
		page, err = a.queries.Recall(ctx, q)
		return err
	})
	if err != nil {
		return err
	}
	results := page.Results
	page.Results = []recall.Result{}
	return httpx.Stream(c, page, "results", results)
}

// queryOf reads the body of a recall. The fault is recall-query-required, identity-required, recall-sort-invalid, recall-range-invalid,
// or invalid-request for whatever else is wrong with it.
func queryOf(body []byte) (recall.Query, error) {
	var problems httpx.Problems
	f := httpx.FieldsOf(body, "", &problems,
		"query", "identity", "limit", "level", "maxTokens", "queryTimestamp", "occurredFrom", "occurredTo", "sort")
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
	if limit := f.Integer("limit", 1, maxResults); limit != nil {
		q.Limit = *limit
	}
	q.At, q.From, q.To = f.Instant("queryTimestamp"), f.Instant("occurredFrom"), f.Instant("occurredTo")
	f.Name("identity", 1, maxIdentity)
	if err := problems.Err(); err != nil {
		return recall.Query{}, err
	}
	if q.From != nil && q.To != nil && q.From.After(*q.To) {
		return recall.Query{}, fault.New(fault.Invalid, fault.CodeRecallRangeInvalid, "occurredFrom is after occurredTo")
	}
	q.Text, q.Identity = *text, *identity
	return q, nil
}

// isBlank reports whether a text is omitted or nothing but white space. What is no text at all is a problem of its own.
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
	return false, fault.New(fault.Invalid, fault.CodeRecallSortInvalid, "sort is %.100s: want %q or %q", f.Raw("sort"), sortRelevance, sortChronological)
}

// budgetOf is the tokens of a page: those of the level, or maxTokens where it is sent.
func budgetOf(f httpx.Fields, problems *httpx.Problems) int {
	if f.Has("level") && f.Has("maxTokens") {
		problems.Add("maxTokens", "send level or maxTokens, not both")
		return 0
	}
	if tokens := f.Lowered("maxTokens", 1, ceiling); tokens != nil {
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
