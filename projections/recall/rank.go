package recall

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// ranking holds the candidates of a response with their rows: Candidates[i] is DataPoints[i], its
// Memories[j] is Memories[i][j].
type ranking struct {
	Candidates []recall.Candidate
	IDs        []uuid.UUID
	DataPoints []*dataPointRow
	Memories   [][]*memoryRow
	// Moves are the candidates that are not where their scores put them.
	Moves map[int]recall.Place
	// Turned are the data points that were scored with their neighbours, each with its turn in Turns.
	Turned []uuid.UUID
	Turns  []recall.Turn
}

// shown is how many candidates may be shown as sources.
func (r *ranking) shown() (n int) {
	for i := range r.Candidates {
		if !r.Candidates[i].Hidden {
			n++
		}
	}
	return n
}

// maxWeight is the most weight of any memory.
const maxWeight = 0.9

// Worth returns what the kind of a memory adds to its source, and its weight as a key to that source. A
// memory that only repeats its source in fewer words must not outrank another source.
func (l *memoryRow) Worth() (recall.Worth, float64) {
	if l.supersededAt != nil {
		return recall.Superseded, maxWeight
	}
	if kind, _ := memory.KindOf(l.kind); kind.Distilled {
		return recall.Distilled, maxWeight
	}
	return recall.Repeated, 0.8
}

// places are where a data point is among the ranked, each from 1, 0 for nowhere: its turn, and its candidate.
type places struct{ turn, candidate int }

// rank makes candidates of what passed the gate and of the neighbours of the best of it, with scores and places.
// It is a function of what the steps before it found.
func (p *Pass) rank() {
	most := len(p.gate.dataPoints)
	r := &ranking{
		Candidates: make([]recall.Candidate, 0, most), IDs: make([]uuid.UUID, 0, most),
		DataPoints: make([]*dataPointRow, 0, most), Memories: make([][]*memoryRow, 0, most),
	}
	r.Turned, r.Turns = p.turns()
	totals, byWords := p.Analyzer.RankByWords(p.Asked, p.Found.Weights, r.Turns, p.service.config.Without...)
	scores := make([]float64, 0, most)
	for id, row := range p.gate.dataPoints {
		score, own, memories := 0.0, 0.0, row.match.memories
		if row.rank.turn > 0 && totals[row.rank.turn-1] > 0 {
			score, own = totals[row.rank.turn-1], byWords[row.rank.turn-1]
		}
		row.rank.candidate = 0
		if score == 0 && (row.inWindow || len(memories) == 0) {
			continue // it has nothing of the question, or too little
		}
		c := recall.Candidate{
			ID: row.node, OccurredAt: row.occurredAt, Score: score, Hidden: !row.inWindow, Least: int(row.leastTokens()),
		}
		shown := p.derived(&c, row)
		r.Candidates, r.IDs, scores = append(r.Candidates, c), append(r.IDs, id), append(scores, own)
		r.DataPoints, r.Memories = append(r.DataPoints, row), append(r.Memories, shown)
		row.rank.candidate = len(r.IDs)
	}
	p.Ranking = r
	p.arrange(scores)
}

// derived adds the memories of a candidate, and returns their rows.
func (p *Pass) derived(c *recall.Candidate, row *dataPointRow) (shown []*memoryRow) {
	own := 0.0
	if best := row.match.passage; best != nil {
		own = p.Found.ChooseBy.Score(best.counts, best.length)
	}
	for _, i := range row.match.memories {
		l := p.gate.memories[p.Found.Memories.Hits[i].Memory]
		if slices.Contains(shown, l) {
			continue
		}
		value, weight := l.Worth()
		key := weight * p.Found.MemoryScores[i]
		if c.Score > 0 && key > 0 {
			// The score of its source without the size factor, scaled by how much of it the memory covers.
			key = c.Score / recall.SizeShare(row.size) * key / max(key, own)
		}
		c.Memories = append(c.Memories,
			recall.Derived{ID: l.ID, OccurredAt: l.occurredAt, Content: l.content, Worth: value, Score: key})
		shown = append(shown, l)
	}
	return shown
}

