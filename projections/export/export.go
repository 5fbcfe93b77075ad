// Package export reads a project as lines of JSON: its live data points in the shape in which clients send them, and
// if asked what was derived from each.
//
// The lines are in the order of (occurredAt, source id), which a copy of the project shares with it. An export shows
// the project as it was at one time: a data point that was revised since appears as it was, one that was sent since
// does not appear, and one that was deleted since does not appear either. No transaction stays open while lines are
// written, so that a slow reader holds up no erasure.
package export

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/readlog"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
)

const (
	// keyCount is how many data points are listed at once, textCount and textBytes bound those between two marks. A text
	// in a blob is read alone.
	keyCount  = 2048
	textCount = 256
	textBytes = 4 << 20
	// memoryCount is how many memories are read at once.
	memoryCount = 256
)

// Reader reads projects.
type Reader struct {
	DB    *pgxpool.Pool
	Blobs eventstore.BlobReader
}

// Selection is what an export writes.
type Selection struct {
	Project uuid.UUID
	// AsOf is the time that the export shows (Reader.AsOf).
	AsOf time.Time
	// After is where an earlier run stopped, nil for the beginning.
	After *Place
	// Memories adds what was derived.
	Memories bool
}

// Place is the place of a data point in an export.
type Place struct {
	OccurredAt time.Time `json:"occurredAt"`
	SourceID   string    `json:"sourceId"`
}

// Mark is how far an export is: the lines up to the one of a data point, and of its memories, are complete.
type Mark struct {
	Place
	// Points and Memories count the lines since the last mark. Audiences are the slugs in them, each once.
	Points    int      `json:"points"`
	Memories  int      `json:"memories"`
	Audiences []string `json:"audiences,omitempty"`
}

// AsOf returns the time that an export shows which begins now: everything that was answered before is older. The data
// points projection has applied the head of the log.
func (r Reader) AsOf(ctx context.Context, project uuid.UUID, now time.Time) (at time.Time, err error) {
	// The clocks of processes differ, so an answered send may be from the future.
	err = r.DB.QueryRow(ctx, `select greatest($2::timestamptz,
		(select max(accepted_at) from datapoints.data_points where project_id = $1))`, project, now).Scan(&at)
	if err != nil {
		return at, fmt.Errorf("find the newest send: %w", err)
	}
	return at.UTC(), nil
}

// Write writes the selected lines to a writer, and calls mark between data points. Each text is in memory as a whole,
// one at a time: a line is begun only once it can be completed.
func (r Reader) Write(ctx context.Context, s Selection, to io.Writer, mark func(Mark) error) error {
	lines := &lineWriter{to: bufio.NewWriterSize(to, 64<<10)}
	e := &run{Reader: r, Selection: s, to: lines, audiences: map[uuid.UUID]readers{}}
	for {
		keys, err := r.keys(ctx, e.Selection)
		if err != nil || len(keys) == 0 {
			return err
		}
		for len(keys) > 0 {
			n, size := 0, 0
			for n < len(keys) && n < textCount {
				if size += keys[n].size; n > 0 && size > textBytes {
					break
				}
				n++
			}
			done, err := e.page(ctx, keys[:n])
			if err == nil {
				err = e.to.to.Flush()
			}
			if err == nil {
				err = mark(done)
			}
			if err != nil {
				return err
			}
			e.After, keys = &done.Place, keys[n:]
		}
	}
}

// run is one export.
type run struct {
	Reader
	Selection
	to *lineWriter
	// audiences are the readers of the audiences that are known.
	audiences map[uuid.UUID]readers
}

// page writes the lines of some data points. Those that were deleted since have none.
func (e *run) page(ctx context.Context, keys []key) (done Mark, err error) {
	done.Place = keys[len(keys)-1].Place
	found, err := e.texts(ctx, keys)
	if err != nil {
		return done, err
	}
	if err := show(ctx, keys, found); err != nil {
		return done, err
	}
	memories := &memoryReader{db: e.DB, project: e.Project, keys: keys}
	slugs := map[string]bool{}
	for i, k := range keys {
		p, live := found[k.id]
		if !live {
			continue
		}
		if live, err = e.load(ctx, p); err != nil {
			return done, err
		}
		if !live {
			continue
		}
		if p.readers, err = e.readersOf(ctx, k.audience, p.author); err != nil {
			return done, err
		}
		if p.readers.slug != "" {
			slugs[p.readers.slug] = true
		}
		if err := e.to.dataPoint(k.Place, p); err != nil {
			return done, err
		}
		done.Points++
		if !e.Memories {
			continue
		}
		n, err := memories.each(ctx, i, func(d derived) error {
			if err := readlog.From(ctx).Show(ctx, reads.Export, reads.Shown{Node: d.id}); err != nil {
				return err
			}
			return e.to.memory(k.SourceID, d)
		})
		if err != nil {
			return done, err
		}
		done.Memories += n
	}
	done.Audiences = slices.Sorted(maps.Keys(slugs))
	return done, nil
}

