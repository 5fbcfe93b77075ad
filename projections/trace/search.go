package trace

import (
	"context"
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
func (s *Service) search(
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
	terms := s.Analyzer.Query(text)
	if len(terms) == 0 {
		return dataPoints, memories, nil
	}
	audiences, err := s.audiences(ctx, project)
	if err != nil {
		return nil, nil, err
	}
	query := recallindex.Query{
		Project: project.ID, Terms: terms, Audiences: audiences, Size: searchHits,
	}
	query.Part = recallindex.Sources
	sources, err := s.searchIndex(ctx, query)
	if err != nil {
		return nil, nil, err
	}
	query.Part = recallindex.Memories
	derived, err := s.searchIndex(ctx, query)
	if err != nil {
		return nil, nil, err
	}
	for id := range withAll(sources.Hits, terms) {
		dataPoints[id] = struct{}{}
	}
	for _, h := range derived.Hits {
		if contains(h.Counts, terms) {
			memories = append(memories, h.Memory)
		}
	}
	return dataPoints, memories, nil
}

// searchIndex searches one part of the index. Its fault is service-unavailable.
func (s *Service) searchIndex(ctx context.Context, q recallindex.Query) (recallindex.Result, error) {
	found, err := s.Index.Search(ctx, q)
	if err != nil {
		s.Logger.WarnContext(ctx, "search for roots failed", "err", err)
		return found, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "memory cannot be searched now; retry")
	}
	return found, nil
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
func (s *Service) audiences(ctx context.Context, project auth.Project) ([]uuid.UUID, error) {
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
