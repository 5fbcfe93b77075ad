package recall

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
)

// arrange gives the candidates their final scores and places.
func (s *Service) arrange(
	ctx context.Context, r *ranking, g *gate, question *question, passages map[uuid.UUID]*passage,
	scores map[uuid.UUID]turnScore,
) error {
	list := make([]recall.Placed, len(r.ids))
	places := make(map[uuid.UUID]int, len(r.ids))
	for i, id := range r.ids {
		places[id] = i
		memory, score := best(&r.candidates[i])
		list[i] = recall.Placed{
			Score: score, ByWords: scores[id].byWords,
			OccurredAt: r.dataPoints[i].occurredAt, SourceID: r.dataPoints[i].sourceID,
			Exactly: memory != nil, SupersededBy: recall.None,
		}
		if p := passages[id]; p != nil {
			exactly, spelled := question.asked.Matched(p.Counts)
			list[i].Held, list[i].Exactly, list[i].Spelled = p.held, list[i].Exactly || exactly, spelled
		}
	}
	s.noteSuperseded(r, question, places, list)
	if err := s.noteWordForWord(ctx, r, g, question, list); err != nil {
		return err
	}
	s.noteStatements(r, g, passages, list)
	r.moves = make(map[int]recall.Place)
	for place, p := range question.asked.Order(list) {
		c := &r.candidates[p.Candidate]
		c.Place = place
		if p.Move != recall.MoveNone {
			r.moves[p.Candidate] = p
		}
		own := list[p.Candidate].Score
		c.Score = p.Of(own, c.Score)
		for m := range c.Memories {
			c.Memories[m].Score = p.Of(own, c.Memories[m].Score)
		}
	}
	return nil
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
func (s *Service) noteSuperseded(r *ranking, question *question, places map[uuid.UUID]int, list []recall.Placed) {
	var asked map[string]struct{}
	for i := range list {
		claim := bestClaim(r, i)
		if claim == nil || claim.supersededBy == nil {
			continue
		}
		newer, known := places[*claim.supersededBy]
		if !known || newer == i {
			continue
		}
		if asked == nil {
			asked = setOf(s.stems(question.Text))
		}
		later := setOf(s.stems(claim.supersededTo))
		named := slices.ContainsFunc(s.stems(claim.content), func(stem string) bool {
			_, isAsked := asked[stem]
			_, stays := later[stem]
			return isAsked && !stays
		})
		if !named {
			list[i].SupersededBy = newer
		}
	}
}

func (s *Service) stems(text string) []string { return s.config.Analyzers.Newest().Stems(text) }

func setOf(terms []string) map[string]struct{} {
	set := make(map[string]struct{}, len(terms))
	for _, t := range terms {
		set[t] = struct{}{}
	}
	return set
}

// wordForWordRead is the most texts that are read to see whether they are the question, and wordForWordSize what their
// size may be, in sizes of the question: other spaces and marks are no other words, and a decomposed Korean text has
// three times the bytes.
const (
	wordForWordRead = 8
	wordForWordSize = 4
)

// noteWordForWord notes the texts that are the question, word for word.
func (s *Service) noteWordForWord(
	ctx context.Context, r *ranking, g *gate, question *question, list []recall.Placed,
) error {
	own, size := question.asked.Own(), int64(len(question.Text))
	if own == 0 {
		return nil
	}
	all := recall.AllWords(own)
	words := recall.WordsOf(question.Text)
	var unread []part
	var of []int
	for i, id := range r.ids {
		p := r.dataPoints[i]
		if list[i].Held != all || p.size > wordForWordSize*size || size > wordForWordSize*p.size {
			continue
		}
		key := revisionKey{id, p.revision}
		if b := g.texts[key]; b != nil && b.content != nil {
			list[i].WordForWord = slices.Equal(words, recall.WordsOf(string(b.content)))
		} else if p.big == nil && len(unread) < wordForWordRead {
			unread, of = append(unread, part{revisionKey: key, content: true}), append(of, i)
		}
	}
	if len(unread) == 0 {
		return nil
	}
	bodies, err := g.bodies(ctx, unread)
	if err != nil {
		return err
	}
	for n, i := range of {
		if b := bodies[unread[n].revisionKey]; b != nil {
			list[i].WordForWord = slices.Equal(words, recall.WordsOf(string(b.content)))
		}
	}
	return nil
}

// noteStatements notes what the short texts state: as the index knows it, or else as they are read.
func (s *Service) noteStatements(r *ranking, g *gate, passages map[uuid.UUID]*passage, list []recall.Placed) {
	for i, id := range r.ids {
		key := revisionKey{id, r.dataPoints[i].revision}
		b := g.texts[key]
		if b == nil || len(b.content) == 0 || r.candidates[i].Hidden {
			continue
		}
		states := &recall.Statement{}
		if p := passages[id]; p != nil {
			states.States = p.states
		}
		if states.States == (recall.States{}) {
			states.States = s.statesOf(key, string(b.content))
		}
		if claim := bestClaim(r, i); claim != nil {
			states.Claim = claim.content
		}
		list[i].States = states
	}
}

// bestClaim returns the claim of a candidate that matches the question best, nil for none.
func bestClaim(r *ranking, i int) (claim *memoryRow) {
	best := 0.0
	for m, l := range r.memories[i] {
		if score := r.candidates[i].Memories[m].Score; l.kind == memory.Claim && (claim == nil || score > best) {
			claim, best = l, score
		}
	}
	return claim
}

// statesOf returns what a text states. It is a pure function of the text, so the service caches it.
func (s *Service) statesOf(key revisionKey, text string) recall.States {
	if known, ok := s.statements.Get(key); ok {
		return known
	}
	states := s.config.Analyzers.Newest().States(text)
	s.statements.Add(key, states)
	return states
}
