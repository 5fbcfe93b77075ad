package recall

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/recall"
)

// Neighbours pass the same gate as everything else: nothing of a neighbour that the viewer may not
// read takes part. Only data points with an author have neighbours: documents without one are not a
// conversation.
const selectNeighbours = `select c.id, d.later, d.id, d.revision, d.source_id, r.node_id, d.occurred_at, r.label, r.author, r.size, r.content_blob, r.tokens, r.carried,
		r.short, case when r.short then r.content end, case when r.short then r.metadata end
	from unnest($1::uuid[], $2::timestamptz[]) c (id, at)
	cross join lateral (
		(select false as later, * from datapoints.data_points
			where project_id = $3 and audience = any($4::uuid[]) and occurred_at < c.at and occurred_at >= greatest(c.at - interval '1 hour', $5)
			order by occurred_at desc, id desc limit 2)
		union all
		(select true, * from datapoints.data_points
			where project_id = $3 and audience = any($4::uuid[]) and occurred_at > c.at and occurred_at <= least(c.at + interval '1 hour', $6)
			order by occurred_at, id limit 2)
	) d
	cross join lateral (
		select *, coalesce(octet_length(content), 0) as size, ` + metadataSize + ` as carried, content_blob is null and metadata_blob is null
			and octet_length(content) <= 1024 and coalesce(octet_length(metadata), 0) <= 1024 as short
		from datapoints.revisions where data_point = d.id and number = d.revision offset 0
	) r
	where r.author is not null`

// neighbour is a row of selectNeighbours.
type neighbour struct {
	id    uuid.UUID
	later bool
	at    time.Time
}

// loadNeighbours loads the two data points right before and after each of some data points.
func (g *gate) loadNeighbours(ctx context.Context, dataPoints []uuid.UUID) error {
	var wanted []uuid.UUID
	var times []time.Time
	for _, id := range dataPoints {
		if _, known := g.withNeighbours[id]; !known {
			g.withNeighbours[id] = struct{}{}
			wanted, times = append(wanted, id), append(times, g.dataPoints[id].occurredAt)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	from, to := time.Time{}, g.perspective
	if g.q.From != nil {
		from = *g.q.From
	}
	if g.q.To != nil && g.q.To.Before(to) {
		to = *g.q.To
	}
	rows, err := g.db.Query(ctx, selectNeighbours, wanted, times, g.q.Project.ID, g.q.Audiences, from, to)
	if err != nil {
		return fmt.Errorf("load neighbours: %w", err)
	}
	found := make(map[uuid.UUID][]neighbour)
	if err := g.readNeighbours(rows, found); err != nil {
		return fmt.Errorf("load neighbours: %w", err)
	}
	for _, id := range wanted {
		g.link(id, found[id])
	}
	return nil
}

func (g *gate) readNeighbours(rows pgx.Rows, found map[uuid.UUID][]neighbour) error {
	defer rows.Close()
	for rows.Next() {
		var of, id uuid.UUID
		var later bool
		p, b := new(dataPointRow), new(body)
		if err := rows.Scan(&of, &later, &id, &p.revision, &p.sourceID, &p.node, &p.occurredAt, &p.label, &p.author,
			&p.size, &p.big, &p.tokens, &p.metadataSize, &b.ready, &b.content, (*[]byte)(&b.metadata)); err != nil {
			return err
		}
		p.occurredAt = p.occurredAt.UTC()
		found[of] = append(found[of], neighbour{id, later, p.occurredAt})
		if known := g.dataPoints[id]; known != nil {
			known.isNeighbour = true
			continue
		}
		if p.big != nil {
			p.size = p.big.Size
		}
		if b.ready {
			b.label = p.label
			g.texts[revisionKey{id, p.revision}] = b
			p.traits = recall.TraitsOf(string(b.content))
		}
		p.inWindow, p.isNeighbour = true, true
		g.dataPoints[id] = p
	}
	return rows.Err()
}

// link records the order of a data point and its neighbours.
func (g *gate) link(id uuid.UUID, neighbours []neighbour) {
	slices.SortStableFunc(neighbours, func(a, b neighbour) int { return a.at.Compare(b.at) })
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
