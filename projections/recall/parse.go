package recall

import (
	"strings"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/fields"
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

// queryNames are the names of a recall.
var queryNames = fields.NewNames(
	"query", "identity", "limit", "level", "maxTokens", "queryTimestamp", "occurredFrom", "occurredTo", "sort")

// ParseQuery reads the body of a recall, one checked JSON value. The query has no project yet. The fault is
// recall-query-required, identity-required, recall-sort-invalid, recall-range-invalid, or invalid-request for whatever
// else is wrong with it.
func ParseQuery(body []byte) (Query, error) {
	return fields.Decode(body, "", queryNames, queryOf)
}

func queryOf(f fields.Object) (Query, error) {
	text, identity := f.Text("query"), f.Text("identity")
	switch {
	case isBlank(f, "query", text):
		return Query{}, fault.New(fault.Invalid, fault.CodeRecallQueryRequired, "query is required, and not blank")
	case isBlank(f, "identity", identity):
		return Query{}, fault.New(fault.Invalid, fault.CodeIdentityRequired, "identity is required, and not blank")
	}
	chronological, err := isChronological(f)
	if err != nil {
		return Query{}, err
	}
	q := Query{Chronological: chronological, Limit: defaultLimit, Budget: budgetOf(f)}
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
	if err := f.Err(); err != nil {
		return Query{}, err
	}
	if q.From != nil && q.To != nil && q.From.After(*q.To) {
		return Query{}, fault.New(fault.Invalid, fault.CodeRecallRangeInvalid, "occurredFrom is after occurredTo")
	}
	q.Text, q.Identity = *text, *identity
	return q, nil
}

// isBlank reports whether a text is omitted or nothing but white space. What is no text at all is
// a problem of its own.
func isBlank(f fields.Object, name string, text *string) bool {
	if text == nil {
		return !f.Has(name)
	}
	return strings.TrimSpace(*text) == ""
}

func isChronological(f fields.Object) (bool, error) {
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
func budgetOf(f fields.Object) int {
	if f.Has("level") && f.Has("maxTokens") {
		f.Problem("maxTokens", "send level or maxTokens, not both")
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
		f.Problem("level", "is %.100q: want low, medium, high or extra-high", *level)
	}
	return tokens
}
