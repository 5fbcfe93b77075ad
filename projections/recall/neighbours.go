package recall

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/pgarray"
)

// Neighbours pass the same gate as everything else: nothing of a neighbour that the viewer may not read takes part. The
// statements return two on each side, and a third, which shows whether the second is one of several at that instant.
//
// Texts that name a conversation are next to those of the same one, among the nearest. Of those that name none, the
// first statement counts how many authors wrote in the hour around each, unless the whole project has few.
const (
	selectNeighbours = `with recursive authors (key, n) as (
			(select author_key, 1 from datapoints.data_points where project_id = $1 and author_key is not null
				order by author_key limit 1)
			union all
			select (select author_key from datapoints.data_points where project_id = $1 and author_key > a.key
				order by author_key limit 1), a.n + 1 from authors a where a.key is not null and a.n <= $7
		), crowd as (select count(key) > $7 as may_be from authors)
		select c.id, later, case when (select may_be from crowd) then (
			select count(distinct author_key) from (
				select author_key from datapoints.data_points d where ` + mayRead + `
					and occurred_at between greatest(c.at - interval '30 minutes', $5) and least(c.at + interval '30 minutes', $6)
				limit 256
			) n) else 0 end, ` + dataPointColumns + `
		from unnest($3::uuid[], $4::timestamptz[]) c (id, at)
		cross join lateral (
			(select false as later, * from datapoints.data_points d
				where ` + mayRead + ` and occurred_at < c.at and occurred_at >= greatest(c.at - interval '1 hour', $5)
				order by occurred_at desc limit 3)
			union all
			(select true, * from datapoints.data_points d
				where ` + mayRead + ` and occurred_at > c.at and occurred_at <= least(c.at + interval '1 hour', $6)
				order by occurred_at limit 3)
		) d`

	// selectNamed is for texts that name a conversation. $7 are audiences and $8 keys.
	selectNamed = `select c.id, later, 0::bigint, ` + dataPointColumns + `
		from unnest($3::uuid[], $4::timestamptz[], $7::uuid[], $8::bigint[]) c (id, at, audience, conversation)
		cross join lateral (
			(select false as later, * from (select * from datapoints.data_points d
				where ` + mayRead + ` and occurred_at < c.at and occurred_at >= greatest(c.at - interval '1 hour', $5)
				order by occurred_at desc limit 64) n
				where n.audience = c.audience and n.conversation = c.conversation order by occurred_at desc limit 3)
			union all
			(select true, * from (select * from datapoints.data_points d
				where ` + mayRead + ` and occurred_at > c.at and occurred_at <= least(c.at + interval '1 hour', $6)
				order by occurred_at limit 64) n
				where n.audience = c.audience and n.conversation = c.conversation order by occurred_at limit 3)
		) d`
)

// neighbour is a data point right before or after another one, around which so many authors wrote; 0 if they are few
// in the whole project.
type neighbour struct {
	*dataPointRow
	later   bool
	authors int
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

// findNeighbours returns the neighbours of each data point, within the window and up to the perspective. They are of
// one audience and one conversation with it.
func (g *gate) findNeighbours(ctx context.Context, of []uuid.UUID) (map[uuid.UUID][]neighbour, error) {
	from, to := time.Time{}, g.perspective
	if g.q.From != nil {
		from = *g.q.From
	}
	if g.q.To != nil && g.q.To.Before(to) {
		to = *g.q.To
	}
	var named, others []uuid.UUID
	for _, id := range of {
		if g.dataPoints[id].conversation != 0 {
			named = append(named, id)
		} else {
			others = append(others, id)
		}
	}
	found := make(map[uuid.UUID][]neighbour, len(of))
	at := func(id uuid.UUID) time.Time { return g.dataPoints[id].occurredAt }
	if len(others) > 0 {
		if err := g.readNeighbours(ctx, found, selectNeighbours, g.q.Project.ID, g.q.Audiences, others,
			pgarray.Column(others, at), from, to, recall.MostSpeakers); err != nil {
			return nil, err
		}
	}
	if len(named) > 0 {
		if err := g.readNeighbours(ctx, found, selectNamed, g.q.Project.ID, g.q.Audiences, named, pgarray.Column(named, at),
			from, to, pgarray.Column(named, func(id uuid.UUID) uuid.UUID { return g.dataPoints[id].audience }),
			pgarray.Column(named, func(id uuid.UUID) int64 { return g.dataPoints[id].conversation })); err != nil {
			return nil, err
		}
	}
	for id, neighbours := range found {
		row := g.dataPoints[id]
		found[id] = slices.DeleteFunc(slices.Concat(nearestOf(neighbours, false), nearestOf(neighbours, true)),
			func(n neighbour) bool {
				return n.audience != row.audience || n.conversation != row.conversation || n.authors > recall.MostSpeakers
			})
	}
	return found, nil
}

func (g *gate) readNeighbours(
	ctx context.Context, found map[uuid.UUID][]neighbour, statement string, args ...any,
) error {
	rows, err := g.db.Query(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var id uuid.UUID
	var n neighbour
	columns := g.columns(&id, &n.later, &n.authors)
	for rows.Next() {
		if n.dataPointRow, err = g.readDataPoint(rows, columns); err != nil {
			return err
		}
		found[id] = append(found[id], n)
	}
	return rows.Err()
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
