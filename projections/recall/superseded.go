package recall

import (
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
