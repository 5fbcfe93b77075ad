package elastic

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections/recallindex"
)

// Search implements recallindex.Index.
func (x *Index) Search(ctx context.Context, q recallindex.Query) (found recallindex.Found, err error) {
	err = x.ask(ctx, func(g generation) error {
		found, err = x.search(ctx, g, q)
		return err
	})
	if err != nil {
		return recallindex.Found{}, fmt.Errorf("search recall index: %w", err)
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

func (x *Index) search(ctx context.Context, g generation, q recallindex.Query) (found recallindex.Found, err error) {
	if g.analysis != q.Analysis {
		return found, recallindex.ErrOtherAnalysis
	}
	parts := q.Parts()
	for _, part := range parts {
		found.Of(part.Part).Statistics.Frequencies = make([]recall.Count, len(q.Terms))
	}
	if len(q.Terms) == 0 || len(parts) == 0 {
		return found, nil
	}
	statistics, err := x.statistics(ctx, g, q, parts)
	if err != nil {
		return found, err
	}
	var asked []candidateSearch
	for i, part := range parts {
		found.Of(part.Part).Statistics = statistics[i]
		if c, ok := newCandidateSearch(part, statistics[i]); ok {
			asked = append(asked, c)
		}
	}
	hits, err := x.candidates(ctx, g, q.Project, asked)
	if err != nil {
		return found, err
	}
	// Records take most of the processor time of a search, so those of both parts are unpacked at once.
	group, ctx := errgroup.WithContext(ctx)
	for i, c := range asked {
		group.Go(func() error {
			return panics.Call(ctx, x.options.Log, "search of recall index panicked", func() (err error) {
				found.Of(c.part.Part).Hits, err = c.best(hits[i])
				return err
			}, "part", c.part.Part)
		})
	}
	return found, group.Wait()
}

// partCounts are the counts of one part.
type partCounts struct {
	Buckets []struct {
		Count int `json:"doc_count"`
	} `json:"buckets"`
}

// statistics counts the documents of each part, and those with each term.
func (x *Index) statistics(
	ctx context.Context, g generation, q recallindex.Query, parts []recallindex.PartQuery,
) ([]recall.Statistics, error) {
	counted := make(map[recallindex.Part]any, len(parts))
	for _, part := range parts {
		in := prefix(q.Project, part.Part)
		// Each count is the length of a list of Lucene, or its live part: the search itself finds nothing.
		filters := []map[string]any{{"term": map[string]any{"g": group(q.Project, part.Part)}}}
		for _, t := range q.Terms {
			filters = append(filters,
				map[string]any{"term": map[string]any{"v": in.feature(t.Text)}},
				map[string]any{"term": map[string]any{"l": in.feature(t.Text)}})
		}
		counted[part.Part] = map[string]any{"filters": map[string]any{"filters": filters}}
	}
	var answer struct {
		Aggregations map[recallindex.Part]partCounts `json:"aggregations"`
	}
	err := x.searchFor(ctx, g, q.Project, map[string]any{"size": 0, "track_total_hits": false, "aggs": counted},
		[]string{"aggregations.*.buckets.doc_count"}, &answer)
	if err != nil {
		return nil, err
	}
	all := make([]recall.Statistics, len(parts))
	for p, part := range parts {
		counts := answer.Aggregations[part.Part].Buckets
		if want := 1 + 2*len(q.Terms); len(counts) != want {
			return nil, fmt.Errorf("elasticsearch counts %d of %d terms", len(counts), want)
		}
		s := recall.Statistics{Docs: counts[0].Count, Frequencies: make([]recall.Count, len(q.Terms))}
		for i := range q.Terms {
			s.Frequencies[i] = recall.Count{Text: counts[1+2*i].Count, Label: counts[2+2*i].Count}
		}
		all[p] = s
	}
	return all, nil
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

const (
	// leastCandidates is how many candidates a search fetches at least. It fetches half as many more as
	// it returns, because the scores of Elasticsearch are not exact.
	leastCandidates = 400
	// maxWindow is the most hits that Elasticsearch returns.
	maxWindow = 10_000
)

// candidateSearch is a search for the candidates of one part, which it scores exactly.
type candidateSearch struct {
	part    recallindex.PartQuery
	weights recall.Weights
	places  map[string]int // of the terms in the query
	query   map[string]any
}

// newCandidateSearch makes the search for a part with these statistics. ok is false if nothing can be found.
func newCandidateSearch(part recallindex.PartQuery, s recall.Statistics) (c candidateSearch, ok bool) {
	c = candidateSearch{
		part: part, weights: s.Weights(part.Terms).Shared(part.Terms), places: make(map[string]int, len(part.Terms)),
	}
	for i, t := range part.Terms {
		c.places[t.Text] = i
	}
	if s.Docs > 0 && len(part.Audiences) > 0 {
		c.query = candidateQuery(part, s, c.weights)
	}
	return c, c.query != nil
}

// body asks for the best documents by the scores of Elasticsearch.
func (c candidateSearch) body() map[string]any {
	size := min(max(leastCandidates, c.part.Size+c.part.Size/2), maxWindow)
	return map[string]any{
		"query": c.query, "size": size, "track_total_hits": false, "stored_fields": "_none_",
		"docvalue_fields": recordField, "sort": []any{"_score", map[string]any{"o": "asc"}},
	}
}

// candidatesAnswer is the answer to several searches, in their order.
type candidatesAnswer struct {
	Responses []struct {
		hitsAnswer
		Status int `json:"status"`
		Error  struct {
			Type string `json:"type"`
		} `json:"error"`
	} `json:"responses"`
}

// refusal implements several.
func (a *candidatesAnswer) refusal() error {
	for _, r := range a.Responses {
		if r.Status >= http.StatusBadRequest {
			return &responseError{status: r.Status, kind: r.Error.Type}
		}
	}
	return nil
}

// candidates makes the searches in one request, and returns what each found.
func (x *Index) candidates(
	ctx context.Context, g generation, project uuid.UUID, searches []candidateSearch,
) ([][]hit, error) {
	if len(searches) == 0 {
		return nil, nil
	}
	// Both go to the same copy of the shard as the statistics.
	where := map[string]any{
		"routing": project.String(), "preference": project.String(), "allow_partial_search_results": false,
	}
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for _, c := range searches {
		if err := errors.Join(encoder.Encode(where), encoder.Encode(c.body())); err != nil {
			return nil, err
		}
	}
	var answer candidatesAnswer
	err := x.client.do(ctx, x.options.limits.search, esapi.MsearchRequest{
		Index: []string{x.searchAlias(g)}, Body: &lines,
		FilterPath: []string{"responses.hits.hits.fields", "responses.status", "responses.error.type"},
	}, &answer)
	if err != nil {
		return nil, err
	}
	if len(answer.Responses) != len(searches) {
		return nil, fmt.Errorf("elasticsearch answers %d of %d searches", len(answer.Responses), len(searches))
	}
	found := make([][]hit, len(searches))
	for i, r := range answer.Responses {
		found[i] = r.Hits.Hits
	}
	return found, nil
}

// maxClauses is the most clauses of a query. A server with little memory allows 1,024 in all.
const maxClauses = 1000

// candidateQuery is the query whose scores are those of recall.Weights; nil if no term occurs. Of more terms
// than a query may have it asks for those of the greatest weights.
func candidateQuery(q recallindex.PartQuery, s recall.Statistics, weights recall.Weights) map[string]any {
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

type scored struct {
	recallindex.Hit
	score float64
	order uint64
}

// best returns as many of the candidates as the query asks for.
func (c candidateSearch) best(candidates []hit) ([]recallindex.Hit, error) {
	ranked := make([]scored, 0, len(candidates))
	for _, h := range candidates {
		s, err := c.scoreOf(h)
		if err != nil {
			return nil, err
		}
		ranked = append(ranked, s)
	}
	slices.SortStableFunc(ranked, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.order, b.order))
	})
	hits := make([]recallindex.Hit, min(len(ranked), c.part.Size))
	for i := range hits {
		hits[i] = ranked[i].Hit
	}
	return hits, nil
}

// scoreOf counts the terms of the query in a document.
func (c candidateSearch) scoreOf(h hit) (s scored, err error) {
	is, err := h.record()
	if err == nil && !is.project(c.part.Project) {
		err = errors.New("elasticsearch returned a document of another project")
	}
	if err != nil {
		return s, err
	}
	inText, length := false, 0
	s.Hit = recallindex.Hit{
		Key: is.key, Counts: make([]recall.Count, len(c.part.Terms)), Traits: is.traits,
	}
	for _, t := range is.text {
		length += t.n
		if i, asked := c.places[t.term]; asked {
			s.Counts[i].Text += t.n
			inText = true
		}
	}
	for _, t := range is.label {
		if i, asked := c.places[t.term]; asked {
			s.Counts[i].Label = 1
		}
	}
	if inText {
		s.Length = length
	}
	s.score = c.weights.Score(s.Counts, s.Length)
	s.order = recallindex.Document{OccurredAt: time.UnixMilli(is.at), Tie: is.tie}.Order()
	return s, nil
}
