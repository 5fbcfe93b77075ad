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
	"github.com/annals-project/annals/projections/directory"
)

// gate lets pass what the reader may read, as it stands in one snapshot. What the index says is believed of nothing.
type gate struct {
	db database
	q  Query
	// now is the time of the request, and at the instant that the answer is given at, once the first judgement has settled it.
	now, at time.Time
	settled bool
	// view is what the snapshot is held against where it begins, nil for nothing; moved says that it did not hold.
	view  *directory.View
	moved bool
	// points and lines are what passed; judged is everything that was asked about.
	points       map[uuid.UUID]*point
	lines        map[uuid.UUID]*line
	judgedPoints map[uuid.UUID]struct{}
	judgedLines  map[uuid.UUID]struct{}
	// texts are the short ones, which came along with their points.
	texts map[revisionKey]*body
	// counted is how many bytes of contents in blobs were read to count their tokens.
	counted int64
	// next is what was said next, as far as it was looked up, and around those that were looked around.
	next   map[uuid.UUID]uuid.UUID
	around map[uuid.UUID]struct{}
}

// database is what a gate asks: a connection that has no transaction yet, or a transaction.
type database interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
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
	// tokens is what the content costs a page, nil until a content in a blob was counted.
	tokens *int
	// carried is how many bytes of metadata a page takes along with it.
	carried int64
	// within says that the newest revision occurred within the windows.
	within bool
	// beside says that it stands beside one that the query found; traits are told then, where its text is short.
	beside bool
	traits recall.Traits
}

// line is a memory of the newest captured revision of such a data point, which occurred within the windows.
type line struct {
	id        uuid.UUID
	dataPoint uuid.UUID
	revision  int
	// carried is how many bytes of metadata its revision has, nil for those of the newest.
	carried      *int64
	kind         string
	content      string
	excerpt      string
	occurredAt   time.Time
	supersededAt *time.Time
}

// newGate makes a gate that answers as of the perspective of the query. Without one it is now, or the newest acceptance where
// that is later: clocks differ between machines, and what was accepted is not in the future.
func newGate(db database, q Query, now time.Time) *gate {
	g := &gate{
		db: db, q: q, now: now, points: map[uuid.UUID]*point{}, lines: map[uuid.UUID]*line{},
		judgedPoints: map[uuid.UUID]struct{}{}, judgedLines: map[uuid.UUID]struct{}{}, texts: map[revisionKey]*body{},
		next: map[uuid.UUID]uuid.UUID{}, around: map[uuid.UUID]struct{}{},
	}
	if q.At != nil {
		g.at, g.settled = instant(*q.At), true
	}
	return g
}

// begin makes what follows see one snapshot. It goes ahead of the first question, in the same message.
const begin = "begin isolation level repeatable read read only"

const selectAt = `select greatest($2::timestamptz, (select max(accepted_at) from datapoints.data_points where project_id = $1))`

// carried is how many bytes of metadata a revision has, wherever they lie.
const carried = `coalesce(octet_length(metadata), (metadata_blob->>'size')::bigint, 0)`

// Of each statement the planner is left no choice: "offset 0" keeps every look-up by key one. Before the first analysis of a table, or
// long after it, it takes to reading whole tables instead.

// Most texts are short, and lie in the row that is read anyway: they come along, so that the page needs not ask for them.
const selectPoints = `select d.id, d.revision, d.source_id, r.node_id, d.occurred_at, r.label, r.author, r.size, r.content_blob, r.tokens, r.carried,
		r.short, case when r.short then r.content end, case when r.short then r.metadata end
	from unnest($1::uuid[]) c (id)
	cross join lateral (select * from datapoints.data_points where id = c.id offset 0) d
	cross join lateral (
		select *, coalesce(octet_length(content), 0) as size, ` + carried + ` as carried, $4 and content_blob is null and metadata_blob is null
			and octet_length(content) <= 1024 and coalesce(octet_length(metadata), 0) <= 1024 as short
		from datapoints.revisions where data_point = d.id and number = d.revision offset 0
	) r
	where d.project_id = $2 and d.audience = any($3::uuid[])`

