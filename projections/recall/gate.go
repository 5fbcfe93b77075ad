package recall

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/unnest"
)

// gate lets pass what the reader may read, as it stands in one snapshot. What the index says is believed of nothing.
type gate struct {
	tx pgx.Tx
	q  Query
	at time.Time
	// points and lines are what passed; judged is everything that was asked about.
	points       map[uuid.UUID]*point
	lines        map[uuid.UUID]*line
	judgedPoints map[uuid.UUID]struct{}
	judgedLines  map[uuid.UUID]struct{}
}

// point is a live data point that the reader may read, by its newest revision.
type point struct {
	revision   int
	sourceID   string
	node       uuid.UUID
	occurredAt time.Time
	label      *string
	author     *string
	// size is the content's in bytes; big is where it lies, nil for in the row.
	size int64
	big  *blob.Ref
	// within says that the newest revision occurred within the windows.
	within bool
}

// line is a memory of the newest captured revision of such a data point, which occurred within the windows.
type line struct {
	id           uuid.UUID
	dataPoint    uuid.UUID
	revision     int
	kind         string
	content      string
	excerpt      string
	occurredAt   time.Time
	supersededAt *time.Time
}

func newGate(tx pgx.Tx, q Query) *gate {
	return &gate{
		tx: tx, q: q, points: map[uuid.UUID]*point{}, lines: map[uuid.UUID]*line{},
		judgedPoints: map[uuid.UUID]struct{}{}, judgedLines: map[uuid.UUID]struct{}{},
	}
}

const selectNewest = `select max(accepted_at) from datapoints.data_points where project_id = $1`

// perspective settles the instant that the answer is given at. Without one it is now, or the newest acceptance where
// that is later: clocks differ between machines, and what was accepted is not in the future.
func (g *gate) perspective(ctx context.Context, now time.Time) error {
	if g.q.At != nil {
		g.at = instant(*g.q.At)
		return nil
	}
	g.at = now
	var newest *time.Time
	if err := g.tx.QueryRow(ctx, selectNewest, g.q.Project.ID).Scan(&newest); err != nil {
		return fmt.Errorf("newest acceptance: %w", err)
	}
	if newest != nil && newest.After(now) {
		g.at = newest.UTC()
	}
	return nil
}

const selectPoints = `select d.id, d.revision, d.source_id, r.node_id, d.occurred_at, r.label, r.author, coalesce(octet_length(r.content), 0), r.content_blob
	from unnest($1::uuid[]) c (id)
	join datapoints.data_points d on d.id = c.id
	join datapoints.revisions r on r.data_point = d.id and r.number = d.revision
	where d.project_id = $2 and d.audience = any($3::uuid[])`

// The superseding claim is the first later one on the same subject and attribute that the reader may read at the perspective.
const selectLines = `select m.id, m.data_point, m.revision, m.kind, m.content, m.excerpt, m.occurred_at, later.occurred_at
	from unnest($1::uuid[]) c (id)
	join memories.memories m on m.id = c.id
	join memories.captured k on k.data_point = m.data_point and k.revision = m.revision
	join datapoints.data_points d on d.id = m.data_point
	left join lateral (
		select n.occurred_at
		from memories.memories n
		join memories.captured nk on nk.data_point = n.data_point and nk.revision = n.revision
		join datapoints.data_points nd on nd.id = n.data_point
		where n.project_id = $2 and n.subject = m.subject and n.attribute = m.attribute and n.kind = 'claim' and n.subject <> ''
			and (n.occurred_at, n.id) > (m.occurred_at, m.id) and n.occurred_at <= $4
			and nd.project_id = $2 and nd.audience = any($3::uuid[])
		order by n.occurred_at, n.id limit 1
	) later on m.kind = 'claim' and m.subject <> ''
	where m.project_id = $2 and d.project_id = $2 and d.audience = any($3::uuid[]) and m.occurred_at <= $4
		and ($5::timestamptz is null or m.occurred_at >= $5) and ($6::timestamptz is null or m.occurred_at <= $6)`

// judge looks up what the index found and was not judged yet.
func (g *gate) judge(ctx context.Context, f *found) error {
	points, lines := map[uuid.UUID]struct{}{}, map[uuid.UUID]struct{}{}
	for _, h := range f.sources.Hits {
		if _, known := g.judgedPoints[h.DataPoint]; !known {
			points[h.DataPoint] = struct{}{}
		}
	}
	for _, h := range f.memories.Hits {
		if _, known := g.judgedLines[h.Memory]; !known {
			lines[h.Memory] = struct{}{}
		}
		if _, known := g.judgedPoints[h.DataPoint]; !known {
			points[h.DataPoint] = struct{}{}
		}
	}
	if len(points) == 0 && len(lines) == 0 {
		return nil
	}
	batch := new(pgx.Batch)
	audiences := unnest.IDs(g.q.Audiences, func(a uuid.UUID) uuid.UUID { return a })
	batch.Queue(selectPoints, unnest.Keys(points), g.q.Project.ID, audiences).Query(g.readPoints)
	batch.Queue(selectLines, unnest.Keys(lines), g.q.Project.ID, audiences, g.at, g.q.From, g.q.To).Query(g.readLines)
	if err := g.tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("judge candidates: %w", err)
	}
	for id := range points {
		g.judgedPoints[id] = struct{}{}
	}
	for id := range lines {
		g.judgedLines[id] = struct{}{}
	}
	return nil
}

func (g *gate) readPoints(rows pgx.Rows) error {
	for rows.Next() {
		var id uuid.UUID
		p := new(point)
		if err := rows.Scan(&id, &p.revision, &p.sourceID, &p.node, &p.occurredAt, &p.label, &p.author, &p.size, &p.big); err != nil {
			return err
		}
		p.occurredAt = p.occurredAt.UTC()
		if p.big != nil {
			p.size = p.big.Size
		}
		p.within = !p.occurredAt.After(g.at) && (g.q.From == nil || !p.occurredAt.Before(*g.q.From)) && (g.q.To == nil || !p.occurredAt.After(*g.q.To))
		g.points[id] = p
	}
	return rows.Err()
}

func (g *gate) readLines(rows pgx.Rows) error {
	for rows.Next() {
		l := new(line)
		var content, excerpt []byte
		if err := rows.Scan(&l.id, &l.dataPoint, &l.revision, &l.kind, &content, &excerpt, &l.occurredAt, &l.supersededAt); err != nil {
			return err
		}
		l.content, l.excerpt, l.occurredAt = string(content), string(excerpt), l.occurredAt.UTC()
		if l.supersededAt != nil {
			*l.supersededAt = l.supersededAt.UTC()
		}
		g.lines[l.id] = l
	}
	return rows.Err()
}

// showable is how many sources passed that a page of the budget could hold.
func (g *gate) showable(budget int) int {
	n := 0
	for _, p := range g.points {
		if p.within && recall.LeastTokens(p.size) <= int64(budget) {
			n++
		}
	}
	return n
}