// turns returns the data points that are scored with their neighbours, by their times, and what is scored of each.
func (p *Pass) turns() ([]uuid.UUID, []recall.Turn) {
	rows := make([]*dataPointRow, 0, len(p.gate.dataPoints))
	for id, row := range p.gate.dataPoints {
		row.rank.turn = 0
		near := row.isNeighbour || p.Found.similarity(id, row).Revision > 0
		if row.inWindow && (row.match.passage != nil || row.match.key > 0 || near) {
			rows = append(rows, row)
		}
	}
	// A sum of floats depends on the order of its terms, so keep that order the same in every run.
	slices.SortFunc(rows, (*dataPointRow).compare)
	ids, turns := make([]uuid.UUID, len(rows)), make([]recall.Turn, len(rows))
	for i, row := range rows {
		ids[i], row.rank.turn = row.id, i+1
		turn := &turns[i]
		if best := row.match.passage; best != nil {
			turn.Counts, turn.Length, turn.Traits = best.counts, best.length, best.traits
		} else {
			turn.Traits = row.traits
		}
		near := p.Found.similarity(row.id, row)
		turn.Similarity, turn.Window = near.Similarity, near.Window
		turn.Key, turn.Size, turn.OccurredAt = row.match.key, row.size, row.occurredAt
		turn.Before, turn.After, turn.Conversation = recall.None, recall.None, row.conversation
		if row.author != nil {
			turn.Author = *row.author
		}
	}
	for a, row := range rows {
		if next := row.next; next != nil && next.rank.turn > 0 {
			b := next.rank.turn - 1
			turns[a].After, turns[b].Before = b, a
		}
	}
	return ids, turns
}

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

// selectPeriods finds the newest data points of each audience in each span, and of these the newest of all. The gate
// reads what occurred, and not the index: the snapshot has the moment where the index has the day, and the index of the
// table yields the rows of an audience in this order. So the work is bounded by audiences, spans and the limit, however
// large the project is.
const selectPeriods = `select ` + dataPointColumns + ` from (
		select distinct n.occurred_at, n.id
		from unnest($2::uuid[]) a (audience)
		cross join unnest($3::timestamptz[], $4::timestamptz[]) p (start, until)
		cross join lateral (
			select occurred_at, id from datapoints.data_points
			where project_id = $1 and audience = a.audience and occurred_at >= p.start and occurred_at < p.until
				and occurred_at <= $5
			order by occurred_at desc, id desc limit $6
		) n
		order by n.occurred_at desc, n.id desc limit $6
	) c
	cross join lateral (select * from datapoints.data_points where id = c.id offset 0) d`

// byPeriods answers a question about a time: with what occurred in it, the newest first, then with what names a day in
// it.
func (p *Pass) byPeriods(ctx context.Context) (err error) {
	p.searches++
	if p.Found, err = p.service.searchDays(ctx, &p.question); err != nil {
		return err
	}
	if err := p.openGate(ctx); err != nil {
		return err
	}
	p.wanted = len(p.Found.Order)
	if err := p.gate.authorize(ctx, p.Found, p.wanted, !p.within); err != nil {
		return err
	}
	if err := p.gate.loadPeriods(ctx, p.time.Spans, firstCandidates(p.Limit)); err != nil {
		return err
	}
	p.rankPeriods()
	return p.compose(ctx)
}

// AsksPeriod reports whether the question asks what happened in a time, and no more.
func (p *Pass) AsksPeriod() bool { return p.time != nil }

// namedDays is the most days that are looked for in memories.
const namedDays = 31

