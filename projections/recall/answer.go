package recall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/pg/switchover"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections/directory"
)

// How many candidates the first search asks for, by how much each further search asks for more, and
// how many searches there are at most.
const (
	firstSources  = 300
	firstMemories = 150
	searchGrowth  = 4
	maxSearches   = 4
)

// snapshotProjections are the projections whose tables a snapshot reads.
var snapshotProjections = []string{projection.Directory, projection.DataPoints, projection.Memories}

// requiredProjections are the projections that the gate reads.
var requiredProjections = []string{projection.DataPoints, projection.Memories}

// answerQuery answers in a snapshot that confirms what the identity reaches, and in which no rebuild
// switched over. If the reach changes each time, the last attempt reads it within the snapshot.
func (s *Service) answerQuery(ctx context.Context, q Query) (Response, error) {
	for _, name := range requiredProjections {
		if err := s.config.Projections.Stopped(ctx, name); err != nil {
			return Response{}, fmt.Errorf("check projection %s: %w", name, err)
		}
	}
	now := instant(s.config.Now())
	for range viewRetries {
		var reach *directory.Reach
		if s.config.Viewers != nil {
			seen, err := s.config.Viewers.Reach(ctx, q.Project, q.Identity)
			if err != nil {
				return Response{}, err
			}
			reach, q.Audiences = &seen, seen.Audiences
		}
		page, err := s.askBeforeSnapshot(ctx, q, reach, now)
		if !errors.Is(err, errReachChanged) && !errors.Is(err, switchover.Err) {
			return page, err
		}
	}
	if s.config.Viewers == nil {
		return Response{}, switchover.Err
	}
	return s.askInSnapshot(ctx, q, now)
}

// viewRetries is how often the reach is read before the snapshot. Reading it first keeps a
// transaction from waiting for the index.
const viewRetries = 3

// errReachChanged reports that the identity reaches something else in the snapshot than before.
var errReachChanged = errors.New("what the identity reaches has changed")

// askBeforeSnapshot searches the index, then answers in a snapshot that begins after the search.
// The snapshot must confirm the reach: a text that entered an audience after the identity had left
// it is not for this viewer. The snapshot waits for the nearest, for at most as long as the finder does.
func (s *Service) askBeforeSnapshot(
	ctx context.Context, q Query, reach *directory.Reach, now time.Time,
) (page Response, err error) {
	question := s.newQuestion(q, now)
	near := s.startNearest(ctx, &question)
	defer near.stop()
	// Search before the snapshot begins, so that the gate sees the current state of each candidate.
	found, err := s.search(ctx, &question)
	if err != nil {
		return Response{}, err
	}
	err = s.config.DB.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		g := newGate(conn, q, now)
		g.replica, g.reach = s.config.Replica, reach
		page, err = s.answer(ctx, g, &question, found, near, true)
		return end(ctx, conn, g.tables, err)
	})
	return page, err
}

// askInSnapshot answers in a snapshot that begins with reading the reach and lasts while the index
// is searched.
func (s *Service) askInSnapshot(ctx context.Context, q Query, now time.Time) (page Response, err error) {
	err = s.config.DB.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		tables := switchover.New(snapshotProjections...)
		page, err = s.inSnapshot(ctx, conn, tables, q, now)
		return end(ctx, conn, tables, err)
	})
	return page, err
}

func (s *Service) inSnapshot(
	ctx context.Context, conn *pgxpool.Conn, tables *switchover.Watch, q Query, now time.Time,
) (Response, error) {
	batch := new(pgx.Batch)
	batch.Queue(begin)
	tables.Begin(batch)
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return Response{}, fmt.Errorf("begin the snapshot: %w", err)
	}
	reach, err := s.config.Viewers.ReachIn(ctx, conn, q.Project, q.Identity)
	if err != nil {
		return Response{}, err
	}
	q.Audiences = reach.Audiences
	question := s.newQuestion(q, now)
	near := s.startNearest(ctx, &question)
	defer near.stop()
	found, err := s.search(ctx, &question)
	if err != nil {
		return Response{}, err
	}
	g := newGate(conn, q, now)
	g.replica, g.tables = s.config.Replica, tables
	return s.answer(ctx, g, &question, found, near, false)
}

// end ends the read-only transaction of a connection. If that fails, the pool drops the connection. It
// returns switchover.Err if the transaction may have read the tables of before and after a switch-over.
func end(ctx context.Context, conn *pgxpool.Conn, tables *switchover.Watch, err error) error {
	if conn.Conn().PgConn().TxStatus() == 'I' {
		return err
	}
	batch := new(pgx.Batch)
	batch.Queue("rollback") // first: an error may have ended the transaction
	tables.End(batch)
	switch e := conn.SendBatch(ctx, batch).Close(); {
	case errors.Is(err, errReachChanged):
		return err
	case e == nil && tables.Check() != nil:
		return switchover.Err
	case e != nil && err == nil:
		return fmt.Errorf("end the snapshot: %w", e)
	default:
		return err
	}
}