// A memory of the newest revision is read by those whom the newest audience reaches: to move a text is to decide about its memories
// too. One of an older revision is read by those who reach both that and the last audience that its own revision had while it was
// the newest: what a re-send left out of a text was never for those that the re-send reaches first. A memory whose revision this
// snapshot does not know is read by nobody.
//
// The superseding claim is the first later one on the same subject and attribute that the reader may read at the perspective.
const selectLines = `with perspective as materialized (
		select coalesce($4::timestamptz, greatest($7::timestamptz, (select max(accepted_at) from datapoints.data_points where project_id = $2))) as at
	)
	select m.id, m.data_point, m.revision, own.carried, m.kind, m.content, m.excerpt, m.occurred_at, later.occurred_at
	from unnest($1::uuid[]) c (id)
	cross join lateral (select * from memories.memories where id = c.id offset 0) m
	cross join lateral (select from memories.captured where data_point = m.data_point and revision = m.revision offset 0) k
	cross join lateral (select * from datapoints.data_points where id = m.data_point offset 0) d
	left join lateral (
		select audience, ` + carried + ` as carried from datapoints.revisions
		where data_point = m.data_point and number = m.revision and m.revision <> d.revision offset 0
	) own on true
	left join lateral (
		select n.occurred_at
		from memories.memories n
		cross join lateral (select from memories.captured where data_point = n.data_point and revision = n.revision offset 0) nk
		cross join lateral (select * from datapoints.data_points where id = n.data_point offset 0) nd
		left join lateral (
			select audience from datapoints.revisions where data_point = n.data_point and number = n.revision and n.revision <> nd.revision offset 0
		) nown on true
		where n.project_id = $2 and n.subject = m.subject and n.attribute = m.attribute and n.kind = 'claim' and n.subject <> ''
			and (n.occurred_at, n.id) > (m.occurred_at, m.id) and n.occurred_at <= (select at from perspective)
			and nd.project_id = $2 and nd.audience = any($3::uuid[]) and (n.revision = nd.revision or nown.audience = any($3::uuid[]))
		order by n.occurred_at, n.id limit 1
	) later on m.kind = 'claim' and m.subject <> ''
	where m.project_id = $2 and d.project_id = $2 and d.audience = any($3::uuid[]) and (m.revision = d.revision or own.audience = any($3::uuid[]))
		and m.occurred_at <= (select at from perspective)
		and ($5::timestamptz is null or m.occurred_at >= $5) and ($6::timestamptz is null or m.occurred_at <= $6)`

// judge looks up the first n data points that the index found, with their memories, as far as they were not judged yet. The first
// judgement settles the perspective, and with opening it begins the transaction; all of it is one message to the database.
func (g *gate) judge(ctx context.Context, f *found, n int, opening bool) error {
	var points, lines []uuid.UUID
	for _, id := range f.order[:n] {
		if _, known := g.judgedPoints[id]; !known {
			points = append(points, id)
			g.judgedPoints[id] = struct{}{}
		}
	}
	for _, h := range f.memories.Hits {
		if _, asked := g.judgedPoints[h.DataPoint]; !asked {
			continue
		}
		if _, known := g.judgedLines[h.Memory]; !known {
			lines = append(lines, h.Memory)
			g.judgedLines[h.Memory] = struct{}{}
		}
	}
	batch := new(pgx.Batch)
	if opening {
		batch.Queue(begin)
		if g.view != nil {
			g.view.Confirm(batch, func(same bool) { g.moved = !same })
		}
	}
	var at *time.Time
	if g.settled {
		at = &g.at
	} else {
		batch.Queue(selectAt, g.q.Project.ID, g.now).QueryRow(g.settle)
	}
	audiences := ids(g.q.Audiences)
	if len(points) > 0 {
		batch.Queue(selectPoints, ids(points), g.q.Project.ID, audiences, !g.beyond(n)).Query(g.readPoints)
	}
	if len(lines) > 0 {
		batch.Queue(selectLines, ids(lines), g.q.Project.ID, audiences, at, g.q.From, g.q.To, g.now).Query(g.readLines)
	}
	if batch.Len() == 0 {
		return nil
	}
	if err := g.db.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("judge candidates: %w", err)
	}
	if g.moved {
		return errMoved
	}
	return nil
}

// beyond says whether so many data points are more than are judged at first.
func (g *gate) beyond(n int) bool { return n > likely(g.q.Limit) }

func ids(list []uuid.UUID) [][16]byte {
	return unnest.IDs(list, func(id uuid.UUID) uuid.UUID { return id })
}

func (g *gate) settle(row pgx.Row) error {
	if err := row.Scan(&g.at); err != nil {
		return err
	}
	g.at, g.settled = g.at.UTC(), true
	return nil
}

func (g *gate) readPoints(rows pgx.Rows) error {
	for rows.Next() {
		var id uuid.UUID
		p, b := new(point), new(body)
		if err := rows.Scan(&id, &p.revision, &p.sourceID, &p.node, &p.occurredAt, &p.label, &p.author, &p.size, &p.big, &p.tokens, &p.carried,
			&b.ready, &b.content, (*[]byte)(&b.metadata)); err != nil {
			return err
		}
		if b.ready {
			b.label = p.label
			g.texts[revisionKey{id, p.revision}] = b
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
		if err := rows.Scan(&l.id, &l.dataPoint, &l.revision, &l.carried, &l.kind, &content, &excerpt, &l.occurredAt, &l.supersededAt); err != nil {
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

// tooLong is how many sources may pass that no page of the budget holds before recall stops asking the index for others.
const tooLong = 100

// suffices reports whether what passed is enough for a page: sources for its limit or its tokens, or so many that are too long for it
// that others hardly fit.
func (g *gate) suffices(ask *question) bool {
	fit, long, tokens := 0, 0, int64(0)
	for _, p := range g.points {
		if !p.within {
			continue
		}
		least := p.leastTokens()
		if least > int64(ask.Budget) {
			long++
			continue
		}
		fit, tokens = fit+1, tokens+least
	}
	return fit >= ask.Limit || tokens >= int64(ask.Budget) || long >= tooLong
}

// leastTokens is what the content costs, or the least that it can cost while it was not counted.
func (p *point) leastTokens() int64 {
	if p.tokens != nil {
		return int64(*p.tokens)
	}
	return recall.LeastTokens(p.size)
}
