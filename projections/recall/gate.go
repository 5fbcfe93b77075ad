package recall

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/pg/switchover"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections/directory"
)

// gate holds what the viewer may read, as one Postgres snapshot shows it. It trusts nothing that
// the index returns.
type gate struct {
	db Snapshot
	// replica may answer texts that passed; nil for none.
	replica *replica.Reader
	q       Query
	// now is the time of the request. perspective is valid once hasPerspective.
	now, perspective time.Time
	hasPerspective   bool
	// reach is what the snapshot must confirm when it begins, nil for nothing; reachChanged reports
	// that it did not.
	reach        *directory.Reach
	reachChanged bool
	// tables watches the projections that the snapshot reads.
	tables *switchover.Watch
	// dataPoints and memories passed; the checked sets hold everything that was looked up.
	dataPoints        map[uuid.UUID]*dataPointRow
	memories          map[uuid.UUID]*memoryRow
	checkedDataPoints map[uuid.UUID]struct{}
	checkedMemories   map[uuid.UUID]struct{}
	// texts are those of the response.
	texts map[revisionKey]*body
	// read is the row that is being read, spare are rows that were allocated with others, names are labels and authors.
	read  readRow
	spare []dataPointRow
	names map[string]*string
	// counted is how many bytes of texts were read to count tokens and to find passages, analysed how many of them were
	// analysed.
	counted, analysed int64
	// excerpted are the passages of texts that do not fit; the last unfit of those texts have none that fits.
	excerpted map[revisionKey]excerpted
	unfit     int
}

// Snapshot is a connection without a transaction, or one in a transaction.
type Snapshot interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// dataPointRow is the newest revision of a live data point that the viewer may read.
type dataPointRow struct {
	id         uuid.UUID
	revision   int
	sourceID   string
	node       uuid.UUID
	occurredAt time.Time
	label      *string
	author     *string
	// size is that of the content in bytes; big is its blob, nil if the content is in the row.
	size int64
	big  *blob.Ref
	// tokens is what the content costs, counted what it was stored with; tokens is nil until a content in a blob was
	// counted.
	tokens  *int
	counted int
	// metadataSize is the bytes of metadata that a response shows with it.
	metadataSize int64
	// traits, states and outline are those of a short content, 0 of another.
	traits  recall.Traits
	states  recall.States
	outline recall.Outline
	// audience is zero for project-visible, conversation the key of the conversation that the metadata name, 0 for none.
	audience     uuid.UUID
	conversation int64
	// inWindow reports whether the newest revision occurred within From, To and the perspective.
	inWindow bool
	// isNeighbour reports whether it is next to a candidate in the conversation, next is its successor there, and
	// withNeighbours reports whether its own neighbours are loaded.
	isNeighbour, withNeighbours bool
	next                        *dataPointRow
	// match is what of it matches the question, rank where it is among the ranked.
	match match
	rank  places
}

// compare orders data points of one project by their time and their source id.
func (p *dataPointRow) compare(other *dataPointRow) int {
	if order := p.occurredAt.Compare(other.occurredAt); order != 0 {
		return order
	}
	return cmp.Compare(p.sourceID, other.sourceID)
}

// memoryRow is a memory of the newest captured revision of such a data point, and occurred in the
// window.
type memoryRow struct {
	ID        uuid.UUID
	dataPoint uuid.UUID
	revision  int
	// metadataSize is the bytes of metadata of its revision, nil for the newest revision.
	metadataSize *int64
	kind         string
	content      string
	excerpt      string
	occurredAt   time.Time
	supersededAt *time.Time
	// supersededBy is the data point of the claim that supersedes it, nil for none; supersededTo is what that states.
	supersededBy *uuid.UUID
	supersededTo string
}

// newGate makes a gate for the perspective of the query. Without one the perspective is now, or the
// newest acceptance if that is later: clocks of machines differ, and an accepted send is not in the
// future.
func newGate(db Snapshot, q Query, now time.Time) *gate {
	g := &gate{
		db: db, q: q, now: now, tables: switchover.New(snapshotProjections...),
		dataPoints: map[uuid.UUID]*dataPointRow{}, memories: map[uuid.UUID]*memoryRow{},
		checkedDataPoints: map[uuid.UUID]struct{}{}, checkedMemories: map[uuid.UUID]struct{}{},
		texts: map[revisionKey]*body{}, excerpted: map[revisionKey]excerpted{}, names: map[string]*string{},
	}
	if q.At != nil {
		g.perspective, g.hasPerspective = instant(*q.At), true
	}
	return g
}

// instant is a time as responses show it: UTC, in microseconds.
func instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// begin starts the snapshot. It is sent with the first statement, in one message.
const begin = "begin isolation level repeatable read read only"

const selectPerspective = `select greatest($2::timestamptz, (select max(accepted_at) from datapoints.data_points where project_id = $1))`