// searchDays finds the memories that may name a day in the spans which the question names. A window judges when a text
// occurred, and nothing else.
func (s *Service) searchDays(ctx context.Context, question *question) (*candidates, error) {
	f := &candidates{scores: map[uuid.UUID]float64{}}
	terms := dayTerms(question.time.Named)
	if len(terms) == 0 {
		return f, nil
	}
	found, err := s.config.Index.Search(ctx, recallindex.Query{
		Project: question.Project.ID, Memories: question.memories, Terms: recall.Wholes(terms...),
		Analysis: question.Analyzer.Version(), Audiences: question.Audiences, From: question.From, To: question.until(),
	})
	if err != nil {
		return nil, err
	}
	for _, h := range found.Memories.Hits {
		f.Memories.Hits = append(f.Memories.Hits, recallindex.Hit{Key: h.Key})
		f.MemoryScores = append(f.MemoryScores, 0)
		if _, known := f.scores[h.DataPoint]; !known {
			f.scores[h.DataPoint] = 1
			f.Order = append(f.Order, h.DataPoint)
		}
	}
	f.sort()
	return f, nil
}

// dayTerms are the words of the days in some spans, the last ones first, as temporal anchors have them.
func dayTerms(spans []comprehend.Period) (terms []string) {
	days := 0
	for _, span := range spans {
		for day := span.End.Add(-1); !day.Before(span.Start) && days < namedDays; day = day.AddDate(0, 0, -1) {
			days++
			for _, term := range []string{
				strconv.Itoa(day.Day()), strings.ToLower(day.Month().String()), strconv.Itoa(day.Year()),
			} {
				if !slices.Contains(terms, term) {
					terms = append(terms, term)
				}
			}
		}
	}
	return terms
}

// loadPeriods loads the newest data points that occurred in some spans.
func (g *gate) loadPeriods(ctx context.Context, spans []comprehend.Period, most int) error {
	if len(spans) == 0 {
		return nil
	}
	starts, ends := make([]time.Time, len(spans)), make([]time.Time, len(spans))
	for i, s := range spans {
		starts[i], ends[i] = s.Start, s.End
	}
	rows, err := g.db.Query(ctx, selectPeriods, g.q.Project.ID, g.q.Audiences, starts, ends, g.perspective, most)
	if err != nil {
		return fmt.Errorf("find what occurred: %w", err)
	}
	defer rows.Close()
	columns := g.columns()
	for rows.Next() {
		p, err := g.readDataPoint(rows, columns)
		if err != nil {
			return fmt.Errorf("find what occurred: %w", err)
		}
		g.dataPoints[p.id], g.checkedDataPoints[p.id] = p, struct{}{}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("find what occurred: %w", err)
	}
	return nil
}

// rankPeriods orders what occurred in the spans before what only names a day in them, each the newest first.
func (p *Pass) rankPeriods() {
	type placed struct {
		*dataPointRow
		names int // 1 if it only names a day
	}
	named := map[uuid.UUID]bool{}
	for _, l := range p.gate.memories {
		row := p.gate.dataPoints[l.dataPoint]
		if row == nil || l.kind != memory.TemporalAnchor || l.revision != row.revision {
			continue
		}
		day, ok := comprehend.AnchorPeriod(l.content)
		named[row.id] = named[row.id] || ok && p.time.Names(day)
	}
	rows := make([]placed, 0, len(p.gate.dataPoints))
	for _, row := range p.gate.dataPoints {
		switch {
		case !row.inWindow:
		case p.time.Occurred(row.occurredAt):
			rows = append(rows, placed{row, 0})
		case named[row.id]:
			rows = append(rows, placed{row, 1})
		}
	}
	slices.SortFunc(rows, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.names, b.names), b.occurredAt.Compare(a.occurredAt), cmp.Compare(a.sourceID, b.sourceID))
	})
	r := &ranking{Moves: map[int]recall.Place{}}
	for place, row := range rows {
		row.rank.candidate = place + 1
		p.Found.scores[row.id] = 1
		r.Candidates = append(r.Candidates, recall.Candidate{
			ID: row.node, OccurredAt: row.occurredAt, Score: 1, Place: place, Least: int(row.leastTokens()),
		})
		r.IDs, r.DataPoints = append(r.IDs, row.id), append(r.DataPoints, row.dataPointRow)
	}
	r.Memories = make([][]*memoryRow, len(rows)) // none is shown
	p.Ranking = r
}
