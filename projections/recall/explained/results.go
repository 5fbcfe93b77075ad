package explained

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	domainrecall "github.com/annals-project/annals/domain/recall"
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
	return stream.DataPointID(e.Project.Namespace, sourceID)
}

// readStored reads the data points of the results and of the asked sources, in the snapshot of the
// answer.
func (e *explainer) readStored(ctx context.Context) error {
	var ids []uuid.UUID
	for _, id := range e.sourceIDs {
		ids = append(ids, e.dataPoint(id))
	}
	for _, entry := range e.Composed.Entries {
		ids = append(ids, e.Ranking.IDs[entry.Candidate])
	}
	e.stored, e.audiences = map[uuid.UUID]*storedDataPoint{}, map[uuid.UUID]string{uuid.Nil: ProjectVisible}
	rows, err := e.Snapshot().Query(ctx, selectStored, ids, e.Project.ID)
	if err != nil {
		return fmt.Errorf("read explained data points: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*storedDataPoint, error) {
		p := new(storedDataPoint)
		return p, row.Scan(&p.id, &p.revision, &p.audience, &p.occurredAt, &p.label, &p.author, &p.size, &p.big, &p.tokens)
	})
	if err != nil {
		return fmt.Errorf("read explained data points: %w", err)
	}
	var unnamed []uuid.UUID
	for _, p := range found {
		p.occurredAt = p.occurredAt.UTC()
		if p.big != nil {
			p.size = p.big.Size
		}
		if e.stored[p.id] = p; p.audience != uuid.Nil {
			e.audiences[p.audience] = p.audience.String()
			unnamed = append(unnamed, p.audience)
		}
	}
	if len(unnamed) == 0 || !e.HasAudiences() {
		return nil
	}
	if rows, err = e.Snapshot().Query(ctx, selectSlugs, unnamed, e.Project.ID); err != nil {
		return fmt.Errorf("read slugs of audiences: %w", err)
	}
	var id uuid.UUID
	var slug string
	if _, err := pgx.ForEachRow(rows, []any{&id, &slug}, func() error { e.audiences[id] = slug; return nil }); err != nil {
		return fmt.Errorf("read slugs of audiences: %w", err)
	}
	return nil
}

// judge returns the verdict of the gate on the newest revision of a data point.
func (e *explainer) judge(p *storedDataPoint) Gate {
	g := Gate{Audience: e.audiences[p.audience]}
	q := e.Query
	switch {
	case !slices.Contains(q.Audiences, p.audience):
		g.Reason = "audience not reached: " + g.Audience
	case p.occurredAt.After(e.Page.AsOf):
		g.Reason = "after the perspective " + e.Page.AsOf.Format(time.RFC3339)
	case q.From != nil && p.occurredAt.Before(*q.From), q.To != nil && p.occurredAt.After(*q.To):
		g.Reason = "outside the window: it occurred at " + p.occurredAt.Format(time.RFC3339)
	default:
		g.Passed = true
	}
	return g
}

// entry returns the document of the response with an id, which every result has.
func (e *explainer) entry(id uuid.UUID) domainrecall.Entry {
	for _, entry := range e.Composed.Entries {
		of := &e.Ranking.Candidates[entry.Candidate]
		switch {
		case entry.Memory == domainrecall.Source && of.ID == id,
			entry.Memory == domainrecall.InPart && datapoint.PassageID(of.ID, entry.Passage) == id,
			entry.Memory >= 0 && of.Memories[entry.Memory].ID == id:
			return entry
		}
	}
	return domainrecall.Entry{Memory: domainrecall.Source}
}

// maxPreview is the most code points of a text that an explanation shows.
const maxPreview = 160

