package explained

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// source explains what became of the source with an id: it follows the steps of a recall, and the first
// that lost it is the verdict. The gate comes before the index, which searches only what the viewer
// reaches.
func (e *explainer) source(ctx context.Context, sourceID string) (Source, error) {
	s := Source{SourceID: sourceID, Verdict: NotStored}
	id := e.dataPoint(sourceID)
	p := e.stored[id]
	if p == nil {
		return s, nil
	}
	gate := e.judge(p)
	s.Revision, s.OccurredAt, s.Tokens, s.Gate = p.revision, &p.occurredAt, p.tokens, &gate
	if _, ranked := e.places[id]; ranked {
		score := e.scoreOf(id)
		s.Scored = &score
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
func (e *explainer) isReturned(s *Source) bool {
	best := recall.Result{}
	for _, r := range e.Page.Results {
		shows := slices.ContainsFunc(r.Sources, func(of recall.Source) bool { return of.SourceID == s.SourceID })
		if shows && (best.Rank == 0 || r.Rank < best.Rank) {
			best = r
		}
	}
	if best.Rank == 0 {
		return false
	}
	s.Verdict, s.Rank = Returned, best.Rank
	switch entry := e.entry(best.ID); {
	case entry.Memory == domainrecall.InPart:
		s.Why = "by a passage of it"
	case entry.Memory >= 0:
		s.Why = "by a memory of it: " + best.Artifact.Kind
	}
	return true
}

// explainLoss explains a ranked candidate that is not in the response.
func (e *explainer) explainLoss(ctx context.Context, s *Source, rank int) {
	candidate := e.Composed.Order[rank]
	s.Rank = rank + 1
	score := e.score(domainrecall.Entry{Candidate: candidate, Memory: domainrecall.Source})
	s.Scored = &score
	cost, shown := e.Cost(ctx, domainrecall.Entry{Candidate: candidate, Memory: domainrecall.Source})
	big := e.Blob(candidate)
	if shown {
		s.Tokens = &cost.Tokens
	}
	used, considered := e.Composed.Used, false
	for _, l := range e.Composed.LeftOut {
		if l.Candidate == candidate {
			used, considered = l.Used, true
		}
	}
	left := max(0, e.Budget-used.Tokens)
	inResponse := slices.ContainsFunc(e.Composed.Entries, func(of domainrecall.Entry) bool {
		return of.Candidate == candidate
	})
	switch {
	case inResponse, considered && !shown && big != nil && e.HasRoomFor(big.Size):
		s.Verdict, s.Why = NotStored, "its text is being erased, or is lost"
	case !considered && len(e.Composed.Entries) >= e.Limit:
		last := e.lastScore()
		s.Verdict, s.LastScore = RankedBelow, &last
		s.Why = fmt.Sprintf("place %d of %d candidates; the limit of %d is reached, memories included", s.Rank,
			len(e.Composed.Order), e.Limit)
	case considered && !shown && big != nil:
		s.Verdict = OverBudget
		s.Why = fmt.Sprintf("a recall reads at most %d MiB of long texts", recall.MaxRead>>20)
	case used.Bytes+cost.Bytes > recall.ResponseBytes && cost.Tokens <= left, !considered && e.Composed.Ended:
		s.Verdict, s.TokensLeft = OverBudget, &left
		s.Why = fmt.Sprintf("a response has at most %d MiB", recall.ResponseBytes>>20)
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
	n, read, mayHave := e.Passages(candidate)
	switch {
	case !mayHave || read && n == 0:
		return ""
	case read || left < domainrecall.LeastPassage:
		return ", also too few for a passage"
	case e.GaveUp():
		return fmt.Sprintf(", also too few for the passages of the %d before it", recall.MaxUnfit)
	default:
		return fmt.Sprintf("; a recall reads passages of at most %d texts", recall.MaxExcerpted)
	}
}

// lastScore is the score of the last result.
func (e *explainer) lastScore() (score float64) {
	last := 0
	for _, r := range e.results {
		if r.Rank > last {
			last, score = r.Rank, r.Score
		}
	}
	return score
}

// explainUnranked explains a source that the viewer may read, and that has no score.
func (e *explainer) explainUnranked(ctx context.Context, s *Source, p *storedDataPoint) error {
	passages, memories := e.hits(p.id)
	older := slices.ContainsFunc(passages, func(i int) bool { return e.Found.Sources.Hits[i].Revision != p.revision })
	place := slices.Index(e.Found.Order, p.id)
	switch {
	case e.AsksPeriod():
		s.Verdict = NotCandidate
		s.Why = "it did not occur when the question asks for, and names no such day; or enough newer ones did"
	case place >= 0 && !e.Checked(p.id):
		last := e.lastScore()
		s.Verdict, s.LastScore = RankedBelow, &last
		s.Why = fmt.Sprintf("the search puts it at place %d of %d; the best %d were ranked, and filled the response",
			place+1, len(e.Found.Order), e.countSteps().Checked)
	case place >= 0 && older:
		s.Verdict = Refused
		s.Why = "older revision: the index has another revision of it, and the newest has none of the question's words"
	case place >= 0 && len(passages) == 0 && len(memories) > 0:
		s.Verdict, s.Why = Refused, "only a memory has the question's words, and it is not of a revision that may be read"
	case place >= 0 && (len(passages) > 0 || e.Found.Semantic[p.id].Revision == p.revision):
		s.Verdict, s.Why = RankedBelow, "its score is 0"
	default:
		return e.explainUnfound(ctx, s, p)
	}
	return nil
}

// explainUnfound explains a source that the search did not bring in.
func (e *explainer) explainUnfound(ctx context.Context, s *Source, p *storedDataPoint) error {
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
	best, score := []domainrecall.Count(nil), 0.0
	for _, passage := range passages {
		counts := domainrecall.Counts(e.Asked.Terms, passage)
		if value := e.Found.ChooseBy.Score(counts, len(passage.Text)); value > score {
			best, score = counts, value
		}
	}
	s.Verdict, s.Why = NotCandidate, "it has none of the question's words"
	if e.HasSemantic() {
		s.Why += ", and its embedding is not among the nearest"
	}
	if score == 0 {
		return nil
	}
	s.Scored = &Scored{
		Score: score, Signals: []domainrecall.Contribution{{Signal: "words", Value: score, Weight: 1}},
		Factors: []domainrecall.Factor{}, FoundBy: []string{}, Words: e.words(best),
	}
	s.Why = "its words match, but the search did not find it: the index may have an older audience or time of it"
	if e.MayHoldMore() {
		last := slices.Min(e.Found.SourceScores)
		s.LastScore = &last
		s.Why = fmt.Sprintf("the search brings in the best %d passages by words", len(e.Found.Sources.Hits))
	}
	return nil
}

// passagesOf analyses a data point as the index does. ok is false if its text is gone, or if too much
// was read.
func (e *explainer) passagesOf(
	ctx context.Context, p *storedDataPoint,
) (passages []domainrecall.Terms, ok bool, err error) {
	if e.read += p.size; e.read > recall.MaxRead {
		return nil, false, nil
	}
	content, err := e.Content(ctx, p.id, p.revision)
	if err != nil || content == nil {
		return nil, false, err
	}
	document := domainrecall.Document{Content: string(content), Label: p.label, Author: p.author}
	return e.Analyzer.Passages(document), true, nil
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
func (e *explainer) findInIndex(ctx context.Context, p *storedDataPoint, passage domainrecall.Terms) (int, error) {
	terms := distinctTerms(passage)
	q := recallindex.Query{
		Project: e.Project.ID, Sources: lookupFirst, Terms: domainrecall.Wholes(terms...),
		Analysis: e.Analyzer.Version(), Audiences: []uuid.UUID{p.audience}, From: &p.occurredAt, To: &p.occurredAt,
	}
	for {
		found, err := e.Search(ctx, q)
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
func distinctTerms(passage domainrecall.Terms) []string {
	var terms []string
	for _, term := range slices.Concat(passage.Text, passage.Label) {
		if len(terms) < lookupTerms && !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	return terms
}
