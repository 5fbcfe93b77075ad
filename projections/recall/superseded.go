package recall

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
)

// supersededShare is the most that the score of a superseded claim may be, as a share of the score of what supersedes
// it.
const supersededShare = 0.999

// demote ranks a data point whose best memory is a superseded claim below the one that supersedes it, if that is a
// candidate, too. Newer ones come first, so that several claims on one subject are in order.
func (r *ranking) demote() {
	r.demoted = make(map[int]float64)
	places, order := make(map[uuid.UUID]int, len(r.ids)), make([]int, len(r.ids))
	for i, id := range r.ids {
		places[id], order[i] = i, i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return r.dataPoints[b].occurredAt.Compare(r.dataPoints[a].occurredAt)
	})
	for _, i := range order {
		c := &r.candidates[i]
		memory, score := best(c)
		if memory == nil || r.memories[i][*memory].supersededBy == nil {
			continue
		}
		newer, known := places[*r.memories[i][*memory].supersededBy]
		if !known || newer == i {
			continue
		}
		_, most := best(&r.candidates[newer])
		if most *= supersededShare; most <= 0 || score <= most {
			continue
		}
		share := most / score
		r.demoted[i] = share
		c.Score *= share
		for m := range c.Memories {
			c.Memories[m].Score *= share
		}
	}
}

// updatedAmong is the most candidates, best first, among which updates are looked for. statementBytes is the most bytes
// of a text that is compared by all its words.
const (
	updatedAmong   = 32
	statementBytes = 256
)

// updateShare is what the score of an update is of the score of the text that it updates.
const updateShare = 1 / supersededShare

// promote ranks a text above an earlier one of the same author that it updates: the extractor may find no claim in
// them. Texts are taken from the earliest on, so that several on one subject are in order.
func (s *Service) promote(r *ranking, g *gate, question *question, f *candidates, passages map[uuid.UUID]*passage) {
	r.promoted = make(map[int]float64)
	order := make([]int, len(r.ids))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(r.candidates[b].Score, r.candidates[a].Score), bytes.Compare(r.ids[a][:], r.ids[b][:]))
	})
	order = slices.DeleteFunc(order[:min(len(order), updatedAmong)], func(i int) bool {
		_, demoted := r.demoted[i]
		return demoted || r.dataPoints[i].author == nil || r.candidates[i].Score <= 0
	})
	ranks := make(map[int]int, len(order))
	for rank, i := range order {
		ranks[i] = rank
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return r.dataPoints[a].occurredAt.Compare(r.dataPoints[b].occurredAt)
	})
	statements := make([]recall.Statement, len(order))
	for n, i := range order {
		key := revisionKey{r.ids[i], r.dataPoints[i].revision}
		statements[n] = s.statement(g.texts[key], f.weights[:question.asked.Own()], passages[key.dataPoint], &question.asked)
		statements[n].Rank = ranks[i]
	}
	for n, i := range order {
		c, most := &r.candidates[i], 0.0
		statements[n].Score = c.Score
		for m, j := range order[:n] {
			if score := r.candidates[j].Score; score >= c.Score && *r.dataPoints[j].author == *r.dataPoints[i].author &&
				r.dataPoints[j].occurredAt.Before(r.dataPoints[i].occurredAt) && statements[m].UpdatedBy(&statements[n]) {
				most = max(most, score*updateShare)
			}
		}
		if share := most / c.Score; share > 1 {
			r.promoted[i], statements[n].Score = share, most
			c.Score = most
			for m := range c.Memories {
				c.Memories[m].Score *= share
			}
		}
	}
}

// statement describes a text by its best passage, which is nil if words did not find it. The text is nil if it is long.
// Its rank and its score are not set.
func (s *Service) statement(
	text *body, weights recall.Weights, best *passage, asked *recall.Question,
) (statement recall.Statement) {
	var traits recall.Traits
	statement.Words = make([]float64, len(weights))
	switch {
	case best != nil:
		traits = best.Traits
		sum := 0.0
		for n := range weights {
			sum += weights.Text(n)
		}
		for n := range weights {
			if best.Counts[n].Text > 0 {
				statement.Words[n] = weights.Text(n) / sum
			}
		}
	case text != nil:
		traits = recall.TraitsOf(string(text.content))
	}
	statement.Changes, statement.Answers = traits.Has(recall.ChangeEvidence), asked.Answers(traits)
	if text != nil && len(text.content) <= statementBytes && !traits.Has(recall.IsQuestion) {
		terms := s.config.Analyzers.Newest().Terms(string(text.content))
		slices.Sort(terms)
		statement.Terms, statement.HintsChange = slices.Compact(terms), recall.HintsChange(string(text.content))
	}
	return statement
}

// best returns the index of the best memory of a candidate, nil for none, and the best score of it and its memories.
func best(c *recall.Candidate) (memory *int, score float64) {
	for i := range c.Memories {
		if memory == nil || c.Memories[i].Score > c.Memories[*memory].Score {
			memory = &i
		}
	}
	if score = c.Score; memory != nil {
		score = max(score, c.Memories[*memory].Score)
	}
	return memory, score
}
