package why

import (
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/fields"
)

// defaultRoots is how many roots a page of each group has.
const defaultRoots = 25

// RootsQueryOf reads the parameters of a list of roots, as API and console have them. The fault is invalid-request.
func RootsQueryOf(values url.Values) (RootsQuery, error) {
	var problems fields.Problems
	q := RootsQuery{
		Search:        strings.TrimSpace(values.Get("search")),
		First:         problems.Count("first", values.Get("first"), limit.TraceRoots, defaultRoots),
		AfterMemories: problems.Cursor("afterMemories", values.Get("afterMemories"), "roots"),
		AfterSources:  problems.Cursor("afterSources", values.Get("afterSources"), "roots"),
	}
	if q.Search != "" {
		problems.CheckParameter("search", q.Search, limit.SourceID)
	}
	if text := values.Get("ingestionId"); text != "" {
		id, err := uuid.Parse(text)
		if err != nil || id == uuid.Nil {
			problems.Add("ingestionId", "is not the id of a send")
		}
		q.Ingestion = id
	}
	return q, problems.Err()
}
