package why

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/cursor"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/projections/trace"
)

// Cursor is a position in a group of roots: they are ordered by time of creation, then by id.
type Cursor = cursor.Cursor

// RootsQuery asks for a page of each group of roots.
type RootsQuery struct {
	// Search is a node id, a source id, or words; "" for all roots.
	Search string
	// Ingestion is a send whose revisions and memories are listed, uuid.Nil for all.
	Ingestion uuid.UUID
	// First is the most nodes of each page.
	First                       int
	AfterMemories, AfterSources *Cursor
}

// Root is a node of a list of roots.
type Root struct {
	Brief
	SourceID              string
	Revision              int
	OccurredAt, CreatedAt time.Time
	ReadyAt               *time.Time
	Current               bool
	Phase                 string
}

// RootPage is a page of one group, newest first. End is the cursor of its last node, nil if it is
// empty.
type RootPage struct {
	Nodes []Root
	More  bool
	End   *Cursor
}

// Roots are a page of each group.
type Roots struct{ Memories, Sources RootPage }

// Roots lists the roots of a project: its live data points, as they are now or as a send created them,
// and the memories of these. The lists are those of the tables; a node, its lineage and its timeline
// are folded from the streams.
//
// A search for words finds the best searchHits documents of each group that contain all of them, as
// recall would.
func (s *Trace) Roots(ctx context.Context, project auth.Project, q RootsQuery) (Roots, error) {
	f, err := s.filter(ctx, project, q)
	if err != nil {
		return Roots{}, err
	}
	var roots Roots
	if roots.Sources, err = s.sourceRoots(ctx, project, q, f); err != nil {
		return Roots{}, fmt.Errorf("list sources: %w", err)
	}
	if roots.Memories, err = s.memoryRoots(ctx, project, q, f); err != nil {
		return Roots{}, fmt.Errorf("list memories: %w", err)
	}
	err = show(ctx, reads.Roots, roots.Sources.Nodes, idOfRoot)
	if err == nil {
		err = show(ctx, reads.Roots, roots.Memories.Nodes, idOfRoot)
	}
	return roots, err
}

// filter is what a page is restricted to. A nil list restricts nothing.
type filter struct {
	// sources are revisions of data points, memories are ids.
	sources  *revisionList
	memories []uuid.UUID
	// send are the revisions that a send created.
	send *revisionList
}

// revisionList is revisions as the columns of a table; number 0 is the newest of a data point.
type revisionList struct {
	dataPoints []uuid.UUID
	numbers    []int32
}

func (l *revisionList) add(dataPoint uuid.UUID, number int32) {
	l.dataPoints, l.numbers = append(l.dataPoints, dataPoint), append(l.numbers, number)
}

func (s *Trace) filter(ctx context.Context, project auth.Project, q RootsQuery) (f filter, err error) {
	var dataPoints map[uuid.UUID]struct{}
	if q.Search != "" {
		if dataPoints, f.memories, err = s.search(ctx, project, q.Search); err != nil {
			return filter{}, err
		}
		f.sources = &revisionList{}
		for id := range dataPoints {
			f.sources.add(id, 0)
		}
	}
	if q.Ingestion == uuid.Nil {
		return f, nil
	}
	if f.send, err = s.itemsOf(ctx, project, q.Ingestion); err != nil {
		return filter{}, err
	}
	f.sources = &revisionList{}
	for n, id := range f.send.dataPoints {
		if _, found := dataPoints[id]; found || q.Search == "" {
			f.sources.add(id, f.send.numbers[n])
		}
	}
	return f, nil
}

// itemsOf reads the revisions that a send created.
func (s *Trace) itemsOf(ctx context.Context, project auth.Project, send uuid.UUID) (*revisionList, error) {
	rows, err := s.DB.Query(ctx, `select data_point, revision from datapoints.items
		where ingestion_id = $1 and project_id = $2 and outcome in ('created', 'updated')`, send, project.ID)
	if err != nil {
		return nil, fmt.Errorf("read the items of a send: %w", err)
	}
	list := &revisionList{dataPoints: []uuid.UUID{}, numbers: []int32{}}
	var id uuid.UUID
	var number int32
	_, err = pgx.ForEachRow(rows, []any{&id, &number}, func() error {
		list.add(id, number)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the items of a send: %w", err)
	}
	return list, nil
}

// after returns the cursor that a page follows. Nothing is after the last instant that a row can have.
func after(c *Cursor) Cursor {
	if c == nil {
		return Cursor{At: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), ID: uuid.Max}
	}
	return *c
}

