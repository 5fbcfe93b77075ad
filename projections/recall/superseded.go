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

// restatedAmong is the most candidates, best first, among which restated texts are looked for, and restatedBytes the
// most bytes of such a text.
const (
	restatedAmong = 32
	restatedBytes = 256
)

// restatedShare is what the score of a later text is of the score of the text that it restates.
const restatedShare = 1 / supersededShare

// promote ranks a short text above an earlier one of the same author that it restates, if both have the same words of
// the question: the extractor may find no claim in them. Texts are taken from the earliest on, so that several on one
// subject are in order.
func (r *ranking) promote(g *gate, passages map[uuid.UUID]*passage) {
	r.promoted = make(map[int]float64)
	order := make([]int, len(r.ids))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(r.candidates[b].Score, r.candidates[a].Score), bytes.Compare(r.ids[a][:], r.ids[b][:]))
	})
	short := make([]statement, 0, restatedAmong)
	for _, i := range order[:min(len(order), restatedAmong)] {
		if s, ok := r.statement(i, g, passages); ok {
			short = append(short, s)
		}
	}
	slices.SortStableFunc(short, func(a, b statement) int {
		return r.dataPoints[a.place].occurredAt.Compare(r.dataPoints[b.place].occurredAt)
	})
	for n, later := range short {
		c, most := &r.candidates[later.place], 0.0
		for _, earlier := range short[:n] {
			if score := r.candidates[earlier.place].Score; score >= c.Score && earlier.restatedBy(later) &&
				r.dataPoints[earlier.place].occurredAt.Before(r.dataPoints[later.place].occurredAt) {
				most = max(most, score*restatedShare)
			}
		}
		if share := most / c.Score; share > 1 {
			r.promoted[later.place] = share
			c.Score = most
			for m := range c.Memories {
				c.Memories[m].Score *= share
			}
		}
	}
}

// statement is the short text of the candidate at a place. Two statements have the same words of the question if their
// words are equal.
type statement struct {
	place         int
	author, words string
	content       string
}

// statement returns the text of a candidate; ok is false if it is no short statement that was found by its words.
func (r *ranking) statement(i int, g *gate, passages map[uuid.UUID]*passage) (s statement, ok bool) {
	p, found := r.dataPoints[i], passages[r.ids[i]]
	text := g.texts[revisionKey{r.ids[i], p.revision}]
	_, demoted := r.demoted[i]
	if found == nil || text == nil || p.author == nil || p.size > restatedBytes || demoted ||
		r.candidates[i].Score <= 0 || found.Traits.Has(recall.IsQuestion) {
		return s, false
	}
	has := make([]byte, len(found.Counts))
	for n, c := range found.Counts {
		if c.Text > 0 {
			has[n] = 1
		}
	}
	return statement{i, *p.author, string(has), string(text.content)}, true
}

// restatedBy reports whether a later statement restates this one.
func (s statement) restatedBy(later statement) bool {
	return s.author == later.author && s.words == later.words && recall.Restates(later.content, s.content)
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
