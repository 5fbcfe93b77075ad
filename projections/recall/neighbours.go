package recall

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Neighbours pass the same gate as everything else: nothing of a neighbour that the viewer may not
// read takes part. The statement returns the ids of two on each side, and of a third, which shows whether the second is
// one of several at that instant; those that are not candidates are then looked up as candidates are.
const selectNeighbours = `select c.id, d.later, d.id, d.occurred_at
	from unnest($1::uuid[], $2::timestamptz[]) c (id, at)
	cross join lateral (
		(select false as later, id, occurred_at from datapoints.data_points
			where project_id = $3 and audience = any($4::uuid[]) and occurred_at < c.at and occurred_at >= greatest(c.at - interval '1 hour', $5)
			order by occurred_at desc limit 3)
		union all
		(select true, id, occurred_at from datapoints.data_points
			where project_id = $3 and audience = any($4::uuid[]) and occurred_at > c.at and occurred_at <= least(c.at + interval '1 hour', $6)
			order by occurred_at limit 3)
	) d`

// neighbour is a data point right before or after another one.
type neighbour struct {
	id    uuid.UUID
	later bool
	at    time.Time
}

// loadNeighbours loads the two data points right before and after each of some data points. Only data points with an
// author have neighbours: documents without one are not a conversation.
func (g *gate) loadNeighbours(ctx context.Context, dataPoints []uuid.UUID) error {
	var wanted []uuid.UUID
	for _, id := range dataPoints {
		if _, known := g.withNeighbours[id]; !known {
			g.withNeighbours[id] = struct{}{}
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
	if err := g.lookUpNeighbours(ctx, found); err != nil {
		return fmt.Errorf("look up neighbours: %w", err)
	}
	for _, id := range wanted {
		g.link(id, slices.DeleteFunc(found[id], func(n neighbour) bool {
			p := g.dataPoints[n.id]
			if p == nil || p.author == nil {
				return true
			}
			p.isNeighbour = true
			return false
		}))
	}
	return nil
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
	rows, err := g.db.Query(ctx, selectNeighbours, of, times, g.q.Project.ID, g.q.Audiences, from, to)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := make(map[uuid.UUID][]neighbour, len(of))
	for rows.Next() {
		var id uuid.UUID
		var n neighbour
		if err := rows.Scan(&id, &n.later, &n.id, &n.at); err != nil {
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
			return a.at.Compare(b.at)
		}
		return b.at.Compare(a.at)
	})
	for n := 2; n > 0; n-- {
		if len(side) <= n || !side[n].at.Equal(side[n-1].at) {
			return side[:min(n, len(side))]
		}
	}
	return nil
}

// lookUpNeighbours looks up the neighbours that are not candidates, with their texts if these are short.
func (g *gate) lookUpNeighbours(ctx context.Context, found map[uuid.UUID][]neighbour) error {
	var unknown []uuid.UUID
	for _, neighbours := range found {
		for _, n := range neighbours {
			if _, known := g.checkedDataPoints[n.id]; !known {
				g.checkedDataPoints[n.id] = struct{}{}
				unknown = append(unknown, n.id)
			}
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	rows, err := g.db.Query(ctx, selectDataPoints, unknown, g.q.Project.ID, g.q.Audiences, true)
	if err != nil {
		return err
	}
	defer rows.Close()
	return g.readDataPoints(rows)
}

// link records the order of a data point and its neighbours.
func (g *gate) link(id uuid.UUID, neighbours []neighbour) {
	slices.SortFunc(neighbours, func(a, b neighbour) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(g.dataPoints[a.id].sourceID, g.dataPoints[b.id].sourceID))
	})
	earlier := uuid.Nil
	note := func(next uuid.UUID) {
		if earlier != uuid.Nil {
			g.next[earlier] = next
		}
		earlier = next
	}
	placed := false
	for _, n := range neighbours {
		if n.later && !placed {
			note(id)
			placed = true
		}
		note(n.id)
	}
	if !placed {
		note(id)
	}
}
