package recall

import (
	"slices"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
)

// arrange gives the candidates their final scores and places. byWords are the scores without similarity.
func (p *Pass) arrange(byWords []float64) {
	r := p.Ranking
	list := make([]recall.Placed, len(r.IDs))
	for i, row := range r.DataPoints {
		memory, score := best(&r.Candidates[i])
		list[i] = recall.Placed{
			Score: score, ByWords: byWords[i], OccurredAt: row.occurredAt, SourceID: row.sourceID,
			Exactly: memory != nil, SupersededBy: recall.None, WordForWord: row.match.wordForWord,
		}
		if best := row.match.passage; best != nil {
			exactly, spelled := p.Asked.Matched(best.Counts)
			list[i].Held, list[i].Exactly, list[i].Spelled = best.held, list[i].Exactly || exactly, spelled
		}
	}
	p.noteSuperseded(list)
	p.noteStatements(list)
	r.Moves = make(map[int]recall.Place)
	for n, place := range p.Asked.Order(list) {
		c := &r.Candidates[place.Candidate]
		c.Place = n
		if place.Move != recall.MoveNone {
			r.Moves[place.Candidate] = place
		}
		own := list[place.Candidate].Score
		c.Score = place.Of(own, c.Score)
		for m := range c.Memories {
			c.Memories[m].Score = place.Of(own, c.Memories[m].Score)
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

// noteSuperseded notes the candidates whose best claim another candidate supersedes, unless the question names a value
// that only the superseded claim has.
func (p *Pass) noteSuperseded(list []recall.Placed) {
	var asked map[string]struct{}
	stems := p.service.config.Analyzers.Newest().Stems
	for i := range list {
		claim := p.Ranking.bestClaim(i)
		if claim == nil || claim.supersededBy == nil {
			continue
		}
		newer := p.gate.dataPoints[*claim.supersededBy]
		if newer == nil || newer.rank.candidate == 0 || newer.rank.candidate == i+1 {
			continue
		}
		if asked == nil {
			asked = setOf(stems(p.Text))
		}
		later := setOf(stems(claim.supersededTo))
		named := slices.ContainsFunc(stems(claim.content), func(stem string) bool {
			_, isAsked := asked[stem]
			_, stays := later[stem]
			return isAsked && !stays
		})
		if !named {
			list[i].SupersededBy = newer.rank.candidate - 1
		}
	}
}

func setOf(terms []string) map[string]struct{} {
	set := make(map[string]struct{}, len(terms))
	for _, t := range terms {
		set[t] = struct{}{}
	}
	return set
}

// noteStatements notes what the short texts state.
func (p *Pass) noteStatements(list []recall.Placed) {
	for i, row := range p.Ranking.DataPoints {
		if row.states == (recall.States{}) || p.Ranking.Candidates[i].Hidden {
			continue
		}
		list[i].States = &recall.Statement{States: row.states}
		if claim := p.Ranking.bestClaim(i); claim != nil {
			list[i].States.Claim = claim.content
		}
	}
}

// bestClaim returns the claim of a candidate that matches the question best, nil for none.
func (r *ranking) bestClaim(i int) (claim *memoryRow) {
	best := 0.0
	for m, l := range r.Memories[i] {
		if score := r.Candidates[i].Memories[m].Score; l.kind == memory.Claim && (claim == nil || score > best) {
			claim, best = l, score
		}
	}
	return claim
}
