package recall

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// source explains what became of the source with an id: it follows the steps of a recall, and the first
// that lost it is the verdict. The gate comes before the index, which searches only what the viewer
// reaches.
func (e *explainer) source(ctx context.Context, sourceID string) (ExplainedSource, error) {
	s := ExplainedSource{SourceID: sourceID, Verdict: NotStored}
	id := e.dataPoint(sourceID)
	p := e.stored[id]
	if p == nil {
		return s, nil
	}
	gate := e.judge(p)
	s.Revision, s.OccurredAt, s.Tokens, s.Gate = p.revision, &p.occurredAt, p.tokens, &gate
	if _, ranked := e.places[id]; ranked {
		score := e.scoreOf(id)
		s.ExplainedScore = &score
	}
	if e.isReturned(&s) {
		return s, nil
	}
	if !gate.Passed {
		s.Verdict, s.Why = Refused, gate.Reason
		return s, nil
	}
	if rank, ranked := e.ranks[id]; ranked {
		e.explainLoss(ctx, &s, rank)
		return s, nil
	}
	return s, e.explainUnranked(ctx, &s, p)
}

// isReturned explains a source that the response shows, itself, by a passage or by a memory.
func (e *explainer) isReturned(s *ExplainedSource) bool {
	best := Result{}
	for _, r := range e.page.Results {
		shows := slices.ContainsFunc(r.Sources, func(of Source) bool { return of.SourceID == s.SourceID })
		if shows && (best.Rank == 0 || r.Rank < best.Rank) {
			best = r
		}
	}
	if best.Rank == 0 {
		return false
	}
	s.Verdict, s.Rank = Returned, best.Rank
	switch entry := e.entry(best.ID); {
	case entry.Memory == recall.InPart:
		s.Why = "by a passage of it"
	case entry.Memory >= 0:
		s.Why = "by a memory of it: " + best.Artifact.Kind
	}
	return true
}

// explainLoss explains a ranked candidate that is not in the response.
func (e *explainer) explainLoss(ctx context.Context, s *ExplainedSource, rank int) {
	candidate := e.composed.Order[rank]
	s.Rank = rank + 1
	score := e.score(recall.Entry{Candidate: candidate, Memory: recall.Source})
	s.ExplainedScore = &score
	cost, shown := e.texts.cost(ctx, recall.Entry{Candidate: candidate, Memory: recall.Source})
	p := e.texts.ranking.dataPoints[candidate]
	if shown {
		s.Tokens = &cost.Tokens
	}
	used, considered := e.composed.Used, false
	for _, l := range e.composed.LeftOut {
		if l.Candidate == candidate {
			used, considered = l.Used, true
		}
	}
	left := max(0, e.question.Budget-used.Tokens)
	inResponse := slices.ContainsFunc(e.composed.Entries, func(of recall.Entry) bool { return of.Candidate == candidate })
	switch {
	case inResponse, considered && !shown && p.big != nil && e.gate.counted+p.big.Size <= countedBytes:
		s.Verdict, s.Why = NotStored, "its text is being erased, or is lost"
	case !considered && len(e.composed.Entries) >= e.question.Limit:
		last := e.lastScore()
		s.Verdict, s.LastScore = RankedBelow, &last
		s.Why = fmt.Sprintf("place %d of %d candidates; the limit of %d is reached, memories included", s.Rank,
			len(e.composed.Order), e.question.Limit)
	case considered && !shown && p.big != nil:
		s.Verdict = OverBudget
		s.Why = fmt.Sprintf("a recall reads at most %d MiB of long texts", countedBytes>>20)
	case used.Bytes+cost.Bytes > ResponseBytes && cost.Tokens <= left, !considered && e.composed.Ended:
		s.Verdict, s.TokensLeft = OverBudget, &left
		s.Why = fmt.Sprintf("a response has at most %d MiB", ResponseBytes>>20)
	default:
		s.Verdict, s.TokensLeft = OverBudget, &left
		s.Why = fmt.Sprintf("%d tokens were left", left)
		if s.Tokens != nil {
			s.Why = fmt.Sprintf("it has %d tokens, %d were left", *s.Tokens, left)
		}
		if considered {
			s.Why += e.explainPassages(candidate, left)
		}
	}
}

// explainPassages explains why no passage of a candidate is shown, "" if its text is one passage or has none that
// matches.
func (e *explainer) explainPassages(candidate, left int) string {
	passages, read := e.gate.excerpted[e.texts.sourceKey(candidate)]
	switch {
	case !e.texts.mayHavePassages(candidate) || read && len(passages) == 0:
		return ""
	case read || left < recall.LeastPassage:
		return ", also too few for a passage"
	case e.gate.unfit >= maxUnfit:
		return fmt.Sprintf(", also too few for the passages of the %d before it", maxUnfit)
	default:
		return fmt.Sprintf("; a recall reads passages of at most %d texts", maxExcerpted)
	}
}

// lastScore is the score of the last result.
func (e *explainer) lastScore() (score float64) {
	last := 0
	for _, r := range e.out.Results {
		if r.Rank > last {
			last, score = r.Rank, r.Score
		}
	}
	return score
}

