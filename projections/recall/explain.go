package recall

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/allowance"
)

// Explanation shows an operator how a query is answered, and where asked sources were lost. It names
// what the viewer may not read, so it is for nobody else.
type Explanation struct {
	AsOf               time.Time         `json:"asOf"`
	Limit              int               `json:"limit"`
	Budget             int               `json:"budget"`
	UsedEvidenceTokens int               `json:"usedEvidenceTokens"`
	Question           ExplainedQuestion `json:"question"`
	Search             ExplainedSearch   `json:"search"`
	// Results are those of the response, in its order.
	Results []ExplainedResult `json:"results"`
	// Sources are the asked ones, in the order asked.
	Sources []ExplainedSource `json:"sources"`
}

// ExplainedQuestion is the analysis of a query.
type ExplainedQuestion struct {
	Terms []ExplainedTerm `json:"terms"`
	// Answer is the kind of answer that it asks for: time, number, name, or "" for any.
	Answer  string            `json:"answer,omitempty"`
	Periods []ExplainedPeriod `json:"periods"`
	// Author is the author that it names or who asks it, "" for none or several.
	Author string `json:"author,omitempty"`
	// OtherThan is the asker of a query that addresses "you", which asks for texts of others.
	OtherThan string `json:"otherThan,omitempty"`
	AsksOrder bool   `json:"asksOrder"`
	// AsksLatest reports that it asks for what is current.
	AsksLatest bool `json:"asksLatest"`
	// UsualWeight is the unit of the signals that count no words.
	UsualWeight float64 `json:"usualWeight"`
}

// ExplainedTerm is a term that was searched for: a word of the query, or a stem or another spelling of one. A stem that
// no text has is left out.
type ExplainedTerm struct {
	Term        string  `json:"term"`
	StemOf      string  `json:"stemOf,omitempty"`
	SpellingOf  string  `json:"spellingOf,omitempty"`
	Weight      float64 `json:"weight"`
	LabelWeight float64 `json:"labelWeight"`
	// NamesAuthor reports that it only names an author, and is not looked for in texts.
	NamesAuthor bool `json:"namesAuthor,omitempty"`
}

// ExplainedPeriod is a span of time that the query names.
type ExplainedPeriod struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// ExplainedSearch counts what each step left.
type ExplainedSearch struct {
	// Passages and Memories are what the search found by words, DataPoints those that they belong to and
	// ByEmbedding more, which only their embedding brought in.
	Passages    int `json:"passages"`
	Memories    int `json:"memories"`
	ByEmbedding int `json:"byEmbedding"`
	DataPoints  int `json:"dataPoints"`
	// Checked is how many of the data points, best first, the gate was asked about. Passed is how many
	// passed, with the neighbours that it let pass, and Ranked how many of those have a score.
	Checked int `json:"checked"`
	Passed  int `json:"passed"`
	Ranked  int `json:"ranked"`
}

// ExplainedScore is what makes a score: the sum of the signals' values, each times its weight, times
// all factors.
type ExplainedScore struct {
	Score   float64               `json:"score"`
	Signals []recall.Contribution `json:"signals"`
	Factors []recall.Factor       `json:"factors"`
	// FoundBy is what made it a candidate: words, memory, neighbour, or embedding if no words did.
	FoundBy []string `json:"foundBy"`
	// Words are the terms of the question in its best passage.
	Words []string `json:"words"`
}

// ExplainedGate is the verdict of the gate on the newest revision of a data point.
type ExplainedGate struct {
	Passed bool `json:"passed"`
	// Audience is the slug of its audience, or the id if it has none; Project if it is project-visible.
	Audience string `json:"audience"`
	Reason   string `json:"reason,omitempty"`
}

// ProjectVisible is the Audience of what everybody in the project may read.
const ProjectVisible = "project"

// ExplainedResult is a document of the response.
type ExplainedResult struct {
	Rank         int           `json:"rank"`
	ID           uuid.UUID     `json:"id"`
	Kind         string        `json:"kind"`
	SourceID     string        `json:"sourceId"`
	OccurredAt   time.Time     `json:"occurredAt"`
	SupersededAt *time.Time    `json:"supersededAt,omitempty"`
	Tokens       int           `json:"tokens"`
	Preview      string        `json:"preview"`
	Gate         ExplainedGate `json:"gate"`
	ExplainedScore
}

// Verdict is what became of a source.
type Verdict string

// The verdicts, in the order of the steps of a recall.
const (
	Returned     Verdict = "returned"
	NotStored    Verdict = "not stored"
	NotIndexed   Verdict = "not in the index"
	NotCandidate Verdict = "not among the candidates"
	Refused      Verdict = "refused by the gate"
	RankedBelow  Verdict = "ranked below"
	OverBudget   Verdict = "over the budget"
)

// Verdicts are all of them, in the order of the steps of a recall.
func Verdicts() []Verdict {
	return []Verdict{Returned, NotStored, NotIndexed, NotCandidate, Refused, RankedBelow, OverBudget}
}

// ExplainedSource is what became of an asked source.
type ExplainedSource struct {
	SourceID string  `json:"sourceId"`
	Verdict  Verdict `json:"verdict"`
	// Why is the reason in words, "" if the verdict needs none.
	Why string `json:"why,omitempty"`
	// Rank is that of the result, or the place among the ranked candidates; 0 if it was not ranked.
	Rank int `json:"rank,omitempty"`
	// LastScore is the score of the last result, if the source is ranked below it.
	LastScore *float64 `json:"lastScore,omitempty"`
	// Tokens is what its content costs, TokensLeft what was left of the budget when its turn came.
	Tokens     *int           `json:"tokens,omitempty"`
	TokensLeft *int           `json:"tokensLeft,omitempty"`
	OccurredAt *time.Time     `json:"occurredAt,omitempty"`
	Revision   int            `json:"revision,omitempty"`
	Gate       *ExplainedGate `json:"gate,omitempty"`
	// ExplainedScore is nil if it was not ranked.
	*ExplainedScore
}

