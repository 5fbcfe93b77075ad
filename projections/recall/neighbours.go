package recall

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
)

// Neighbours pass the same gate as everything else: nothing of a neighbour that the viewer may not read takes part.
// They are of the audience and of the conversation of the data point, among the nearest on each side. The statement
// returns two on each side, and a third, which shows whether the second is one of several at that instant. A data point
// without a key of a conversation has none if more than a few authors wrote in the hour around it, by the nearest
// texts.
const selectNeighbours = `select c.id, later, ` + dataPointColumns + `
	from unnest($3::uuid[], $4::timestamptz[]) c (id, at)
	cross join lateral (select audience, conversation from datapoints.data_points where id = c.id offset 0) o
	left join lateral (
		select count(distinct author) as authors from (
			(select author from datapoints.data_points d where ` + mayRead + ` and occurred_at <= c.at
				and occurred_at >= greatest(c.at - interval '30 minutes', $5) order by occurred_at desc limit 32)
			union all
			(select author from datapoints.data_points d where ` + mayRead + ` and occurred_at > c.at
				and occurred_at <= least(c.at + interval '30 minutes', $6) order by occurred_at limit 32)
		) n
	) w on o.conversation = 0
	cross join lateral (
		(select false as later, * from (select * from datapoints.data_points d
			where ` + mayRead + ` and occurred_at < c.at and occurred_at >= greatest(c.at - interval '1 hour', $5)
			order by occurred_at desc limit 16) n
			where n.audience = o.audience and n.conversation = o.conversation order by occurred_at desc limit 3)
		union all
		(select true, * from (select * from datapoints.data_points d
			where ` + mayRead + ` and occurred_at > c.at and occurred_at <= least(c.at + interval '1 hour', $6)
			order by occurred_at limit 16) n
			where n.audience = o.audience and n.conversation = o.conversation order by occurred_at limit 3)
	) d
	where coalesce(w.authors, 0) <= $7`

// neighbour is a data point right before or after another one.
type neighbour struct {
	*dataPointRow
	later bool
}

// loadNeighbours loads the two data points right before and after each of some data points. Only data points with an
// author have neighbours: documents without one are not a conversation.
func (g *gate) loadNeighbours(ctx context.Context, dataPoints []uuid.UUID) error {
	var wanted []uuid.UUID
	for _, id := range dataPoints {
		if row := g.dataPoints[id]; !row.withNeighbours {
			row.withNeighbours = true
			wanted = append(wanted, id)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	found, err := g.findNeighbours(ctx, wanted)
	if err != nil {
		return fmt.Errorf("find neighbours: %w", err)
	}
	for _, id := range wanted {
		g.link(id, slices.DeleteFunc(g.pass(found[id]), func(n neighbour) bool {
			n.isNeighbour = n.isNeighbour || n.author != nil
			return n.author == nil
		}))
	}
	return nil
}

// pass notes neighbours as passed, and returns them as they were noted first.
func (g *gate) pass(neighbours []neighbour) []neighbour {
	for i, n := range neighbours {
		if known := g.dataPoints[n.id]; known != nil {
			neighbours[i].dataPointRow = known
			continue
		}
		g.dataPoints[n.id], g.checkedDataPoints[n.id] = n.dataPointRow, struct{}{}
	}
	return neighbours
}

// findNeighbours returns the neighbours of each data point, within the window and up to the perspective.
func (g *gate) findNeighbours(ctx context.Context, of []uuid.UUID) (map[uuid.UUID][]neighbour, error) {
	times := make([]time.Time, len(of))
	for i, id := range of {
		times[i] = g.dataPoints[id].occurredAt
	}
	from, to := time.Time{}, g.perspective
	if g.q.From != nil {
		from = *g.q.From
	}
	if g.q.To != nil && g.q.To.Before(to) {
		to = *g.q.To
	}
	rows, err := g.db.Query(ctx, selectNeighbours, g.q.Project.ID, g.q.Audiences, of, times, from, to, recall.MostSpeakers)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := make(map[uuid.UUID][]neighbour, len(of))
	for rows.Next() {
		var id uuid.UUID
		var n neighbour
		if n.dataPointRow, err = g.readDataPoint(rows, &id, &n.later); err != nil {
			return nil, err
		}
		found[id] = append(found[id], n)
	}
	for id, neighbours := range found {
		found[id] = slices.Concat(nearestOf(neighbours, false), nearestOf(neighbours, true))
	}
	return found, rows.Err()
}

// nearestOf returns the two neighbours on one side. Of more at one instant none is a neighbour: which of them would be
// is chance, and would differ between projects.
func nearestOf(neighbours []neighbour, later bool) []neighbour {
	side := slices.DeleteFunc(slices.Clone(neighbours), func(n neighbour) bool { return n.later != later })
	slices.SortStableFunc(side, func(a, b neighbour) int {
		if later {
			return a.occurredAt.Compare(b.occurredAt)
		}
		return b.occurredAt.Compare(a.occurredAt)
	})
	for n := 2; n > 0; n-- {
		if len(side) <= n || !side[n].occurredAt.Equal(side[n-1].occurredAt) {
			return side[:min(n, len(side))]
		}
	}
	return nil
}

// link records the order of a data point and its neighbours.
func (g *gate) link(id uuid.UUID, neighbours []neighbour) {
	slices.SortFunc(neighbours, func(a, b neighbour) int { return a.compare(b.dataPointRow) })
	var earlier *dataPointRow
	note := func(next *dataPointRow) {
		if earlier != nil {
			earlier.next = next
		}
		earlier = next
	}
	placed := false
	for _, n := range neighbours {
		if n.later && !placed {
			note(g.dataPoints[id])
			placed = true
		}
		note(n.dataPointRow)
	}
	if !placed {
		note(g.dataPoints[id])
	}
}