// show adds the texts of a page to the read of the request.
func show(ctx context.Context, keys []key, found map[uuid.UUID]*text) error {
	read := readlog.From(ctx)
	if read == nil {
		return nil
	}
	var shown []reads.Shown
	for _, k := range keys {
		if found[k.id] != nil {
			shown = append(shown, reads.Shown{
				Node: datapoint.NodeID(k.id, k.revision), DataPoint: k.id, Revision: k.revision,
			})
		}
	}
	return read.Show(ctx, reads.Export, shown...)
}

// load reads the texts of a data point that are in blobs. It returns false if one was erased.
func (e *run) load(ctx context.Context, p *text) (live bool, err error) {
	for _, part := range []struct {
		from *blob.Ref
		to   *[]byte
	}{{p.contentBlob, &p.content}, {p.metadataBlob, &p.metadata}} {
		if part.from == nil {
			continue
		}
		*part.to, err = e.Blobs.ReadBlob(ctx, *part.from)
		if lost, is := errors.AsType[*eventstore.BlobError](err); is && lost.Missing {
			// The deletion tombstones the blob. Without one, the text is lost, and the export must not hide that.
			return false, e.requireDeleted(ctx, p.id, err)
		}
		if err != nil {
			return false, fmt.Errorf("read text: %w", err)
		}
	}
	return true, nil
}

// key is a data point of an export, with the revision that the export shows.
type key struct {
	Place
	id       uuid.UUID
	revision int
	// audience is the present one: what was narrowed since must not be exported as it was.
	audience uuid.UUID
	// size is that of its text, also in blobs. memories is about how many there are.
	size, memories int
}

// The first part lists data points whose newest revision is not newer than the export; the second one those that were
// revised since, with the newest revision of that time. Both read an index in order, and sort equal times only.
const selectKeys = `
	with unchanged as (
		select id, revision, occurred_at, source_id collate "C" as source_id, audience, memories from datapoints.data_points
		where project_id = $1 and accepted_at <= $2
			and occurred_at >= $3 and (occurred_at > $3 or source_id collate "C" > $4)
		order by occurred_at, source_id collate "C" limit $5
	), revised as (
		select d.id, r.number, r.occurred_at, d.source_id collate "C", d.audience, d.memories from datapoints.data_points d
		cross join lateral (
			select number, occurred_at from datapoints.revisions
			where data_point = d.id and accepted_at <= $2 and not historic order by number desc limit 1
		) r
		where d.project_id = $1 and d.accepted_at > $2
			and r.occurred_at >= $3 and (r.occurred_at > $3 or d.source_id collate "C" > $4)
		order by r.occurred_at, d.source_id collate "C" limit $5
	), listed as (
		select * from (select * from unchanged union all select * from revised) k order by occurred_at, source_id limit $5
	)
	select l.id, l.revision, l.occurred_at, l.source_id, l.audience, l.memories,
		coalesce(octet_length(r.content), (r.content_blob->>'size')::bigint, 0)
			+ coalesce(octet_length(r.metadata), (r.metadata_blob->>'size')::bigint, 0)
	from listed l
	cross join lateral (
		select content, content_blob, metadata, metadata_blob from datapoints.revisions
		where data_point = l.id and number = l.revision offset 0
	) r
	order by l.occurred_at, l.source_id`

// keys lists the next data points.
func (r Reader) keys(ctx context.Context, s Selection) ([]key, error) {
	var after Place
	if s.After != nil {
		after = *s.After
	}
	rows, err := r.DB.Query(ctx, selectKeys, s.Project, s.AsOf, after.OccurredAt, after.SourceID, keyCount)
	if err != nil {
		return nil, fmt.Errorf("list data points: %w", err)
	}
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k key, err error) {
		err = row.Scan(&k.id, &k.revision, &k.OccurredAt, &k.SourceID, &k.audience, &k.memories, &k.size)
		k.OccurredAt = k.OccurredAt.UTC()
		return k, err
	})
	if err != nil {
		return nil, fmt.Errorf("list data points: %w", err)
	}
	return keys, nil
}

// text is a revision as a line shows it.
type text struct {
	id                        uuid.UUID
	content, metadata         []byte
	contentBlob, metadataBlob *blob.Ref
	label, author             *string
	readers                   readers
}

const selectTexts = `select r.data_point, r.content, r.content_blob, r.metadata, r.metadata_blob, r.label, r.author
	from unnest($1::uuid[], $2::int[]) k (id, number)
	cross join lateral (select * from datapoints.revisions where data_point = k.id and number = k.number offset 0) r`