// metadataSize is SQL for the bytes of metadata of a revision, in the row or in a blob.
const metadataSize = `coalesce(octet_length(metadata), (metadata_blob->>'size')::bigint, 0)`

// "offset 0" makes the planner look up each row by key. Before the first analysis of a table, or
// long after it, the planner would scan whole tables.

// dataPointColumns are what the gate reads of a row d of data points, and mayRead is what lets it pass, by project and
// audiences.
const (
	dataPointColumns = `d.id, d.revision, d.source_id, d.occurred_at, d.label, d.author, d.size, d.content_blob, d.tokens,
		d.metadata_size, d.traits, d.stems, d.exact, d.outline, d.audience, d.conversation`
	mayRead = `d.project_id = $1 and d.audience = any($2::uuid[])`
)

const selectDataPoints = `select ` + dataPointColumns + ` from unnest($3::uuid[]) c (id)
	cross join lateral (select * from datapoints.data_points where id = c.id offset 0) d where ` + mayRead + ``

// A memory of the newest revision is visible to viewers that reach the newest audience: moving a
// text also moves its memories. A memory of an older revision is visible to viewers that reach both
// that audience and the last audience that its own revision had while it was the newest: what a
// re-send left out of a text is not for viewers that only reach the re-send. A memory whose revision
// is not in this snapshot is visible to nobody.
//
// The superseding claim is the first later one on the same subject and attribute that the viewer
// may read at the perspective.
const selectMemories = `with perspective as materialized (
		select coalesce($4::timestamptz, greatest($7::timestamptz, (select max(accepted_at) from datapoints.data_points where project_id = $2))) as at
	)
	select m.id, m.data_point, m.revision, own.carried, m.kind, m.content, m.excerpt, m.occurred_at, later.occurred_at, later.data_point,
		later.content
	from unnest($1::uuid[]) c (id)
	cross join lateral (select * from memories.memories where id = c.id offset 0) m
	cross join lateral (select from memories.captured where data_point = m.data_point and revision = m.revision offset 0) k
	cross join lateral (select * from datapoints.data_points where id = m.data_point offset 0) d
	left join lateral (
		select audience, ` + metadataSize + ` as carried from datapoints.revisions
		where data_point = m.data_point and number = m.revision and m.revision <> d.revision offset 0
	) own on true
	left join lateral (
		select n.occurred_at, n.data_point, n.content
		from memories.memories n
		cross join lateral (select from memories.captured where data_point = n.data_point and revision = n.revision offset 0) nk
		cross join lateral (select * from datapoints.data_points where id = n.data_point offset 0) nd
		left join lateral (
			select audience from datapoints.revisions where data_point = n.data_point and number = n.revision and n.revision <> nd.revision offset 0
		) nown on true
		where n.project_id = $2 and n.subject = m.subject and n.attribute = m.attribute and n.kind = 'claim' and n.subject is not null
			and (n.occurred_at, n.id) > (m.occurred_at, m.id) and n.occurred_at <= (select at from perspective)
			and nd.project_id = $2 and nd.audience = any($3::uuid[]) and (n.revision = nd.revision or nown.audience = any($3::uuid[]))
		order by n.occurred_at, n.id limit 1
	) later on m.kind = 'claim' and m.subject is not null
	where m.project_id = $2 and d.project_id = $2 and d.audience = any($3::uuid[]) and (m.revision = d.revision or own.audience = any($3::uuid[]))
		and m.occurred_at <= (select at from perspective)
		and ($5::timestamptz is null or m.occurred_at >= $5) and ($6::timestamptz is null or m.occurred_at <= $6)`

// authorize looks up the first n candidates with their memories, unless they were looked up before.
// The first call sets the perspective, and with opening it begins the transaction; one message to
// the database does it all.
func (g *gate) authorize(ctx context.Context, f *candidates, n int, opening bool) error {
	var dataPoints, memories []uuid.UUID
	for _, id := range f.Order[:n] {
		if _, known := g.checkedDataPoints[id]; !known {
			dataPoints = append(dataPoints, id)
			g.checkedDataPoints[id] = struct{}{}
		}
	}
	for _, h := range f.Memories.Hits {
		if _, asked := g.checkedDataPoints[h.DataPoint]; !asked {
			continue
		}
		if _, known := g.checkedMemories[h.Memory]; !known {
			memories = append(memories, h.Memory)
			g.checkedMemories[h.Memory] = struct{}{}
		}
	}
	batch := new(pgx.Batch)
	if opening {
		batch.Queue(begin)
		g.tables.Begin(batch)
		if g.reach != nil {
			g.reach.Confirm(batch, func(same bool) { g.reachChanged = !same })
		}
	}
	var at *time.Time
	if g.hasPerspective {
		at = &g.perspective
	} else {
		batch.Queue(selectPerspective, g.q.Project.ID, g.now).QueryRow(g.setPerspective)
	}
	audiences := g.q.Audiences
	if len(dataPoints) > 0 {
		batch.Queue(selectDataPoints, g.q.Project.ID, audiences, dataPoints).Query(g.readDataPoints)
	}
	if len(memories) > 0 {
		batch.Queue(selectMemories, memories, g.q.Project.ID, audiences, at, g.q.From, g.q.To, g.now).Query(g.readMemories)
	}
	if batch.Len() == 0 {
		return nil
	}
	if err := g.db.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("authorize candidates: %w", err)
	}
	if g.reachChanged {
		return errReachChanged
	}
	return nil
}