// firstCandidates is how many data points are authorized and ranked at first for a limit: some do
// not pass the gate, some do not fit the budget, and the index ranks differently.
func firstCandidates(limit int) int { return max(128, limit+limit/4) }

// moreCandidates is how many are authorized and ranked if that takes little time and a response holds many documents:
// in a project of at most fewPassages, if the first texts are short. The index would decide too much there.
func moreCandidates(limit int) int { return max(firstCandidates(limit), 2*limit+limit/2) }

// fewPassages is up to how many passages of a project a search is so fast that there is time to rank more.
const fewPassages = 10_000

// wantsMore reports whether more candidates than the first are ranked.
func (g *gate) wantsMore(question *question, found *candidates) bool {
	return found.sources.Statistics.Docs <= fewPassages && g.tokens() < 2*int64(question.Budget)
}

// answer authorizes as many candidates as the response may need, most promising first, and searches
// for more if too few can be shown. With opening, the first authorization begins the snapshot: it is
// of what words found, before the nearest are known.
func (s *Service) answer(
	ctx context.Context, g *gate, question *question, found *candidates, near *nearest, opening bool,
) (_ Response, err error) {
	n := firstCandidates(question.Limit)
	if err := g.authorize(ctx, found, min(n, len(found.order)), opening); err != nil {
		return Response{}, err
	}
	if question.semantic, err = near.wait(); err != nil {
		return Response{}, err
	}
	found.addSemantic(question)
	for round := 1; ; {
		n = found.withTies(min(n, len(found.order)))
		if err := g.authorize(ctx, found, n, false); err != nil {
			return Response{}, err
		}
		if more := min(moreCandidates(question.Limit), len(found.order)); n < more && g.wantsMore(question, found) {
			n = more
			continue
		}
		if n == len(found.order) && round < maxSearches && found.more(question) && !g.suffices(question) {
			round++
			question.sources, question.memories = question.sources*searchGrowth, question.memories*searchGrowth
			var err error
			if found, err = s.search(ctx, question); err != nil {
				return Response{}, err
			}
			n = len(found.order)
			continue
		}
		texts, composed, err := s.compose(ctx, g, question, found)
		if err != nil {
			return Response{}, err
		}
		// If the response has much room left, consider all candidates.
		full := len(composed.Entries) == question.Limit || composed.Ended || 4*composed.Used.Tokens >= 3*question.Budget
		if full || n == len(found.order) {
			page, err := s.response(ctx, texts, question, composed)
			if err == nil && s.explainer != nil {
				err = s.explainer.explain(ctx, &answered{s, g, question, found, texts, composed, page})
			}
			return page, err
		}
		n = len(found.order)
	}
}

// instant is a time as responses show it: UTC, in microseconds.
func instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// compose ranks what passed the gate and chooses the documents of the response.
func (s *Service) compose(
	ctx context.Context, g *gate, question *question, found *candidates,
) (*texts, recall.Composed, error) {
	ranking, err := s.rank(ctx, g, question, found)
	if err != nil {
		return nil, recall.Composed{}, err
	}
	texts := &texts{
		gate: g, blobs: s.config.Blobs, ranking: ranking, log: s.config.Log, contents: map[revisionKey][]byte{},
		analyzer: question.analyzer, question: question, found: found,
	}
	budget := recall.Budget{Tokens: question.Budget, Bytes: ResponseBytes}
	cost := func(e recall.Entry) (recall.Cost, bool) { return texts.cost(ctx, e) }
	passages := func(candidate int, left recall.Cost, next []int) []recall.Passage {
		return texts.passages(ctx, candidate, left, next)
	}
	composed := recall.Compose(ranking.candidates, question.Limit, budget, cost, passages)
	return texts, composed, texts.err
}

// response reads the chosen documents. It leaves out a document that is being erased.
func (s *Service) response(
	ctx context.Context, texts *texts, question *question, composed recall.Composed,
) (Response, error) {
	page := Response{AsOf: texts.gate.perspective, Results: make([]Result, 0, len(composed.Entries))}
	if err := texts.load(ctx, composed); err != nil {
		return Response{}, err
	}
	for _, e := range composed.Entries {
		result, ok := texts.result(e, len(page.Results)+1)
		if !ok {
			continue
		}
		if texts.leavesOut(e) {
			page.MetadataLeftOut++
		}
		cost, _ := texts.cost(ctx, e)
		page.UsedEvidenceTokens += cost.Tokens
		page.Results = append(page.Results, result)
	}
	if question.Chronological {
		slices.SortStableFunc(page.Results, func(a, b Result) int { return a.OccurredAt.Compare(b.OccurredAt) })
	}
	return page, nil
}
