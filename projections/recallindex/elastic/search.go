package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
