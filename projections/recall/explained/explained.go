// Package explained explains a recall to an operator: why each result is there, and where others were lost. It reads a
// pass that has ended, and takes no part in it.
package explained

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/domain/reads"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/readlog"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/recall"
)

// Explanation shows an operator how a query is answered, and where asked sources were lost. It names
// what the viewer may not read, so it is for nobody else.
type Explanation struct {
	AsOf               time.Time `json:"asOf"`
	Limit              int       `json:"limit"`
	Budget             int       `json:"budget"`
	UsedEvidenceTokens int       `json:"usedEvidenceTokens"`
	Question           Question  `json:"question"`
	Search             Search    `json:"search"`
	// Results are those of the response, in its order.
	Results []Result `json:"results"`
	// Sources are the asked ones, in the order asked.
	Sources []Source `json:"sources"`
}

// Question is the analysis of a query.
type Question struct {
	Terms []Term `json:"terms"`
	// Answer is the kind of answer that it asks for: time, number, name, or "" for any.
	Answer  string   `json:"answer,omitempty"`
	Periods []Period `json:"periods"`
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

// Term is a term that was searched for: a word of the query, or a stem or another spelling of one. A stem that
// no text has is left out.
type Term struct {
	Term        string  `json:"term"`
	StemOf      string  `json:"stemOf,omitempty"`
	SpellingOf  string  `json:"spellingOf,omitempty"`
	Weight      float64 `json:"weight"`
	LabelWeight float64 `json:"labelWeight"`
	// NamesAuthor reports that it only names an author, and is not looked for in texts.
	NamesAuthor bool `json:"namesAuthor,omitempty"`
}

// Period is a span of time that the query names.
type Period struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// Search counts what each step left.
type Search struct {
	// Passages and Memories are what the search found by words, DataPoints those that they belong to and
	// ByEmbedding more, which only their embedding brought in.
	Passages    int `json:"passages"`
	Memories    int `json:"memories"`
	ByEmbedding int `json:"byEmbedding"`
	DataPoints  int `json:"dataPoints"`
	// Checked is how many of the data points, best first, the gate was asked about, and Readable how many of these passed.
	// Passed is these with their neighbours that passed too, and Ranked how many of those have a score.
	Checked  int `json:"checked"`
	Readable int `json:"readable"`
	Passed   int `json:"passed"`
	Ranked   int `json:"ranked"`
}

// Scored is what makes a score: the sum of the signals' values, each times its weight, times
// all factors.
type Scored struct {
	Score   float64                     `json:"score"`
	Signals []domainrecall.Contribution `json:"signals"`
	Factors []domainrecall.Factor       `json:"factors"`
	// FoundBy is what made it a candidate: the period that is asked for, words, memory, neighbour, or embedding if no
	// words did.
	FoundBy []string `json:"foundBy"`
	// Words are the terms of the question in its best passage.
	Words []string `json:"words"`
}

// Gate is the verdict of the gate on the newest revision of a data point.
type Gate struct {
	Passed bool `json:"passed"`
	// Audience is the slug of its audience, or the id if it has none; ProjectVisible if everybody in the
	// project may read it.
	Audience string `json:"audience"`
	Reason   string `json:"reason,omitempty"`
}

// ProjectVisible is the Audience of what everybody in the project may read.
const ProjectVisible = "project"

// Result is a document of the response.
type Result struct {
	Rank         int        `json:"rank"`
	ID           uuid.UUID  `json:"id"`
	Kind         string     `json:"kind"`
	SourceID     string     `json:"sourceId"`
	OccurredAt   time.Time  `json:"occurredAt"`
	SupersededAt *time.Time `json:"supersededAt,omitempty"`
	Tokens       int        `json:"tokens"`
	Preview      string     `json:"preview"`
	Gate         Gate       `json:"gate"`
	Scored
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

// Source is what became of an asked source.
type Source struct {
	SourceID string  `json:"sourceId"`
	Verdict  Verdict `json:"verdict"`
	// Why is the reason in words, "" if the verdict needs none.
	Why string `json:"why,omitempty"`
	// Rank is that of the result, or the place among the ranked candidates; 0 if it was not ranked.
	Rank int `json:"rank,omitempty"`
	// LastScore is the score of the last result, if the source is ranked below it.
	LastScore *float64 `json:"lastScore,omitempty"`
	// Tokens is what its content costs, TokensLeft what was left of the budget when its turn came.
	Tokens     *int       `json:"tokens,omitempty"`
	TokensLeft *int       `json:"tokensLeft,omitempty"`
	OccurredAt *time.Time `json:"occurredAt,omitempty"`
	Revision   int        `json:"revision,omitempty"`
	Gate       *Gate      `json:"gate,omitempty"`
	// Scored is nil if it was not ranked.
	*Scored
}

// Explain answers a query as Recall does, and explains the results and what became of the sources with
// some ids. It writes nothing and charges nothing, and takes no share of an organization. The errors are
// those of Recall.
func Explain(ctx context.Context, s *recall.Service, q recall.Query, sourceIDs []string) (e Explanation, err error) {
	read, shown := readlog.From(ctx), []reads.Shown(nil)
	err = s.Follow(ctx, q, func(ctx context.Context, p *recall.Pass) (err error) {
		if e, err = of(ctx, p, sourceIDs); read != nil {
			shown = p.Shown()
		}
		return err
	})
	if err == nil {
		read.Asked(reads.Explain, q.Identity, q.Text)
		err = read.Show(ctx, reads.Explain, shown...)
	}
	return e, err
}

// explainer explains one pass.
type explainer struct {
	*recall.Pass
	sourceIDs []string
	// ranked explains the scores; places is the index of a data point in its turns.
	ranked domainrecall.Explained
	places map[uuid.UUID]int
	// stored are the data points of results and asked sources, audiences the slugs of theirs.
	stored    map[uuid.UUID]*storedDataPoint
	audiences map[uuid.UUID]string
	// ranks are the places of candidates by data point, best first from 0.
	ranks map[uuid.UUID]int
	// read is how many bytes of texts were read to look for them in the index.
	read    int64
	results []Result
}

// of explains a pass that has ended, within its snapshot.
func of(ctx context.Context, p *recall.Pass, sourceIDs []string) (Explanation, error) {
	e := &explainer{
		Pass: p, sourceIDs: sourceIDs, places: map[uuid.UUID]int{}, ranks: map[uuid.UUID]int{},
		ranked: p.Analyzer.RankExplained(p.Asked, p.Found.Weights, p.Ranking.Turns, p.Without()...),
	}
	for place, id := range p.Ranking.Turned {
		e.places[id] = place
	}
	for rank, candidate := range p.Composed.Order {
		e.ranks[p.Ranking.IDs[candidate]] = rank
	}
	if err := e.readStored(ctx); err != nil {
		return Explanation{}, err
	}
	e.results = e.explainResults(ctx)
	out := Explanation{
		AsOf: p.Page.AsOf, Limit: p.Limit, Budget: p.Budget, UsedEvidenceTokens: p.Page.UsedEvidenceTokens,
		Question: e.explainQuestion(), Search: e.countSteps(), Results: e.results, Sources: make([]Source, len(sourceIDs)),
	}
	for i, id := range sourceIDs {
		source, err := e.source(ctx, id)
		if err != nil {
			return Explanation{}, fmt.Errorf("explain a source: %w", err)
		}
		out.Sources[i] = source
	}
	return out, p.Err()
}

// answers are the names of the kinds of answers.
var answers = map[domainrecall.Traits]string{
	domainrecall.TimeEvidence: "time", domainrecall.NameEvidence: "name",
}

func (e *explainer) explainQuestion() Question {
	asked := e.Asked
	q := Question{
		Terms: make([]Term, 0, len(asked.Terms)), AsksLatest: asked.AsksLatest,
		Answer: answers[asked.Answer], Periods: []Period{},
		Author: e.ranked.Named, OtherThan: e.ranked.Other, AsksOrder: asked.AsksOrder, UsualWeight: e.ranked.Usual,
	}
	for _, p := range asked.Periods {
		q.Periods = append(q.Periods, Period(p))
	}
	for i, t := range asked.Terms {
		explained := Term{Term: t.Text}
		if i < len(e.Found.Weights) { // without a search there are no weights
			explained.Weight, explained.LabelWeight = e.Found.Weights.Text(i), e.Found.Weights.Label(i)
		}
		switch t.Kind {
		case domainrecall.Whole:
			explained.NamesAuthor = len(e.ranked.Content) > 0 && !slices.Contains(e.ranked.Content, i)
		case domainrecall.Stem:
			if i >= len(e.Found.Weights) || e.Found.Sources.Statistics.Frequencies[i] == (domainrecall.Count{}) {
				continue
			}
			explained.StemOf = asked.Terms[t.For].Text
		case domainrecall.Spelling:
			explained.SpellingOf = asked.Terms[t.For].Text
		}
		q.Terms = append(q.Terms, explained)
	}
	return q
}

func (e *explainer) countSteps() Search {
	s := Search{
		Passages: len(e.Found.Sources.Hits), Memories: len(e.Found.Memories.Hits),
		DataPoints: len(e.Found.Order), Passed: e.Passed(), Ranked: len(e.Ranking.Candidates),
	}
	for _, id := range e.Found.Order {
		if e.Checked(id) {
			s.Checked++
			if e.HasPassed(id) {
				s.Readable++
			}
		}
		if passages, memories := e.hits(id); len(passages)+len(memories) == 0 {
			s.ByEmbedding++
		}
	}
	return s
}

// MaxSources is the most source ids of one Request.
const MaxSources = 100

// maxRecall is the most bytes of a recall, as of its body in the API.
const maxRecall = 1 << 20

// Request is a recall to explain. It names the project by slug, with Organization, a name or an
// id, if several have it, or by KeyHash, the SHA-256 of one of its keys.
type Request struct {
	Organization string `json:"organization,omitempty"`
	Project      string `json:"project,omitempty"`
	KeyHash      []byte `json:"keyHash,omitempty"`
	// Recall is the body of a recall, as the API takes it.
	Recall json.RawMessage `json:"recall"`
	// SourceIDs are the sources to find, at most MaxSources.
	SourceIDs []string `json:"sourceIds,omitempty"`
}

// Explainer explains recalls in the projects of any organization, for operators.
type Explainer struct {
	Access interface {
		OnlyProject(ctx context.Context, organization, slug string) (access.Project, error)
		KeyByHash(ctx context.Context, kind auth.Kind, hash [32]byte) (auth.Holder, bool, error)
		OrganizationByID(ctx context.Context, id uuid.UUID) (access.Organization, bool, error)
	}
	Recall interface {
		Explain(ctx context.Context, q recall.Query, sourceIDs []string) (Explanation, error)
	}
	Plans metering.PlanTerms
}

// Explain explains how a recall is answered, and where sources were lost. It appends nothing, charges nothing and logs
// no call. Its answer names what the viewer may not read. The faults are those of a recall, not-found and conflict.
func (e Explainer) Explain(ctx context.Context, in Request) (Explanation, error) {
	if err := in.check(); err != nil {
		return Explanation{}, err
	}
	q, err := recall.ParseQuery(in.Recall)
	if f, is := errors.AsType[*fault.Error](err); is {
		err = fault.New(f.Kind, f.Code, "%v", f) // an operator reads the code too
	}
	if err != nil {
		return Explanation{}, err
	}
	var plan metering.Plan
	if q.Project, plan, err = e.project(ctx, in); err != nil {
		return Explanation{}, err
	}
	q.Budget = min(q.Budget, e.Plans.Of(plan).EvidenceCeiling)
	return e.Recall.Explain(ctx, q, in.SourceIDs)
}

// check checks the limits of a request, which for the recall are those of the API.
func (in Request) check() error {
	invalid := func(format string, args ...any) error {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, format, args...)
	}
	if len(in.SourceIDs) > MaxSources {
		return invalid("%d source ids: want at most %d", len(in.SourceIDs), MaxSources)
	}
	for _, id := range in.SourceIDs {
		if err := fields.CheckName(id, 1, limit.SourceID); err != nil {
			return invalid("the source id %.100q %v", id, err)
		}
	}
	if len(in.Recall) > maxRecall {
		return invalid("the recall has %d bytes: want at most %d", len(in.Recall), maxRecall)
	}
	if err := rawjson.Check(in.Recall); err != nil {
		return invalid("the recall cannot be read: %v", err)
	}
	return nil
}

// project finds the project of the request, and the plan of its organization.
func (e Explainer) project(ctx context.Context, in Request) (auth.Project, metering.Plan, error) {
	if in.Project != "" {
		found, err := e.Access.OnlyProject(ctx, in.Organization, in.Project)
		if err != nil {
			return auth.Project{}, "", err
		}
		organization, ok, err := e.Access.OrganizationByID(ctx, found.OrganizationID)
		if err == nil && !ok {
			err = fault.New(fault.NotFound, fault.CodeNotFound, "the organization of project %q is not there", in.Project)
		}
		return found.Project, organization.Plan, err
	}
	if len(in.KeyHash) != len([32]byte{}) {
		return auth.Project{}, "", fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"name a project, or one of its keys by its SHA-256")
	}
	holder, ok, err := e.Access.KeyByHash(ctx, auth.ProjectKey, [32]byte(in.KeyHash))
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound,
			"no project of this server has the key: is it of another server? --project names one")
	}
	return holder.Project, holder.Limits.Plan, err
}