func (g *gate) setPerspective(row pgx.Row) error {
	if err := row.Scan(&g.perspective); err != nil {
		return err
	}
	g.perspective, g.hasPerspective = g.perspective.UTC(), true
	return nil
}

func (g *gate) readDataPoints(rows pgx.Rows) error {
	columns := g.columns()
	for rows.Next() {
		p, err := g.readDataPoint(rows, columns)
		if err != nil {
			return err
		}
		g.dataPoints[p.id] = p
	}
	return rows.Err()
}

// readRow is where a row of dataPointColumns is read.
type readRow struct {
	dataPointRow

	smallTraits         int16
	rawLabel, rawAuthor pgtype.DriverBytes
	storedTokens        pgtype.Int4
}

// columns are where to read other columns and dataPointColumns. All rows of a statement share them.
func (g *gate) columns(others ...any) []any {
	p := &g.read
	return append(others, &p.id, &p.revision, &p.sourceID, &p.occurredAt, &p.rawLabel, &p.rawAuthor, &p.size, &p.big,
		&p.storedTokens, &p.metadataSize, &p.smallTraits, &p.states.Stems, &p.states.Exact, &p.outline, &p.audience,
		&p.conversation)
}

// rowsAtOnce is how many rows are allocated together.
const rowsAtOnce = 64

// readDataPoint reads a row of columns.
func (g *gate) readDataPoint(row pgx.Row, columns []any) (*dataPointRow, error) {
	g.read = readRow{}
	if err := row.Scan(columns...); err != nil {
		return nil, err
	}
	if len(g.spare) == 0 {
		g.spare = make([]dataPointRow, rowsAtOnce)
	}
	p := &g.spare[0]
	g.spare = g.spare[1:]
	*p = g.read.dataPointRow
	p.label, p.author = g.name(g.read.rawLabel), g.name(g.read.rawAuthor)
	if g.read.storedTokens.Valid {
		p.counted = int(g.read.storedTokens.Int32)
		p.tokens = &p.counted
	}
	p.traits = recall.Traits(g.read.smallTraits)
	p.node, p.occurredAt = datapoint.NodeID(p.id, p.revision), p.occurredAt.UTC()
	p.inWindow = !p.occurredAt.After(g.perspective) &&
		(g.q.From == nil || !p.occurredAt.Before(*g.q.From)) && (g.q.To == nil || !p.occurredAt.After(*g.q.To))
	return p, nil
}

// name is a label or an author, nil for none. Many rows have the same.
func (g *gate) name(raw []byte) *string {
	if raw == nil {
		return nil
	}
	name := g.names[string(raw)]
	if name == nil {
		name = new(string(raw))
		g.names[*name] = name
	}
	return name
}

func (g *gate) readMemories(rows pgx.Rows) error {
	for rows.Next() {
		l := new(memoryRow)
		var content, excerpt, supersededTo []byte
		if err := rows.Scan(&l.ID, &l.dataPoint, &l.revision, &l.metadataSize, &l.kind, &content, &excerpt,
			&l.occurredAt, &l.supersededAt, &l.supersededBy, &supersededTo); err != nil {
			return err
		}
		l.content, l.excerpt, l.occurredAt = string(content), string(excerpt), l.occurredAt.UTC()
		l.supersededTo = string(supersededTo)
		if l.supersededAt != nil {
			*l.supersededAt = l.supersededAt.UTC()
		}
		g.memories[l.ID] = l
	}
	return rows.Err()
}

// tokens is what all texts that passed cost at least.
func (g *gate) tokens() (sum int64) {
	for _, p := range g.dataPoints {
		if p.inWindow {
			sum += p.leastTokens()
		}
	}
	return sum
}

// passed is how many sources may be shown.
func (g *gate) passed() (n int) {
	for _, p := range g.dataPoints {
		if p.inWindow {
			n++
		}
	}
	return n
}

// leastTokens is what the content costs, or a lower bound of it until it was counted.
func (p *dataPointRow) leastTokens() int64 {
	if p.tokens != nil {
		return int64(*p.tokens)
	}
	return recall.LeastTokens(p.size)
}

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