func (e *explainer) explainResults(ctx context.Context) []Result {
	results := make([]Result, len(e.Page.Results))
	for i, r := range e.Page.Results {
		entry := e.entry(r.ID)
		cost, _ := e.Cost(ctx, entry)
		results[i] = Result{
			Rank: r.Rank, ID: r.ID, Kind: r.Artifact.Kind, SourceID: r.Sources[0].SourceID, OccurredAt: r.OccurredAt,
			SupersededAt: r.Artifact.SupersededAt, Tokens: cost.Tokens, Preview: preview(r.Content),
			Scored: e.score(entry),
		}
		if p := e.stored[e.Ranking.IDs[entry.Candidate]]; p != nil {
			results[i].Gate = Gate{Passed: true, Audience: e.audiences[p.audience]}
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
func (e *explainer) score(entry domainrecall.Entry) Scored {
	id := e.Ranking.IDs[entry.Candidate]
	score := e.scoreOf(id)
	if score.Score = e.Ranking.Candidates[entry.Candidate].Score; e.AsksPeriod() {
		score.Signals = append(score.Signals, domainrecall.Contribution{Signal: "period", Value: score.Score, Weight: 1})
	}
	switch entry.Memory {
	case domainrecall.Source:
	case domainrecall.InPart:
		e.scorePassage(&score, entry)
	default:
		e.scoreMemory(&score, entry, id)
	}
	if place, moved := e.Ranking.Moves[entry.Candidate]; moved {
		score.Factors = append(score.Factors, domainrecall.Factor{Name: string(place.Move), Value: place.Share})
	}
	return score
}

// scoreOf explains the score of a data point, ranked or not.
func (e *explainer) scoreOf(id uuid.UUID) Scored {
	s := Scored{
		Signals: []domainrecall.Contribution{}, Factors: []domainrecall.Factor{}, FoundBy: []string{}, Words: []string{},
	}
	place, ranked := e.places[id]
	if ranked {
		turn := e.ranked.Turns[place]
		s.Score = turn.Score
		s.Signals, s.Factors = append(s.Signals, turn.Contributions...), append(s.Factors, turn.Factors...)
		s.Words = e.words(e.Ranking.Turns[place].Counts)
	}
	found := func(by string, is bool) {
		if is {
			s.FoundBy = append(s.FoundBy, by)
		}
	}
	passages, memories := e.hits(id)
	found("period", e.AsksPeriod())
	found("words", len(passages) > 0)
	found("memory", len(memories) > 0)
	found("embedding", len(passages)+len(memories) == 0 && slices.Contains(e.Found.Order, id))
	found("neighbour", e.IsNeighbour(id))
	return s
}

// words are the terms of the question with their counts, those that a text has.
func (e *explainer) words(counts []domainrecall.Count) []string {
	words := []string{}
	for i, c := range counts {
		if c != (domainrecall.Count{}) {
			words = append(words, e.Asked.Terms[i].Text)
		}
	}
	return words
}

// scorePassage turns the explained score of a source into that of a passage: that of its best memory if that is more,
// times how well the passage matches.
func (e *explainer) scorePassage(score *Scored, entry domainrecall.Entry) {
	candidate := &e.Ranking.Candidates[entry.Candidate]
	add := func(name string, value float64) {
		if value != 1 {
			score.Factors = append(score.Factors, domainrecall.Factor{Name: name, Value: value})
			score.Score *= value
		}
	}
	add("best memory", candidate.Best()/candidate.Score)
	add("share of a passage", e.Share(entry))
}

// scoreMemory turns the explained score of a source into that of its memory: without the factor of the
// size, and times how much of the source the memory covers.
func (e *explainer) scoreMemory(score *Scored, entry domainrecall.Entry, id uuid.UUID) {
	l := e.Ranking.Memories[entry.Candidate][entry.Memory]
	score.Score = e.Ranking.Candidates[entry.Candidate].Memories[entry.Memory].Score
	words := 0.0
	for i, h := range e.Found.Memories.Hits {
		if h.Memory == l.ID {
			words = e.Found.MemoryScores[i]
			break
		}
	}
	_, weight := l.Worth()
	key, own := weight*words, 0.0
	place, ranked := e.places[id]
	if !ranked || e.ranked.Turns[place].Score <= 0 || key <= 0 {
		score.Signals = []domainrecall.Contribution{{Signal: "words", Value: words, Weight: weight}}
		score.Factors = []domainrecall.Factor{}
		return
	}
	if turn := e.Ranking.Turns[place]; turn.Counts != nil {
		own = e.Found.ChooseBy.Score(turn.Counts, turn.Length)
	}
	score.Factors = slices.DeleteFunc(score.Factors, func(f domainrecall.Factor) bool { return f.Name == "size" })
	if share := key / max(key, own); share != 1 {
		score.Factors = append(score.Factors, domainrecall.Factor{Name: "share of a memory", Value: share})
	}
}

// hits returns the hits of a data point in both parts of the index, by index.
func (e *explainer) hits(id uuid.UUID) (passages, memories []int) {
	for i, h := range e.Found.Sources.Hits {
		if h.DataPoint == id {
			passages = append(passages, i)
		}
	}
	for i, h := range e.Found.Memories.Hits {
		if h.DataPoint == id {
			memories = append(memories, i)
		}
	}
	return passages, memories
}
