package why

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/recallindex"
)

// searchHits is how many documents of each group a search for words proposes at most.
const searchHits = 400

// search finds the data points and the memories of a search: the node or the source id that it names,
// and the documents that contain all its words. What it finds may be deleted since.
func (s *Trace) search(
	ctx context.Context, project auth.Project, text string,
) (dataPoints map[uuid.UUID]struct{}, memories []uuid.UUID, err error) {
	dataPoints, memories = map[uuid.UUID]struct{}{stream.DataPointID(project.Namespace, text): {}}, []uuid.UUID{}
	if id, err := uuid.Parse(text); err == nil {
		at, ok, err := s.locate(ctx, project, id)
		switch {
		case err != nil:
			return nil, nil, err
		case ok && at.node == id:
			dataPoints[at.dataPoint] = struct{}{}
		case ok:
			memories = append(memories, id)
		}
	}
	query, err := s.queryOf(ctx, project)
	if err != nil {
		return nil, nil, err
	}
	found, err := s.searchEither(ctx, query, text)
	if err != nil {
		s.Logger.WarnContext(ctx, "search for roots failed", "err", err)
		return nil, nil, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "memory cannot be searched now; retry")
	}
	for id := range withAll(found.sources, found.terms) {
		dataPoints[id] = struct{}{}
	}
	for _, h := range found.memories {
		if contains(h.Counts, found.terms) {
			memories = append(memories, h.Memory)
		}
	}
	return dataPoints, memories, nil
}

// found is what a search for a text proposes, and the terms that it looked for.
type found struct {
	terms             []recall.Term
	sources, memories []recallindex.Hit
}

// queryOf is a search of everything in a project, without its words.
func (s *Trace) queryOf(ctx context.Context, project auth.Project) (recallindex.Query, error) {
	audiences, err := s.audiences(ctx, project)
	return recallindex.Query{Project: project.ID, Audiences: audiences, Sources: searchHits, Memories: searchHits}, err
}

// searchEither is searchIndex, also while another generation is put into use.
func (s *Trace) searchEither(ctx context.Context, query recallindex.Query, text string) (found, error) {
	f, err := s.searchIndex(ctx, query, text)
	if errors.Is(err, recallindex.ErrOtherAnalysis) {
		f, err = s.searchIndex(ctx, query, text)
	}
	return f, err
}

// searchIndex searches both parts of the index for a text, with the analysis of the generation in use.
func (s *Trace) searchIndex(ctx context.Context, q recallindex.Query, text string) (f found, err error) {
	analyzer := s.Analyzers.Of(s.Index.Analysis())
	q.Terms, q.Analysis = analyzer.Query(text), analyzer.Version()
	if f.terms = q.Terms; len(f.terms) == 0 {
		return f, nil
	}
	both, err := s.Index.Search(ctx, q)
	f.sources, f.memories = both.Sources.Hits, both.Memories.Hits
	return f, err
}

// withAll returns the data points whose passages together contain every term.
func withAll(hits []recallindex.Hit, terms []recall.Term) map[uuid.UUID]struct{} {
	sums := map[uuid.UUID][]recall.Count{}
	for _, h := range hits {
		sum := sums[h.DataPoint]
		if sum == nil {
			sum = make([]recall.Count, len(terms))
			sums[h.DataPoint] = sum
		}
		for n, c := range h.Counts[:min(len(terms), len(h.Counts))] {
			sum[n].Text, sum[n].Label = sum[n].Text+c.Text, sum[n].Label+c.Label
		}
	}
	found := map[uuid.UUID]struct{}{}
	for id, sum := range sums {
		if contains(sum, terms) {
			found[id] = struct{}{}
		}
	}
	return found
}

// contains reports whether every word occurs, in any form.
func contains(counts []recall.Count, terms []recall.Term) bool {
	if len(counts) < len(terms) {
		return false
	}
	missing := map[int]struct{}{}
	for _, t := range terms {
		missing[t.For] = struct{}{}
	}
	for i, t := range terms {
		if counts[i].Text+counts[i].Label > 0 {
			delete(missing, t.For)
		}
	}
	return len(missing) == 0
}

// audiences returns every audience that a data point of the project has, removed ones too: a project
// key sees everything.
func (s *Trace) audiences(ctx context.Context, project auth.Project) ([]uuid.UUID, error) {
	rows, err := s.DB.Query(ctx, `select audience from datapoints.scopes where project_id = $1`, project.ID)
	if err != nil {
		return nil, fmt.Errorf("read audiences: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("read audiences: %w", err)
	}
	return list, nil
}
