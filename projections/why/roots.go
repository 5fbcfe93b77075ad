package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/cursor"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/projections/recallindex"
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
	passage, err := s.passageRoot(ctx, project, q)
	if err == nil {
		roots.Memories, err = s.memoryRoots(ctx, project, q, f, passage...)
	}
	if err != nil {
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

// memoryRoots lists memories, and also some roots that no table has.
func (s *Trace) memoryRoots(
	ctx context.Context, project auth.Project, q RootsQuery, f filter, also ...Root,
) (RootPage, error) {
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
	for _, r := range also {
		own := Cursor{At: r.CreatedAt, ID: r.ID}
		place := slices.IndexFunc(cursors, func(c Cursor) bool { return isAfter(c, own) })
		if place < 0 {
			place = len(cursors)
		}
		page.Nodes, cursors = slices.Insert(page.Nodes, place, r), slices.Insert(cursors, place, own)
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

// passageRoot returns the passage that a search names, if a list of memories that begins there has it. A passage of a
// deleted data point is not a root.
func (s *Trace) passageRoot(ctx context.Context, project auth.Project, q RootsQuery) ([]Root, error) {
	id, err := uuid.Parse(q.Search)
	if err != nil {
		return nil, nil // it is a source id, or words
	}
	if _, _, ok := datapoint.NodesOfPassage(id); !ok {
		return nil, nil
	}
	n, err := s.Node(ctx, project, id)
	if f, is := errors.AsType[*fault.Error](err); is && f.Code == fault.CodeNotFound {
		return nil, nil
	}
	if err != nil || n.Deleted != nil || q.Ingestion != uuid.Nil && q.Ingestion != n.Ingestion ||
		!isAfter(Cursor{At: n.CreatedAt, ID: id}, after(q.AfterMemories)) {
		return nil, err
	}
	return []Root{{
		Brief: n.Brief, SourceID: n.SourceID, Revision: n.Revision, OccurredAt: n.OccurredAt, CreatedAt: n.CreatedAt,
		ReadyAt: n.ReadyAt, Current: n.Current, Phase: n.Phase,
	}}, nil
}

// isAfter reports whether a node comes after another one in a list: newest first.
func isAfter(c, other Cursor) bool {
	return cmp.Or(c.At.Compare(other.At), compareIDs(c.ID, other.ID)) < 0
}

// claim is what comes before and after a claim on the same subject and attribute: what it superseded,
// and what supersedes it since when.
type claim struct {
	earlier, later *uuid.UUID
	at             *time.Time
}

// otherClaims is SQL for the live claims of a project on the subject and attribute of claim m. It is
// the rule by which recall supersedes, for a viewer that may read everything.
const otherClaims = `select n.id, n.occurred_at from memories.memories n
		cross join lateral (select from memories.captured where data_point = n.data_point and revision = n.revision offset 0) nk
		cross join lateral (select from datapoints.data_points where id = n.data_point and project_id = $1 offset 0) nd
		where n.project_id = $1 and n.subject = m.subject and n.attribute = m.attribute and n.kind = 'claim' and n.subject is not null
			and n.occurred_at <= (select at from perspective) `

const selectClaims = `with perspective as materialized (
		select greatest($3::timestamptz, (select max(accepted_at) from datapoints.data_points where project_id = $1)) as at
	)
	select m.id, earlier.id, later.id, later.occurred_at
	from unnest($2::uuid[]) c (id)
	cross join lateral (select * from memories.memories where id = c.id offset 0) m
	cross join lateral (select from memories.captured where data_point = m.data_point and revision = m.revision offset 0) k
	left join lateral (` + otherClaims + `and (n.occurred_at, n.id) < (m.occurred_at, m.id)
		order by n.occurred_at desc, n.id desc limit 1) earlier on true
	left join lateral (` + otherClaims + `and (n.occurred_at, n.id) > (m.occurred_at, m.id)
		order by n.occurred_at, n.id limit 1) later on true
	where m.project_id = $1 and m.kind = 'claim' and m.subject is not null`

// claims reads what is before and after the claims among memories.
func (s *Trace) claims(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]claim, error) {
	rows, err := s.DB.Query(ctx, selectClaims, project.ID, ids, s.Now())
	if err != nil {
		return nil, fmt.Errorf("read claims: %w", err)
	}
	defer rows.Close()
	found := map[uuid.UUID]claim{}
	for rows.Next() {
		var id uuid.UUID
		var c claim
		if err := rows.Scan(&id, &c.earlier, &c.later, &c.at); err != nil {
			return nil, fmt.Errorf("read claims: %w", err)
		}
		if c.at != nil {
			*c.at = c.at.UTC()
		}
		found[id] = c
	}
	return found, rows.Err()
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

// idOfRoot is the id of a node of a list of roots.
func idOfRoot(r Root) uuid.UUID { return r.ID }

// searchHits is how many documents of each group a search for words proposes at most.
const searchHits = 400

// search finds the data points and the memories of a search: the node or the source id that it names,
// and the documents that contain all its words. What it finds may be deleted since.
func (s *Trace) search(
	ctx context.Context, project auth.Project, text string,
) (dataPoints map[uuid.UUID]struct{}, memories []uuid.UUID, err error) {
	dataPoints, memories = map[uuid.UUID]struct{}{stream.DataPointID(project.Namespace, text): {}}, []uuid.UUID{}
	if id, err := uuid.Parse(text); err == nil {
		at, ok, err := s.locate(ctx, project, id)
		switch {
		case err != nil:
			return nil, nil, err
		case ok && at.node == id:
			dataPoints[at.dataPoint] = struct{}{}
		case ok:
			memories = append(memories, id)
		}
	}
	query, err := s.queryOf(ctx, project)
	if err != nil {
		return nil, nil, err
	}
	found, err := s.searchEither(ctx, query, text)
	if err != nil {
		s.Logger.WarnContext(ctx, "search for roots failed", "err", err)
		return nil, nil, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "memory cannot be searched now; retry")
	}
	for id := range withAll(found.sources, found.terms) {
		dataPoints[id] = struct{}{}
	}
	for _, h := range found.memories {
		if contains(h.Counts, found.terms) {
			memories = append(memories, h.Memory)
		}
	}
	return dataPoints, memories, nil
}

// found is what a search for a text proposes, and the terms that it looked for.
type found struct {
	terms             []recall.Term
	sources, memories []recallindex.Hit
}

// queryOf is a search of everything in a project, without its words.
func (s *Trace) queryOf(ctx context.Context, project auth.Project) (recallindex.Query, error) {
	audiences, err := s.audiences(ctx, project)
	return recallindex.Query{Project: project.ID, Audiences: audiences, Sources: searchHits, Memories: searchHits}, err
}

// searchEither is searchIndex, also while another generation is put into use.
func (s *Trace) searchEither(ctx context.Context, query recallindex.Query, text string) (found, error) {
	f, err := s.searchIndex(ctx, query, text)
	if errors.Is(err, recallindex.ErrOtherAnalysis) {
		f, err = s.searchIndex(ctx, query, text)
	}
	return f, err
}

// searchIndex searches both parts of the index for a text, with the analysis of the generation in use.
func (s *Trace) searchIndex(ctx context.Context, q recallindex.Query, text string) (f found, err error) {
	analyzer := s.Analyzers.Of(s.Index.Analysis())
	q.Terms, q.Analysis = analyzer.Query(text), analyzer.Version()
	if f.terms = q.Terms; len(f.terms) == 0 {
		return f, nil
	}
	both, err := s.Index.Search(ctx, q)
	f.sources, f.memories = both.Sources.Hits, both.Memories.Hits
	return f, err
}

// withAll returns the data points whose passages together contain every term.
func withAll(hits []recallindex.Hit, terms []recall.Term) map[uuid.UUID]struct{} {
	sums := map[uuid.UUID][]recall.Count{}
	for _, h := range hits {
		sum := sums[h.DataPoint]
		if sum == nil {
			sum = make([]recall.Count, len(terms))
			sums[h.DataPoint] = sum
		}
		for n, c := range h.Counts[:min(len(terms), len(h.Counts))] {
			sum[n].Text, sum[n].Label = sum[n].Text+c.Text, sum[n].Label+c.Label
		}
	}
	found := map[uuid.UUID]struct{}{}
	for id, sum := range sums {
		if contains(sum, terms) {
			found[id] = struct{}{}
		}
	}
	return found
}

// contains reports whether every word occurs, in any form.
func contains(counts []recall.Count, terms []recall.Term) bool {
	if len(counts) < len(terms) {
		return false
	}
	missing := map[int]struct{}{}
	for _, t := range terms {
		missing[t.For] = struct{}{}
	}
	for i, t := range terms {
		if counts[i].Text+counts[i].Label > 0 {
			delete(missing, t.For)
		}
	}
	return len(missing) == 0
}

// audiences returns every audience that a data point of the project has, removed ones too: a project
// key sees everything.
func (s *Trace) audiences(ctx context.Context, project auth.Project) ([]uuid.UUID, error) {
	rows, err := s.DB.Query(ctx, `select audience from datapoints.scopes where project_id = $1`, project.ID)
	if err != nil {
		return nil, fmt.Errorf("read audiences: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("read audiences: %w", err)
	}
	return list, nil
}