// Explain answers a query as Recall does, and explains the results and what became of the sources with
// some ids. It writes nothing and charges nothing, and takes no share of an organization. The errors are
// those of Recall.
func (s *Service) Explain(ctx context.Context, q Query, sourceIDs []string) (Explanation, error) {
	q.Organization = uuid.Nil
	e := &explainer{sourceIDs: sourceIDs}
	explaining := *s
	explaining.explainer = e
	err := s.run(ctx, allowance.Owner{}, func() error {
		*e = explainer{sourceIDs: sourceIDs} // it may be answered twice
		_, err := explaining.answerQuery(ctx, q)
		return err
	})
	if err != nil {
		return Explanation{}, err
	}
	return e.out, nil
}

// answered is a query with its answer and everything that led to it, within its snapshot.
type answered struct {
	service  *Service
	gate     *gate
	question *question
	found    *candidates
	texts    *texts
	composed recall.Composed
	page     Response
}

// explainer explains one query.
type explainer struct {
	sourceIDs []string
	// turns, scores and places are of the last ranking; places is the index of a data point in both.
	turns  []recall.Turn
	ranked recall.Explained
	places map[uuid.UUID]int

	*answered
	// stored are the data points of results and asked sources, audiences the slugs of theirs.
	stored    map[uuid.UUID]*storedDataPoint
	audiences map[uuid.UUID]string
	// ranks are the places of candidates by data point, best first from 0.
	ranks map[uuid.UUID]int
	// read is how many bytes of texts were read to look for them in the index.
	read int64
	out  Explanation
}

// note keeps a ranking, and returns its scores.
func (e *explainer) note(
	ids []uuid.UUID, turns []recall.Turn, ranked recall.Explained,
) (scores, byWords []float64) {
	e.turns, e.ranked, e.places = turns, ranked, make(map[uuid.UUID]int, len(ids))
	scores, byWords = make([]float64, len(ids)), make([]float64, len(ids))
	for i, id := range ids {
		e.places[id], scores[i], byWords[i] = i, ranked.Turns[i].Score, ranked.Turns[i].ByWords
	}
	return scores, byWords
}

// explain explains an answer.
func (e *explainer) explain(ctx context.Context, a *answered) error {
	e.answered = a
	e.ranks = make(map[uuid.UUID]int, len(a.composed.Order))
	for rank, candidate := range a.composed.Order {
		e.ranks[a.texts.ranking.ids[candidate]] = rank
	}
	if err := e.readStored(ctx); err != nil {
		return err
	}
	e.out = Explanation{
		AsOf: a.page.AsOf, Limit: a.question.Limit, Budget: a.question.Budget,
		UsedEvidenceTokens: a.page.UsedEvidenceTokens, Question: e.explainQuestion(), Search: e.countSteps(),
		Results: e.results(ctx), Sources: make([]ExplainedSource, len(e.sourceIDs)),
	}
	for i, id := range e.sourceIDs {
		source, err := e.source(ctx, id)
		if err != nil {
			return fmt.Errorf("explain a source: %w", err)
		}
		e.out.Sources[i] = source
	}
	return a.texts.err
}

// answers are the names of the kinds of answers.
var answers = map[recall.Traits]string{
	recall.TimeEvidence: "time", recall.NameEvidence: "name",
}

func (e *explainer) explainQuestion() ExplainedQuestion {
	asked := e.question.asked
	q := ExplainedQuestion{
		Terms: make([]ExplainedTerm, 0, len(asked.Terms)), AsksLatest: asked.AsksLatest,
		Answer: answers[asked.Answer], Periods: []ExplainedPeriod{},
		Author: e.ranked.Named, OtherThan: e.ranked.Other, AsksOrder: asked.AsksOrder, UsualWeight: e.ranked.Usual,
	}
	for _, p := range asked.Periods {
		q.Periods = append(q.Periods, ExplainedPeriod(p))
	}
	for i, t := range asked.Terms {
		explained := ExplainedTerm{Term: t.Text}
		if i < len(e.found.weights) { // without a search there are no weights
			explained.Weight, explained.LabelWeight = e.found.weights.Text(i), e.found.weights.Label(i)
		}
		switch t.Kind {
		case recall.Whole:
			explained.NamesAuthor = len(e.ranked.Content) > 0 && !slices.Contains(e.ranked.Content, i)
		case recall.Stem:
			if i >= len(e.found.weights) || e.found.sources.Statistics.Frequencies[i] == (recall.Count{}) {
				continue
			}
			explained.StemOf = asked.Terms[t.For].Text
		case recall.Spelling:
			explained.SpellingOf = asked.Terms[t.For].Text
		}
		q.Terms = append(q.Terms, explained)
	}
	return q
}

func (e *explainer) countSteps() ExplainedSearch {
	s := ExplainedSearch{
		Passages: len(e.found.sources.Hits), Memories: len(e.found.memories.Hits),
		DataPoints: len(e.found.order), Passed: len(e.gate.dataPoints), Ranked: len(e.texts.ranking.candidates),
	}
	for _, id := range e.found.order {
		if _, checked := e.gate.checkedDataPoints[id]; checked {
			s.Checked++
		}
		if passages, memories := e.hits(id); len(passages)+len(memories) == 0 {
			s.ByEmbedding++
		}
	}
	return s
}