// explainUnranked explains a source that the viewer may read, and that has no score.
func (e *explainer) explainUnranked(ctx context.Context, s *ExplainedSource, p *storedDataPoint) error {
	passages, memories := e.hits(p.id)
	older := slices.ContainsFunc(passages, func(i int) bool { return e.found.sources.Hits[i].Revision != p.revision })
	place := slices.Index(e.found.order, p.id)
	_, checked := e.gate.checkedDataPoints[p.id]
	switch {
	case place >= 0 && !checked:
		last := e.lastScore()
		s.Verdict, s.LastScore = RankedBelow, &last
		s.Why = fmt.Sprintf("the search puts it at place %d of %d; the best %d were ranked, and filled the response",
			place+1, len(e.found.order), e.countSteps().Checked)
	case place >= 0 && older:
		s.Verdict = Refused
		s.Why = "older revision: the index has another revision of it, and the newest has none of the question's words"
	case place >= 0 && len(passages) == 0 && len(memories) > 0:
		s.Verdict, s.Why = Refused, "only a memory has the question's words, and it is not of a revision that may be read"
	case place >= 0 && (len(passages) > 0 || e.found.semantic[p.id].Revision == p.revision):
		s.Verdict, s.Why = RankedBelow, "its score is 0"
	default:
		return e.explainUnfound(ctx, s, p)
	}
	return nil
}

// explainUnfound explains a source that the search did not bring in.
func (e *explainer) explainUnfound(ctx context.Context, s *ExplainedSource, p *storedDataPoint) error {
	passages, ok, err := e.passagesOf(ctx, p)
	if err != nil {
		return err
	}
	if !ok {
		s.Verdict, s.Why = NotCandidate, "its text is too long to look for it in the index, or is being erased"
		return nil
	}
	if len(passages) == 0 {
		s.Verdict, s.Why = NotIndexed, "its text has nothing to search for"
		return nil
	}
	indexed, err := e.findInIndex(ctx, p, passages[0])
	if err != nil {
		return err
	}
	if indexed != p.revision {
		s.Verdict = NotIndexed
		if indexed > 0 {
			s.Why = fmt.Sprintf("the index has revision %d, the newest is %d", indexed, p.revision)
		}
		return nil
	}
	best, score := []recall.Count(nil), 0.0
	for _, passage := range passages {
		counts := recall.Counts(e.question.asked.Terms, passage)
		if value := e.found.chooseBy.Score(counts, len(passage.Text)); value > score {
			best, score = counts, value
		}
	}
	s.Verdict, s.Why = NotCandidate, "it has none of the question's words"
	if e.service.config.Semantic != nil {
		s.Why += ", and its embedding is not among the nearest"
	}
	if score == 0 {
		return nil
	}
	s.ExplainedScore = &ExplainedScore{
		Score: score, Signals: []recall.Contribution{{Signal: "words", Value: score, Weight: 1}},
		Factors: []recall.Factor{}, FoundBy: []string{}, Words: []string{},
	}
	for i, c := range best {
		if c.Text > 0 || c.Label > 0 {
			s.Words = append(s.Words, e.question.asked.Terms[i].Text)
		}
	}
	s.Why = "its words match, but the search did not find it: the index may have an older audience or time of it"
	if e.found.more(e.question) {
		last := slices.Min(e.found.sourceScores)
		s.LastScore = &last
		s.Why = fmt.Sprintf("the search brings in the best %d passages by words", len(e.found.sources.Hits))
	}
	return nil
}

// passagesOf analyses a data point as the index does. ok is false if its text is gone, or if too much
// was read.
func (e *explainer) passagesOf(ctx context.Context, p *storedDataPoint) (passages []recall.Terms, ok bool, err error) {
	if e.read += p.size; e.read > countedBytes {
		return nil, false, nil
	}
	key := revisionKey{p.id, p.revision}
	bodies, err := readBodies(ctx, e.gate.db, []part{{revisionKey: key, content: true}})
	if err != nil || bodies[key] == nil {
		return nil, false, err
	}
	content := bodies[key].content
	if ref := bodies[key].contentBlob; ref != nil {
		if content = e.texts.blob(ctx, ref); content == nil {
			return nil, false, e.texts.err
		}
	}
	document := recall.Document{Content: string(content), Label: p.label, Author: p.author}
	return e.question.analyzer.Passages(document), true, nil
}

// How a data point is looked for in the index: by how many words of its first passage, and among how
// many documents at once. Equal texts of the same time may be before it.
const (
	lookupTerms = 64
	lookupFirst = 256
	lookupMost  = 16_384
)

// findInIndex returns the newest revision of a data point that the index has, 0 if it has none. If
// too many texts are as near, it returns the newest revision.
func (e *explainer) findInIndex(ctx context.Context, p *storedDataPoint, passage recall.Terms) (int, error) {
	terms := distinctTerms(passage)
	q := recallindex.Query{
		Project: e.question.Project.ID, Sources: lookupFirst, Terms: recall.Wholes(terms...),
		Analysis: e.question.analyzer.Version(), Audiences: []uuid.UUID{p.audience}, From: &p.occurredAt, To: &p.occurredAt,
	}
	for {
		found, err := e.service.config.Index.Search(ctx, q)
		if err != nil {
			return 0, err
		}
		revision := 0
		for _, h := range found.Sources.Hits {
			if h.DataPoint == p.id {
				revision = max(revision, h.Revision)
			}
		}
		switch {
		case revision > 0 || len(found.Sources.Hits) < q.Sources:
			return revision, nil
		case q.Sources >= lookupMost:
			return p.revision, nil
		}
		q.Sources *= 8
	}
}

// distinctTerms returns the first terms of a passage, each once.
func distinctTerms(passage recall.Terms) []string {
	var terms []string
	for _, term := range slices.Concat(passage.Text, passage.Label) {
		if len(terms) < lookupTerms && !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	return terms
}