const (
	newestSources = `(
		select id, project_id, revision, source_id, revision as number from datapoints.data_points
		where project_id = $1 and (accepted_at, id) < ($2, $3) order by accepted_at desc, id desc limit $4
	) d`
	namedSources = `unnest($5::uuid[], $6::int[]) c (id, number)
		cross join lateral (
			select id, project_id, revision, source_id, case c.number when 0 then revision else c.number end as number
			from datapoints.data_points where id = c.id offset 0
		) d`
	selectSources = `select d.id, d.source_id, d.number, d.number = d.revision, r.node_id, r.label, substring(r.content from 1 for 4096),
		r.content_blob, r.occurred_at, r.accepted_at, s.phase, s.settled_at
		from %s
		cross join lateral (select * from datapoints.revisions where data_point = d.id and number = d.number offset 0) r
		cross join lateral (select phase, settled_at from datapoints.sends where id = r.ingestion_id offset 0) s
		where d.project_id = $1 and (r.accepted_at, d.id) < ($2, $3)
		order by r.accepted_at desc, d.id desc limit $4`
)

func (s *Trace) sourceRoots(ctx context.Context, project auth.Project, q RootsQuery, f filter) (RootPage, error) {
	from := after(q.AfterSources)
	args := []any{project.ID, from.At, from.ID, q.First + 1}
	sql := fmt.Sprintf(selectSources, newestSources)
	if l := f.sources; l != nil {
		sql, args = fmt.Sprintf(selectSources, namedSources), append(args, l.dataPoints, l.numbers)
	}
	rows, err := s.DB.Query(ctx, sql, args...)
	if err != nil {
		return RootPage{}, err
	}
	page, cursors, blobs := RootPage{Nodes: []Root{}}, []Cursor{}, []*blob.Ref{}
	defer rows.Close()
	for rows.Next() {
		r, c, ref := Root{Brief: Brief{Kind: KindSource}}, Cursor{}, (*blob.Ref)(nil)
		var label *string
		var content []byte
		var settled *time.Time
		if err := rows.Scan(&c.ID, &r.SourceID, &r.Revision, &r.Current, &r.ID, &label, &content, &ref,
			&r.OccurredAt, &r.CreatedAt, &r.Phase, &settled); err != nil {
			return RootPage{}, err
		}
		if r.Headline = headline(wholeCharacters(content)); label != nil && headline(*label) != "" {
			r.Headline, ref = headline(*label), nil
		}
		r.times(settled)
		c.At = r.CreatedAt
		page.Nodes, cursors, blobs = append(page.Nodes, r), append(cursors, c), append(blobs, ref)
	}
	if err := rows.Err(); err != nil {
		return RootPage{}, err
	}
	page.end(q.First, cursors)
	for n := range page.Nodes {
		if blobs[n] == nil {
			continue
		}
		start, err := s.Journal.ReadBlobStart(ctx, *blobs[n])
		if err != nil && !trace.IsLost(err) {
			return RootPage{}, err
		}
		page.Nodes[n].Headline = headline(wholeCharacters(start))
	}
	return page, nil
}

const (
	selectMemories = `select m.id, m.kind, m.content, m.revision, d.source_id, m.occurred_at, m.derived_at, k.revision = m.revision,
		s.phase, s.settled_at
		from %s
		cross join lateral (select * from datapoints.data_points where id = m.data_point offset 0) d
		cross join lateral (select revision from memories.captured where data_point = m.data_point offset 0) k
		cross join lateral (select ingestion_id from datapoints.revisions where data_point = d.id and number = m.revision offset 0) r
		cross join lateral (select phase, settled_at from datapoints.sends where id = r.ingestion_id offset 0) s
		where m.project_id = $1 and d.project_id = $1 and (m.derived_at, m.id) < ($2, $3)
		order by m.derived_at desc, m.id desc limit $4`
	newestMemories = `memories.memories m`
	namedMemories  = `unnest($5::uuid[]) c (id)
		cross join lateral (select * from memories.memories where id = c.id offset 0) m`
	memoriesOfSend = `unnest($5::uuid[], $6::int[]) c (id, number)
		cross join lateral (select * from memories.memories where data_point = c.id and revision = c.number offset 0) m`
	namedOfSend = `unnest($5::uuid[], $6::int[]) c (id, number)
		cross join lateral (
			select * from memories.memories where data_point = c.id and revision = c.number and id = any($7::uuid[]) offset 0
		) m`
)

