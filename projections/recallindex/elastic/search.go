package elastic

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

const (
	// leastCandidates is how many candidates a search fetches at least. It fetches half as many more as
	// it returns, because the scores of Elasticsearch are not exact.
	leastCandidates = 400
	// maxWindow is the most hits that Elasticsearch returns.
	maxWindow = 10_000
)

// Search implements recallindex.Index.
func (x *Index) Search(ctx context.Context, q recallindex.Query) (found recallindex.Result, err error) {
	err = x.ask(ctx, func(g generation) error {
		found, err = x.search(ctx, g, q)
		return err
	})
	if err != nil {
		return recallindex.Result{}, fmt.Errorf("search recall index: %w", err)
	}
	return found, nil
}

// ask calls search with the generation that searches go to, and again if another one is in use by now. It
// returns ErrIncomplete if none answers.
func (x *Index) ask(ctx context.Context, search func(g generation) error) error {
	if err := x.beginCall(ctx); err != nil {
		return err
	}
	defer x.endCall()
	g := x.searched()
	err := search(g)
	if isMissing(err) {
		// It may have been replaced between two requests of the search.
		renewed, failed := x.lookAgain(ctx, g)
		switch {
		case failed != nil:
			return failed
		case renewed:
			err = search(x.searched())
		}
	}
	if isMissing(err) {
		return errors.Join(recallindex.ErrIncomplete, err)
	}
	return err
}

func (x *Index) search(ctx context.Context, g generation, q recallindex.Query) (found recallindex.Result, err error) {
	if g.analysis != q.Analysis {
		return found, recallindex.ErrOtherAnalysis
	}
	found.Statistics.Frequencies = make([]recall.Count, len(q.Terms))
	if len(q.Terms) == 0 {
		return found, nil
	}
	if found.Statistics, err = x.statistics(ctx, g, q); err != nil {
		return found, err
	}
	if found.Statistics.Docs == 0 || len(q.Audiences) == 0 || q.Size <= 0 {
		return found, nil
	}
	weights := found.Statistics.Weights(q.Terms).Shared(q.Terms)
	query := candidateQuery(q, found.Statistics, weights)
	if query == nil {
		return found, nil
	}
	hits, err := x.candidates(ctx, g, q, query, min(max(leastCandidates, q.Size+q.Size/2), maxWindow))
	if err != nil {
		return found, err
	}
	found.Hits, err = best(g.format, q, weights, hits)
	return found, err
}

// statistics counts the documents of the part, and those with each term.
func (x *Index) statistics(ctx context.Context, g generation, q recallindex.Query) (recall.Statistics, error) {
	in := prefix(q.Project, q.Part)
	// Each count is the length of a list of Lucene, or its live part: the search itself finds nothing.
	filters := []map[string]any{{"term": map[string]any{"g": group(q.Project, q.Part)}}}
	for _, t := range q.Terms {
		filters = append(filters,
			map[string]any{"term": map[string]any{"v": in.feature(t.Text)}},
			map[string]any{"term": map[string]any{"l": in.feature(t.Text)}})
	}
	var answer struct {
		Aggregations struct {
			Counts struct {
				Buckets []struct {
					Count int `json:"doc_count"`
				} `json:"buckets"`
			} `json:"counts"`
		} `json:"aggregations"`
	}
	err := x.searchFor(ctx, g, q.Project, map[string]any{
		"size": 0, "track_total_hits": false,
		"aggs": map[string]any{"counts": map[string]any{"filters": map[string]any{"filters": filters}}},
	}, []string{"aggregations.counts.buckets.doc_count"}, &answer)
	if err != nil {
		return recall.Statistics{}, err
	}
	counts := answer.Aggregations.Counts.Buckets
	if len(counts) != len(filters) {
		return recall.Statistics{}, fmt.Errorf("elasticsearch counts %d of %d terms", len(counts), len(filters))
	}
	s := recall.Statistics{Docs: counts[0].Count, Frequencies: make([]recall.Count, len(q.Terms))}
	for i := range q.Terms {
		s.Frequencies[i] = recall.Count{Text: counts[1+2*i].Count, Label: counts[2+2*i].Count}
	}
	return s, nil
}

// maxClauses is the most clauses of a query. A server with little memory allows 1,024 in all.
const maxClauses = 1000

