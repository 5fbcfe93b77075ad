package recall

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
)

// storedDataPoint is the newest revision of a live data point, whatever its audience.
type storedDataPoint struct {
	id         uuid.UUID
	revision   int
	audience   uuid.UUID
	occurredAt time.Time
	label      string
	author     string
	size       int64
	big        *blob.Ref
	tokens     *int
}

const selectStored = `select d.id, d.revision, d.audience, d.occurred_at, coalesce(r.label, ''), coalesce(r.author, ''),
		coalesce(octet_length(r.content), 0), r.content_blob, r.tokens
	from unnest($1::uuid[]) c (id)
	cross join lateral (select * from datapoints.data_points where id = c.id offset 0) d
	cross join lateral (select * from datapoints.revisions where data_point = d.id and number = d.revision offset 0) r
	where d.project_id = $2`

const selectSlugs = `select a.id, a.slug from unnest($1::uuid[]) c (id)
	cross join lateral (select * from directory.audiences where id = c.id offset 0) a
	where a.project_id = $2`

// dataPoint returns the id of the data point with a source id.
func (e *explainer) dataPoint(sourceID string) uuid.UUID {
	return stream.DataPointID(e.question.Project.Namespace, sourceID)
}

// readStored reads the data points of the results and of the asked sources, in the snapshot of the
// answer.
func (e *explainer) readStored(ctx context.Context) error {
	var ids []uuid.UUID
	for _, id := range e.sourceIDs {
		ids = append(ids, e.dataPoint(id))
	}
	for _, entry := range e.composed.Entries {
		ids = append(ids, e.texts.ranking.ids[entry.Candidate])
	}
	e.stored, e.audiences = map[uuid.UUID]*storedDataPoint{}, map[uuid.UUID]string{uuid.Nil: ProjectVisible}
	rows, err := e.gate.db.Query(ctx, selectStored, ids, e.question.Project.ID)
	if err != nil {
		return fmt.Errorf("read explained data points: %w", err)
	}
	defer rows.Close()
	var unnamed []uuid.UUID
	for rows.Next() {
		p := new(storedDataPoint)
		if err := rows.Scan(&p.id, &p.revision, &p.audience, &p.occurredAt, &p.label, &p.author, &p.size, &p.big,
			&p.tokens); err != nil {
			return fmt.Errorf("read explained data points: %w", err)
		}
		p.occurredAt = p.occurredAt.UTC()
		if p.big != nil {
			p.size = p.big.Size
		}
		if e.stored[p.id] = p; p.audience != uuid.Nil {
			e.audiences[p.audience] = p.audience.String()
			unnamed = append(unnamed, p.audience)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read explained data points: %w", err)
	}
	if len(unnamed) == 0 || e.service.config.Viewers == nil {
		return nil
	}
	return e.readSlugs(ctx, unnamed)
}

func (e *explainer) readSlugs(ctx context.Context, audiences []uuid.UUID) error {
	rows, err := e.gate.db.Query(ctx, selectSlugs, audiences, e.question.Project.ID)
	if err != nil {
		return fmt.Errorf("read slugs of audiences: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		var slug string
		if err := rows.Scan(&id, &slug); err != nil {
			return fmt.Errorf("read slugs of audiences: %w", err)
		}
		e.audiences[id] = slug
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read slugs of audiences: %w", err)
	}
	return nil
}

// judge returns the verdict of the gate on the newest revision of a data point.
func (e *explainer) judge(p *storedDataPoint) ExplainedGate {
	g := ExplainedGate{Audience: e.audiences[p.audience]}
	q := e.question.Query
	switch {
	case !slices.Contains(q.Audiences, p.audience):
		g.Reason = "audience not reached: " + g.Audience
	case p.occurredAt.After(e.gate.perspective):
		g.Reason = "after the perspective " + e.gate.perspective.Format(time.RFC3339)
	case q.From != nil && p.occurredAt.Before(*q.From), q.To != nil && p.occurredAt.After(*q.To):
		g.Reason = "outside the window: it occurred at " + p.occurredAt.Format(time.RFC3339)
	default:
		g.Passed = true
	}
	return g
}

// entry returns the document of the response with an id, which every result has.
func (e *explainer) entry(id uuid.UUID) recall.Entry {
	for _, entry := range e.composed.Entries {
		of := &e.texts.ranking.candidates[entry.Candidate]
		switch {
		case entry.Memory == recall.Source && of.ID == id,
			entry.Memory == recall.InPart && datapoint.PassageID(of.ID, entry.Passage) == id,
			entry.Memory >= 0 && of.Memories[entry.Memory].ID == id:
			return entry
		}
	}
	return recall.Entry{Memory: recall.Source}
}

// maxPreview is the most code points of a text that an explanation shows.
const maxPreview = 160

func (e *explainer) results(ctx context.Context) []ExplainedResult {
	results := make([]ExplainedResult, len(e.page.Results))
	for i, r := range e.page.Results {
		entry := e.entry(r.ID)
		cost, _ := e.texts.cost(ctx, entry)
		results[i] = ExplainedResult{
			Rank: r.Rank, ID: r.ID, Kind: r.Artifact.Kind, SourceID: r.Sources[0].SourceID, OccurredAt: r.OccurredAt,
			SupersededAt: r.Artifact.SupersededAt, Tokens: cost.Tokens, Preview: preview(r.Content),
			ExplainedScore: e.score(entry),
		}
		if p := e.stored[e.texts.ranking.ids[entry.Candidate]]; p != nil {
			results[i].Gate = ExplainedGate{Passed: true, Audience: e.audiences[p.audience]}
		}
	}
	return results
}

func preview(text string) string {
	if utf8.RuneCountInString(text) <= maxPreview {
		return text
	}
	return string([]rune(text)[:maxPreview-1]) + "…"
}

// score explains the score of a source, of one of its passages, or of one of its memories.
func (e *explainer) score(entry recall.Entry) ExplainedScore {
	id := e.texts.ranking.ids[entry.Candidate]
	score := e.scoreOf(id)
	score.Score = e.texts.ranking.candidates[entry.Candidate].Score
	switch entry.Memory {
	case recall.Source:
	case recall.InPart:
		e.scorePassage(&score, entry)
	default:
		e.scoreMemory(&score, entry, id)
	}
	if place, moved := e.texts.ranking.moves[entry.Candidate]; moved {
		score.Factors = append(score.Factors, recall.Factor{Name: string(place.Move), Value: place.Share})
	}
	return score
}

// scoreOf explains the score of a data point, ranked or not.
func (e *explainer) scoreOf(id uuid.UUID) ExplainedScore {
	s := ExplainedScore{
		Signals: []recall.Contribution{}, Factors: []recall.Factor{}, FoundBy: []string{}, Words: []string{},
	}
	place, ranked := e.places[id]
	if ranked {
		turn := e.ranked.Turns[place]
		s.Score = turn.Score
		s.Signals, s.Factors = append(s.Signals, turn.Contributions...), append(s.Factors, turn.Factors...)
		for i, c := range e.turns[place].Counts {
			if c.Text > 0 || c.Label > 0 {
				s.Words = append(s.Words, e.question.asked.Terms[i].Text)
			}
		}
	}
	found := func(by string, is bool) {
		if is {
			s.FoundBy = append(s.FoundBy, by)
		}
	}
	passages, memories := e.hits(id)
	p := e.gate.dataPoints[id]
	found("words", len(passages) > 0)
	found("memory", len(memories) > 0)
	found("embedding", len(passages)+len(memories) == 0 && slices.Contains(e.found.order, id))
	found("neighbour", p != nil && p.isNeighbour)
	return s
}

// scorePassage turns the explained score of a source into that of a passage: that of its best memory if that is more,
// times how well the passage matches.
func (e *explainer) scorePassage(score *ExplainedScore, entry recall.Entry) {
	candidate := &e.texts.ranking.candidates[entry.Candidate]
	add := func(name string, value float64) {
		if value != 1 {
			score.Factors = append(score.Factors, recall.Factor{Name: name, Value: value})
			score.Score *= value
		}
	}
	add("best memory", candidate.Best()/candidate.Score)
	if p := e.texts.passage(entry); p != nil {
		add("share of a passage", p.share)
	}
}

// scoreMemory turns the explained score of a source into that of its memory: without the factor of the
// size, and times how much of the source the memory covers.
func (e *explainer) scoreMemory(score *ExplainedScore, entry recall.Entry, id uuid.UUID) {
	l := e.texts.ranking.memories[entry.Candidate][entry.Memory]
	score.Score = e.texts.ranking.candidates[entry.Candidate].Memories[entry.Memory].Score
	words := 0.0
	for i, h := range e.found.memories.Hits {
		if h.Memory == l.id {
			words = e.found.memoryScores[i]
			break
		}
	}
	_, weight := worthOf(l)
	key, own := weight*words, 0.0
	place, ranked := e.places[id]
	if !ranked || e.ranked.Turns[place].Score <= 0 || key <= 0 {
		score.Signals = []recall.Contribution{{Signal: "words", Value: words, Weight: weight}}
		score.Factors = []recall.Factor{}
		return
	}
	if turn := e.turns[place]; turn.Counts != nil {
		own = e.found.chooseBy.Score(turn.Counts, turn.Length)
	}
	score.Factors = slices.DeleteFunc(score.Factors, func(f recall.Factor) bool { return f.Name == "size" })
	if share := key / max(key, own); share != 1 {
		score.Factors = append(score.Factors, recall.Factor{Name: "share of a memory", Value: share})
	}
}

// hits returns the hits of a data point in both parts of the index, by index.
func (e *explainer) hits(id uuid.UUID) (passages, memories []int) {
	for i, h := range e.found.sources.Hits {
		if h.DataPoint == id {
			passages = append(passages, i)
		}
	}
	for i, h := range e.found.memories.Hits {
		if h.DataPoint == id {
			memories = append(memories, i)
		}
	}
	return passages, memories
}