func (s *Trace) memoryRoots(ctx context.Context, project auth.Project, q RootsQuery, f filter) (RootPage, error) {
	from := after(q.AfterMemories)
	source, args := newestMemories, []any{project.ID, from.At, from.ID, q.First + 1}
	switch {
	case f.send != nil && f.memories != nil:
		source, args = namedOfSend, append(args, f.send.dataPoints, f.send.numbers, f.memories)
	case f.send != nil:
		source, args = memoriesOfSend, append(args, f.send.dataPoints, f.send.numbers)
	case f.memories != nil:
		source, args = namedMemories, append(args, f.memories)
	}
	rows, err := s.DB.Query(ctx, fmt.Sprintf(selectMemories, source), args...)
	if err != nil {
		return RootPage{}, err
	}
	defer rows.Close()
	page, cursors, ids := RootPage{Nodes: []Root{}}, []Cursor{}, []uuid.UUID{}
	for rows.Next() {
		r := Root{Brief: Brief{Kind: KindMemory}}
		var content []byte
		var settled *time.Time
		if err := rows.Scan(&r.ID, &r.MemoryKind, &content, &r.Revision, &r.SourceID, &r.OccurredAt, &r.CreatedAt, &r.Current,
			&r.Phase, &settled); err != nil {
			return RootPage{}, err
		}
		r.Headline = headline(string(content))
		r.times(settled)
		cursors = append(cursors, Cursor{At: r.CreatedAt, ID: r.ID})
		page.Nodes, ids = append(page.Nodes, r), append(ids, r.ID)
	}
	if err := rows.Err(); err != nil {
		return RootPage{}, err
	}
	if cursors, err = s.addPassage(ctx, project, q, &page, cursors); err != nil {
		return RootPage{}, err
	}
	page.end(q.First, cursors)
	claims, err := s.claims(ctx, project, ids)
	if err != nil {
		return RootPage{}, err
	}
	for n := range page.Nodes {
		page.Nodes[n].Current = page.Nodes[n].Current && claims[page.Nodes[n].ID].later == nil
	}
	return page, nil
}

// times sets the times of a root in UTC.
func (r *Root) times(settled *time.Time) {
	r.OccurredAt, r.CreatedAt = r.OccurredAt.UTC(), r.CreatedAt.UTC()
	if settled != nil && r.Phase == phaseIndexed {
		at := settled.UTC()
		r.ReadyAt = &at
	}
}

// end cuts a page that was read with one node too many.
func (p *RootPage) end(first int, cursors []Cursor) {
	if len(p.Nodes) > first {
		p.Nodes, p.More = p.Nodes[:first], true
	}
	if n := len(p.Nodes); n > 0 {
		p.End = &cursors[n-1]
	}
}

// defaultRoots is how many roots a page of each group has.
const defaultRoots = 25

// RootsQueryOf reads the parameters of a list of roots, as API and console have them. The fault is invalid-request.
func RootsQueryOf(values url.Values) (RootsQuery, error) {
	var problems fields.Problems
	q := RootsQuery{
		Search:        strings.TrimSpace(values.Get("search")),
		First:         problems.Count("first", values.Get("first"), limit.TraceRoots, defaultRoots),
		AfterMemories: problems.Cursor("afterMemories", values.Get("afterMemories"), "roots"),
		AfterSources:  problems.Cursor("afterSources", values.Get("afterSources"), "roots"),
	}
	if q.Search != "" {
		problems.CheckParameter("search", q.Search, limit.SourceID)
	}
	if text := values.Get("ingestionId"); text != "" {
		id, err := uuid.Parse(text)
		if err != nil || id == uuid.Nil {
			problems.Add("ingestionId", "is not the id of a send")
		}
		q.Ingestion = id
	}
	return q, problems.Err()
}
