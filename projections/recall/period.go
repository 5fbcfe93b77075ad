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