// texts reads revisions. Those of data points that were deleted since are missing.
func (r Reader) texts(ctx context.Context, keys []key) (map[uuid.UUID]*text, error) {
	found := make(map[uuid.UUID]*text, len(keys))
	rows, err := r.DB.Query(ctx, selectTexts, pgarray.IDs(keys, func(k key) uuid.UUID { return k.id }),
		pgarray.Column(keys, func(k key) int32 { return int32(k.revision) }))
	if err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		t := new(text)
		if err := rows.Scan(&t.id, &t.content, &t.contentBlob, &t.metadata, &t.metadataBlob, &t.label,
			&t.author); err != nil {
			return nil, fmt.Errorf("read texts: %w", err)
		}
		found[t.id] = t
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	return found, nil
}

// requireDeleted returns the error if a data point is live.
func (r Reader) requireDeleted(ctx context.Context, dataPoint uuid.UUID, lost error) error {
	var live bool
	err := r.DB.QueryRow(ctx, `select exists (select from datapoints.data_points where id = $1)`, dataPoint).Scan(&live)
	if err != nil {
		return fmt.Errorf("look for a data point: %w", err)
	}
	if live {
		return fmt.Errorf("text of a data point: %w", lost)
	}
	return nil
}

// readers names who reads what is in an audience: a slug, or the identity that it is private to.
type readers struct{ slug, identity string }

const selectReaders = `select slug, '' from directory.audiences where id = $1 and project_id = $2
	union all select '', identity from directory.identities
		where private = $1 and project_id = $2 and identity is not null`

// readersOf returns who reads a data point of an author, neither for project-visible. A removed audience has a name
// that no client can mistake for another one, so that the copy of its data points reaches nobody either. So has the
// private audience of another than the author, since a line names the author alone.
func (e *run) readersOf(ctx context.Context, id uuid.UUID, author *string) (r readers, err error) {
	if id == uuid.Nil {
		return r, nil
	}
	r, known := e.audiences[id]
	if !known {
		err = e.DB.QueryRow(ctx, selectReaders, id, e.Project).Scan(&r.slug, &r.identity)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return r, fmt.Errorf("find who reads an audience: %w", err)
		}
		e.audiences[id] = r
	}
	if r.slug == "" && (author == nil || r.identity != *author) {
		r = readers{slug: RemovedAudience + id.String()[24:]}
	}
	return r, nil
}

// RemovedAudience begins the slug of an audience that was removed, or that a line cannot name.
const RemovedAudience = "removed-"

// Request selects what an export writes.
type Request struct {
	// Organization is a name or an id, "" for any. Project is a slug.
	Organization string `json:"organization,omitempty"`
	Project      string `json:"project"`
	// Memories adds what was derived.
	Memories bool `json:"memories,omitempty"`
	// From continues an export, nil for a new one.
	From *From `json:"from,omitempty"`
}

// From is where an export continues.
type From struct {
	// AsOf is that of Began.
	AsOf time.Time `json:"asOf"`
	// After is the place of the last mark, nil if there was none.
	After *Place `json:"after,omitempty"`
}

// Began is the beginning of an export.
type Began struct {
	ProjectID uuid.UUID `json:"projectId"`
	// AsOf is the time that the export shows.
	AsOf time.Time `json:"asOf"`
}

// Service exports projects by their names. An export shows everything that was answered before it.
type Service struct {
	Reader   Reader
	Projects interface {
		OnlyProject(ctx context.Context, organization, slug string) (access.Project, error)
	}
	Head projections.Head
	Now  func() time.Time
}

// Begin begins an export, or continues one. Its faults are invalid-request, not-found, conflict and
// service-unavailable.
func (s Service) Begin(ctx context.Context, in Request) (began Began, err error) {
	if in.Project == "" {
		return began, fault.New(fault.Invalid, fault.CodeInvalidRequest, "a project must be named")
	}
	err = s.Head.Await(ctx, projection.Access, projection.DataPoints, projection.Directory, projection.Memories)
	if err != nil {
		return began, err
	}
	project, err := s.Projects.OnlyProject(ctx, in.Organization, in.Project)
	if err != nil {
		return began, err
	}
	began.ProjectID = project.ID
	if in.From != nil {
		began.AsOf = in.From.AsOf
		return began, nil
	}
	began.AsOf, err = s.Reader.AsOf(ctx, project.ID, s.Now())
	return began, err
}

// Write is Reader.Write of an export that began.
func (s Service) Write(ctx context.Context, in Request, began Began, to io.Writer, mark func(Mark) error) error {
	selected := Selection{Project: began.ProjectID, AsOf: began.AsOf, Memories: in.Memories}
	if in.From != nil {
		selected.After = in.From.After
	}
	return s.Reader.Write(ctx, selected, to, mark)
}