// candidateQuery is the query whose scores are those of recall.Weights; nil if no term occurs. Of more terms
// than a query may have it asks for those of the greatest weights.
func candidateQuery(q recallindex.Query, s recall.Statistics, weights recall.Weights) map[string]any {
	in := prefix(q.Project, q.Part)
	type clause struct {
		weight float64
		query  map[string]any
	}
	var clauses []clause
	for i, t := range q.Terms {
		if s.Frequencies[i].Text > 0 {
			clauses = append(clauses, clause{weights.Text(i), map[string]any{"term": map[string]any{"v": map[string]any{
				"value": in.feature(t.Text), "boost": weights.Text(i),
			}}}})
		}
		if s.Frequencies[i].Label > 0 {
			clauses = append(clauses, clause{weights.Label(i), map[string]any{"constant_score": map[string]any{
				"filter": map[string]any{"term": map[string]any{"l": in.feature(t.Text)}}, "boost": weights.Label(i),
			}}})
		}
	}
	if len(clauses) == 0 {
		return nil
	}
	if len(clauses) > maxClauses {
		slices.SortStableFunc(clauses, func(a, b clause) int { return cmp.Compare(b.weight, a.weight) })
		clauses = clauses[:maxClauses]
	}
	should := make([]map[string]any, len(clauses))
	for i, c := range clauses {
		should[i] = c.query
	}
	filter := readable(group(q.Project, q.Part), q.Audiences, q.From, q.To)
	return map[string]any{"bool": map[string]any{"filter": filter, "should": should, "minimum_should_match": 1}}
}

// readable are the filters for the documents of a group that a viewer may read, within a window.
func readable(group string, audiences []uuid.UUID, from, to *time.Time) []map[string]any {
	names := make([]string, len(audiences))
	for i, a := range audiences {
		names[i] = a.String()
	}
	filter := []map[string]any{{"term": map[string]any{"g": group}}, {"terms": map[string]any{"a": names}}}
	window := map[string]any{}
	if from != nil {
		window["gte"] = from.UnixMilli()
	}
	if to != nil {
		window["lte"] = to.UnixMilli()
	}
	if len(window) > 0 {
		filter = append(filter, map[string]any{"range": map[string]any{"at": window}})
	}
	return filter
}

// candidates returns the n best documents by the scores of Elasticsearch.
func (x *Index) candidates(
	ctx context.Context, g generation, q recallindex.Query, query map[string]any, n int,
) ([]hit, error) {
	var answer hitsAnswer
	body := map[string]any{
		"query": query, "size": n, "track_total_hits": false, "stored_fields": "_none_", "docvalue_fields": recordField,
	}
	if g.format != formerFormat {
		body["sort"] = []any{"_score", map[string]any{"o": "asc"}}
	}
	err := x.searchFor(ctx, g, q.Project, body, []string{"hits.hits.fields"}, &answer)
	return answer.Hits.Hits, err
}

// searchAlias returns the alias of a generation that answers searches, if it does.
func (x *Index) searchAlias(g generation) string {
	if x.isShadow {
		return x.options.writeAlias(g)
	}
	return x.options.readAlias(g)
}

// searchFor sends a search to the shard of the project, and always to the same copy of it.
func (x *Index) searchFor(
	ctx context.Context, g generation, project uuid.UUID, body map[string]any, wanted []string, out any,
) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	partial := false
	return x.client.do(ctx, x.options.limits.search, esapi.SearchRequest{
		Index: []string{x.searchAlias(g)}, Body: bytes.NewReader(text), Routing: []string{project.String()},
		Preference: project.String(), AllowPartialSearchResults: &partial, FilterPath: wanted,
	}, out)
}

// ranking scores candidates exactly.
type ranking struct {
	format  format
	query   recallindex.Query
	weights recall.Weights
	places  map[string]int // of the terms in the query
}

type scored struct {
	recallindex.Hit
	score float64
	order uint64
}

// best returns as many of the candidates as the query asks for.
func best(f format, q recallindex.Query, weights recall.Weights, candidates []hit) ([]recallindex.Hit, error) {
	r := ranking{format: f, query: q, weights: weights, places: make(map[string]int, len(q.Terms))}
	for i, t := range q.Terms {
		r.places[t.Text] = i
	}
	ranked := make([]scored, 0, len(candidates))
	for _, c := range candidates {
		s, err := r.scoreOf(c)
		if err != nil {
			return nil, err
		}
		ranked = append(ranked, s)
	}
	slices.SortStableFunc(ranked, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.order, b.order))
	})
	hits := make([]recallindex.Hit, min(len(ranked), q.Size))
	for i := range hits {
		hits[i] = ranked[i].Hit
	}
	return hits, nil
}

// scoreOf counts the terms of the query in a document.
func (r ranking) scoreOf(h hit) (s scored, err error) {
	is, err := h.record(r.format)
	if err == nil && !is.project(r.query.Project) {
		err = errors.New("elasticsearch returned a document of another project")
	}
	if err != nil {
		return s, err
	}
	inText, length := false, 0
	s.Hit = recallindex.Hit{
		Key: is.key, Counts: make([]recall.Count, len(r.query.Terms)), Traits: is.traits, States: is.states,
	}
	for _, t := range is.text {
		length += t.n
		if i, asked := r.places[t.term]; asked {
			s.Counts[i].Text += t.n
			inText = true
		}
	}
	for _, t := range is.label {
		if i, asked := r.places[t.term]; asked {
			s.Counts[i].Label = 1
		}
	}
	if inText {
		s.Length = length
	}
	s.score = r.weights.Score(s.Counts, s.Length)
	s.order = recallindex.Document{OccurredAt: time.UnixMilli(is.at), Tie: is.tie}.Order()
	return s, nil
}
