package recall

import (
	"slices"
	"strings"

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
			HeldAnywhere: row.match.held, ByAsker: p.Asked.Asker != "" && row.author != nil && *row.author == p.Asked.Asker,
		}
		if !r.Candidates[i].Hidden {
			list[i].Wording = row.match.wording
		}
		if p.isOnlyNeighbour(row) {
			list[i].NextTo = p.matchesNextTo(row)
		}
		if best := row.match.passage; best != nil {
			exactly, spelled := p.Asked.Matched(best.counts)
			list[i].Held, list[i].Exactly, list[i].Spelled = best.held, list[i].Exactly || exactly, spelled
			list[i].Negates, list[i].IsQuestion = best.traits.Has(recall.Negates), best.traits.Has(recall.IsQuestion)
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

// isOnlyNeighbour reports whether a data point is a candidate for nothing but a match next to it.
func (p *Pass) isOnlyNeighbour(row *dataPointRow) bool {
	_, found := p.Found.scores[row.id]
	return row.isNeighbour && !found && row.match.passage == nil && row.match.key == 0
}

// matchesNextTo returns the candidates with a match within two steps of a data point in its conversation.
func (p *Pass) matchesNextTo(row *dataPointRow) (next []int) {
	if row.rank.turn == 0 {
		return nil
	}
	r := p.Ranking
	for _, step := range []func(*recall.Turn) int{
		func(t *recall.Turn) int { return t.Before }, func(t *recall.Turn) int { return t.After },
	} {
		turn := row.rank.turn - 1
		for range 2 {
			if turn = step(&r.Turns[turn]); turn == recall.None {
				break
			}
			near := p.gate.dataPoints[r.Turned[turn]]
			if near.rank.candidate > 0 && !p.isOnlyNeighbour(near) {
				next = append(next, near.rank.candidate-1)
			}
		}
	}
	return next
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

// noteSuperseded notes the candidates whose best claim another candidate supersedes, and those whose best identity has
// another value in a later one, unless the question names a value that only the earlier has.
func (p *Pass) noteSuperseded(list []recall.Placed) {
	identities := p.laterIdentities()
	var asked map[string]struct{}
	stems := p.service.config.Analyzers.Newest().Stems
	for i := range list {
		newer, content, later := p.superseding(i, identities)
		if newer == recall.None || newer == i {
			continue
		}
		if asked == nil {
			asked = setOf(stems(p.Text))
		}
		stay := setOf(stems(later))
		named := slices.ContainsFunc(stems(content), func(stem string) bool {
			_, isAsked := asked[stem]
			_, stays := stay[stem]
			return isAsked && !stays
		})
		if !named {
			list[i].SupersededBy = newer
		}
	}
}

// superseding returns the candidate that supersedes what another one states, None for none, with what each of them
// states.
func (p *Pass) superseding(i int, identities map[string]int) (newer int, content, later string) {
	if claim := p.Ranking.best(i, memory.Claim); claim != nil && claim.supersededBy != nil {
		row := p.gate.dataPoints[*claim.supersededBy]
		if row == nil || row.rank.candidate == 0 {
			return recall.None, "", ""
		}
		return row.rank.candidate - 1, claim.content, claim.supersededTo
	}
	own := p.Ranking.best(i, memory.Identity)
	if own == nil {
		return recall.None, "", ""
	}
	newer, known := identities[about(own)]
	if !known || !p.Ranking.best(newer, memory.Identity).occurredAt.After(own.occurredAt) {
		return recall.None, "", ""
	}
	return newer, own.content, p.Ranking.best(newer, memory.Identity).content
}

// laterIdentities returns the candidate with the latest identity of each subject and attribute. Their events have
// neither, but state both: "Ana's phone number is 555 0134".
func (p *Pass) laterIdentities() map[string]int {
	latest := make(map[string]int)
	for i := range p.Ranking.Candidates {
		own := p.Ranking.best(i, memory.Identity)
		if own == nil || about(own) == "" {
			continue
		}
		other, known := latest[about(own)]
		if !known || own.occurredAt.After(p.Ranking.best(other, memory.Identity).occurredAt) ||
			own.occurredAt.Equal(p.Ranking.best(other, memory.Identity).occurredAt) &&
				p.Ranking.DataPoints[i].sourceID < p.Ranking.DataPoints[other].sourceID {
			latest[about(own)] = i
		}
	}
	return latest
}

// about returns subject and attribute of an identity, "" if it states no value of one.
func about(l *memoryRow) string {
	subject, _, ok := strings.Cut(l.content, "'s ")
	what, _, states := strings.Cut(l.content, " is ")
	if !ok || !states || len(subject) > len(what) {
		return ""
	}
	return what
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
	stated := make([]recall.Statement, len(list))
	for i, row := range p.Ranking.DataPoints {
		if row.states == (recall.States{}) || p.Ranking.Candidates[i].Hidden {
			continue
		}
		list[i].States = &stated[i]
		list[i].States.States = row.states
		if claim := p.Ranking.best(i, memory.Claim); claim != nil {
			list[i].States.Claim = claim.content
		}
	}
}

// best returns the memory of a kind of a candidate that matches the question best, nil for none.
func (r *ranking) best(i int, kind string) (of *memoryRow) {
	best := 0.0
	for m, l := range r.Memories[i] {
		if score := r.Candidates[i].Memories[m].Score; l.kind == kind && (of == nil || score > best) {
			of, best = l, score
		}
	}
	return of
}
