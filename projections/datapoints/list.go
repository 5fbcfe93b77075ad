package datapoints

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/readlog"
)

// MaxListed is the most data points of a List, MaxCounted the most that its total counts.
const (
	MaxListed  = 500
	MaxCounted = 10_000
)

const (
	// keyChars is how much of a label or source id the indexes hold, in characters.
	keyChars = 100
	// excerptBytes is how much of a content is read for its excerpt.
	excerptBytes = 400
)

// Filter selects live data points of a project by their newest revisions. An empty field selects all.
type Filter struct {
	// From and To are times of the events; To is exclusive.
	From, To time.Time
	Author   string
	// Audience is a slug; audience.Default selects what is project-visible.
	Audience string
	// AudienceID is an audience by its id.
	AudienceID uuid.UUID
	// Label is the beginning of the label, in any case. Only its first 100 characters count.
	Label string
	// ID is the beginning of the source id.
	ID string
}

// Place is the place of a data point in a List.
type Place struct {
	OccurredAt time.Time `json:"occurredAt"`
	ID         uuid.UUID `json:"-"`
}

// ListQuery asks for a page of a List: the first one, or the one directly after or before a place.
type ListQuery struct {
	Filter
	After, Before *Place
	Limit         int
}

// Listed is a data point of a List, by its newest revision.
type Listed struct {
	Place
	SourceID   string    `json:"id"`
	Revision   int       `json:"revision"`
	Label      *string   `json:"label"`
	Author     string    `json:"author"`
	AudienceID uuid.UUID `json:"audienceId"`
	// Audience is the slug, "" if the audience was removed or is private. PrivateTo is the identity that alone may read a
	// private data point.
	Audience   string    `json:"audience"`
	PrivateTo  string    `json:"privateTo,omitempty"`
	AcceptedAt time.Time `json:"acceptedAt"`
	Ingestion  uuid.UUID `json:"ingestionId"`
	// Memories counts those of the newest captured revision.
	Memories int `json:"memories"`
	// Excerpt is the beginning of the content, "" if that is in a blob.
	Excerpt string `json:"excerpt"`
}

// List is a page of data points, newest event first.
type List struct {
	Points []Listed
	// Newer and Older report whether the filter may select others before First and after Last: the places of the first
	// and the last, or where a search by the beginning of a text has looked at as many as it may.
	Newer, Older bool
	First, Last  Place
	// Total counts what the filter selects, up to one more than MaxCounted. There may be more if AtLeast.
	Total   int64
	AtLeast bool
}

// Title is what a list shows of it: its label, the beginning of its text, or its id.
func (p Listed) Title() string {
	if p.Label != nil && *p.Label != "" {
		return *p.Label
	}
	return cmp.Or(p.Excerpt, p.SourceID)
}

// labelKey returns what an index finds a label by: its beginning in lower case. Go folds case, since the locale of the
// database decides what Postgres folds.
func labelKey(label *string) *string {
	if label == nil {
		return nil
	}
	key := strings.ToLower(start(*label))
	return &key
}

// start returns the first keyChars characters of a text.
func start(text string) string {
	n := 0
	for at := range text {
		if n == keyChars {
			return text[:at]
		}
		n++
	}
	return text
}

// maxSearched is how many data points a search by the beginning of a label or id looks at.
const maxSearched = 200_000

// selection is the condition of a filter with its arguments. $1 is the project. begins are columns with what their
// texts begin with.
type selection struct {
	where  string
	args   []any
	begins [][2]string
}

func (s *selection) arg(value any) string {
	s.args = append(s.args, value)
	return "$" + strconv.Itoa(len(s.args))
}

// looked are the data points that a search by the beginning of a text looks at, with these texts.
func (s *selection) looked(order string, most int) string {
	columns := "d.id, d.occurred_at"
	for _, b := range s.begins {
		columns += ", " + b[0]
	}
	return fmt.Sprintf("select %s from datapoints.data_points d where %s order by %s limit %d", columns, s.where, order,
		most)
}

// found are the ids of at most limit data points in an order. Without an author and an audience, an index has all that
// decides which.
func (s *selection) found(order string, most, limit int) (sql string, args []any) {
	if len(s.begins) == 0 {
		return s.looked(order, limit), s.args
	}
	args, sql = slices.Clone(s.args), "select d.id from ("+s.looked(order, most)+") d where true"
	for _, b := range s.begins {
		args = append(args, b[1])
		sql += fmt.Sprintf(" and starts_with(%s, $%d)", b[0], len(args))
	}
	return fmt.Sprintf("%s limit %d", sql, limit), args
}

func (f Filter) selection(project uuid.UUID) *selection {
	s := &selection{where: "d.project_id = $1", args: []any{project}}
	if !f.From.IsZero() {
		s.where += " and d.occurred_at >= " + s.arg(f.From)
	}
	if !f.To.IsZero() {
		s.where += " and d.occurred_at < " + s.arg(f.To)
	}
	if f.Author != "" {
		author := s.arg(f.Author)
		s.where += " and d.author = " + author + " and d.author_key = md5($1::uuid || ' ' || " + author + "::text)::uuid"
	}
	switch f.Audience {
	case "":
	case audience.Default:
		s.where += " and d.audience = " + s.arg(uuid.Nil)
	default:
		s.where += " and d.audience = (select id from directory.audiences where project_id = $1 and slug = " +
			s.arg(f.Audience) + ")"
	}
	if f.AudienceID != uuid.Nil {
		s.where += " and d.audience = " + s.arg(f.AudienceID)
	}
	if f.Label != "" {
		s.begins = append(s.begins, [2]string{"d.label_key", *labelKey(&f.Label)})
	}
	if f.ID != "" && start(f.ID) == f.ID {
		s.begins = append(s.begins, [2]string{"d.source_key", f.ID})
	} else if f.ID != "" {
		s.begins = append(s.begins, [2]string{"d.source_id", f.ID})
	}
	return s
}

const (
	newestFirst = "d.occurred_at desc, d.id desc"
	// countLive counts the data points of the project, so that a search in few does not count those that it looks at.
	countLive = "(select coalesce(sum(live), 0) from datapoints.scopes where project_id = $1)"
)

// List lists data points as the projection is now.
func (q Queries) List(ctx context.Context, project uuid.UUID, query ListQuery) (list List, err error) {
	query.Limit = min(max(query.Limit, 1), MaxListed)
	most := cmp.Or(q.Searched, maxSearched)
	var end *Place
	b := new(pgx.Batch)
	s := query.selection(project)
	found, args := s.found(newestFirst, most, MaxCounted+1)
	b.Queue("select count(*) from ("+found+") counted", args...).
		QueryRow(func(row pgx.Row) error { return row.Scan(&list.Total) })
	if len(s.begins) > 0 {
		b.Queue(fmt.Sprintf("select exists (select from (%s) d where %s > %d offset %d)", s.looked(newestFirst, most+1),
			countLive, most, most), s.args...).QueryRow(func(row pgx.Row) error { return row.Scan(&list.AtLeast) })
	}
	query.queue(b, project, most, &list.Points, &end)
	if err := q.DB.SendBatch(ctx, b).Close(); err != nil {
		return List{}, fmt.Errorf("list data points: %w", err)
	}
	full, back := len(list.Points) > query.Limit, query.Before != nil
	list.Points = list.Points[:min(len(list.Points), query.Limit)]
	if list.Newer, list.Older = query.After != nil, full || end != nil; back {
		slices.Reverse(list.Points)
		list.Newer, list.Older = list.Older, true
	}
	list.First = *cmp.Or(query.After, query.Before, new(Place))
	if list.Last = list.First; len(list.Points) > 0 {
		list.First, list.Last = list.Points[0].Place, list.Points[len(list.Points)-1].Place
	}
	switch {
	case full || end == nil:
	case back:
		list.First = *end
	default:
		list.Last = *end
	}
	return list, list.show(ctx)
}

// show adds the beginnings of the data points to the read of the request.
func (l List) show(ctx context.Context) error {
	read := readlog.From(ctx)
	if read == nil {
		return nil
	}
	shown := make([]reads.Shown, len(l.Points))
	for i, p := range l.Points {
		id := read.Point(p.SourceID)
		shown[i] = reads.Shown{
			Node: datapoint.NodeID(id, p.Revision), DataPoint: id, Revision: p.Revision,
			Spans: []reads.Span{{0, len(p.Excerpt)}},
		}
	}
	return read.Show(ctx, reads.List, shown...)
}

// queue reads a page in the order of the walk, and one data point more. end is the last place that a search by the
// beginning of a text looked at, nil if it looked at all.
func (query ListQuery) queue(b *pgx.Batch, project uuid.UUID, most int, into *[]Listed, end **Place) {
	s, order := query.selection(project), newestFirst
	switch {
	case query.Before != nil:
		s.where += " and (d.occurred_at, d.id) > (" + s.arg(query.Before.OccurredAt) + ", " + s.arg(query.Before.ID) + ")"
		order = "d.occurred_at, d.id"
	case query.After != nil:
		s.where += " and (d.occurred_at, d.id) < (" + s.arg(query.After.OccurredAt) + ", " + s.arg(query.After.ID) + ")"
	}
	found, args := s.found(order, most, query.Limit+1)
	sql := fmt.Sprintf(`select d.id, d.source_id, d.revision, d.occurred_at, d.accepted_at, coalesce(d.author, ''),
			d.audience, coalesce(a.slug, ''), `+privateTo+`, d.ingestion_id, d.memories, r.label, substring(r.content from 1 for %d)
		from (%s) found join datapoints.data_points d on d.id = found.id
		cross join lateral (
			select label, content from datapoints.revisions where data_point = d.id and number = d.revision offset 0
		) r
		left join directory.audiences a on a.id = d.audience and a.project_id = $1
		order by %s`, excerptBytes, found, order)
	b.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, scanListed)
		return err
	})
	if len(s.begins) == 0 {
		return
	}
	last := fmt.Sprintf("select d.occurred_at, d.id from (%s) d where %s >= %d offset %d", s.looked(order, most),
		countLive, most, most-1)
	b.Queue(last, s.args...).Query(func(rows pgx.Rows) error {
		var at Place
		_, err := pgx.ForEachRow(rows, []any{&at.OccurredAt, &at.ID}, func() error { *end = &at; return nil })
		at.OccurredAt = at.OccurredAt.UTC()
		return err
	})
}

// privateTo is the identity whose private audience a data point d is in, "" for none.
const privateTo = `coalesce((select i.identity from directory.identities i
		where i.private = d.audience and i.project_id = d.project_id), '')`

func scanListed(row pgx.CollectableRow) (p Listed, err error) {
	var content []byte
	err = row.Scan(&p.ID, &p.SourceID, &p.Revision, &p.OccurredAt, &p.AcceptedAt, &p.Author, &p.AudienceID, &p.Audience,
		&p.PrivateTo, &p.Ingestion, &p.Memories, &p.Label, &content)
	p.finish(content)
	return p, err
}

// finish completes what was read, with the beginning of the content.
func (p *Listed) finish(content []byte) {
	p.OccurredAt, p.AcceptedAt = p.OccurredAt.UTC(), p.AcceptedAt.UTC()
	if p.AudienceID == uuid.Nil {
		p.Audience = audience.Default
	}
	p.Excerpt = strings.Join(strings.Fields(strings.ToValidUTF8(string(content), "")), " ")
}

// Stored is a live data point with the text of its newest revision. A text is in the row or in a blob.
type Stored struct {
	Listed
	// Captured is the newest revision with memories, 0 for none.
	Captured     int       `json:"captured"`
	Content      []byte    `json:"-"`
	ContentBlob  *blob.Ref `json:"-"`
	Metadata     *string   `json:"-"`
	MetadataBlob *blob.Ref `json:"-"`
}

const selectStored = `select d.id, d.source_id, d.revision, d.occurred_at, d.accepted_at, coalesce(d.author, ''), d.audience,
		coalesce(a.slug, ''), ` + privateTo + `, d.ingestion_id, d.memories, r.label, d.captured, r.content, r.content_blob,
		r.metadata, r.metadata_blob
	from datapoints.data_points d
	join datapoints.revisions r on r.data_point = d.id and r.number = d.revision
	left join directory.audiences a on a.id = d.audience and a.project_id = $1
	where d.project_id = $1 and d.id = $2`

// Stored reads a live data point of a project as the projection is now. ok is false if there is none.
func (q Queries) Stored(ctx context.Context, project, id uuid.UUID) (s Stored, ok bool, err error) {
	rows, err := q.DB.Query(ctx, selectStored, project, id)
	if err != nil {
		return s, false, fmt.Errorf("read a data point: %w", err)
	}
	s, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (s Stored, err error) {
		err = row.Scan(&s.ID, &s.SourceID, &s.Revision, &s.OccurredAt, &s.AcceptedAt, &s.Author, &s.AudienceID, &s.Audience,
			&s.PrivateTo, &s.Ingestion, &s.Memories, &s.Label, &s.Captured, &s.Content, &s.ContentBlob, &s.Metadata,
			&s.MetadataBlob)
		s.finish(s.Content[:min(len(s.Content), excerptBytes)])
		return s, err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return s, false, nil
	}
	if err != nil {
		return s, false, fmt.Errorf("read a data point: %w", err)
	}
	return s, true, nil
}

// String returns the place as a URL holds it: base64url of time and id.
func (p Place) String() string {
	var raw [24]byte
	binary.BigEndian.PutUint64(raw[:8], uint64(p.OccurredAt.UnixMicro())) //nolint:gosec // the bits of the number
	copy(raw[8:], p.ID[:])
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// The instants of the years 1 and 9999 that a row can hold, in microseconds.
const firstMicros, lastMicros = -62_135_596_800_000_000, 253_402_300_799_999_999

// ParsePlace reads what String wrote, nil for "".
func ParsePlace(text string) (*Place, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no place
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != 24 {
		return nil, errors.New("not a place in a list")
	}
	at := int64(binary.BigEndian.Uint64(raw[:8])) //nolint:gosec // the bits of the number
	if at < firstMicros || at > lastMicros {
		return nil, errors.New("not a place in a list")
	}
	return &Place{OccurredAt: time.UnixMicro(at).UTC(), ID: uuid.UUID(raw[8:])}, nil
}

// Item is an item of a send as clients see it.
type Item struct {
	Ordinal   int
	DataPoint uuid.UUID
	// SourceID is "" if the data point was deleted.
	SourceID string
	// Revision is the revision of the data point after the item, 0 if it was deleted before.
	Revision int
	// Outcome is created, updated, unchanged or moved, or deleted if its data point was deleted
	// since.
	Outcome string
	// Phase is queued, processing, captured, failed, done, or unindexed if the send failed on the
	// index.
	Phase string
	// Searchable reports whether recall can find the revision now. Memories counts what was derived
	// from it.
	Searchable bool
	Memories   int
}

// inSendList selects the items that a send lists. Once the send is deleted, it no longer lists
// items that were unchanged, or revised by another send since, even if they are deleted later.
const inSendList = `(s.deleted_at is null or i.outcome = 'deleted' or (i.deleted_at is not null
	and not i.outdated) or i.deleted_at is null and exists (select from datapoints.follow_ups w
		where w.kind = 'delete' and w.key = i.data_point and (w.data::jsonb->>'newest')::int = i.revision))`

// clientOutcome is the outcome that a client reads. A deletion is recorded only with the items that
// created a revision, since a data point may have far more unchanged ones, and with those not at once.
const clientOutcome = `case when i.deleted_at is not null
		or not exists (select from datapoints.data_points d where d.id = i.data_point)
	then 'deleted' else i.outcome end`

// clientPhase is the phase that a client reads. If a watermark preceded the failure of the index,
// the item counts as captured.
const clientPhase = `case when i.phase = 'unindexed' and s.phase = 'indexed' then 'captured'
	when i.phase <> 'erased' and not exists (select from datapoints.data_points d where d.id = i.data_point) then 'done'
	else i.phase end`

// waitingItems counts, for a row s of sends, the items whose deletion a follow-up has yet to apply, with
// the time of the last deletion. It reads no item if there are no follow-ups.
const waitingItems = ` cross join lateral (
		select count(*) as items, max((w.data::jsonb->>'deletedAt')::timestamptz) as at
		from datapoints.items i join datapoints.follow_ups w on w.kind = 'delete' and w.key = i.data_point
		where exists (select from datapoints.follow_ups) and i.ingestion_id = s.id and i.deleted_at is null
			and i.outcome in ('created', 'updated')
	) w `

// endedByDeletion reports that no item of a send is left but for deletions that a follow-up has yet to
// apply: the send counts as indexed, as in derivePhase.
const endedByDeletion = `(w.items > 0 and s.fanned_out and s.phase not in ('indexed', 'nothing-changed')
	and s.unchanged + s.deleted + w.items = s.item_count)`

// CountAuthored counts the live data points of a project with a revision of an author: those whose newest revision is
// the author's, and those of which only earlier ones are.
func (q Queries) CountAuthored(ctx context.Context, project uuid.UUID, author string) (newest, earlier int, err error) {
	err = q.DB.QueryRow(ctx, `select count(*) filter (where newest), count(*) filter (where not newest) from (
			select bool_or(r.number = d.revision) as newest from datapoints.data_points d
			join datapoints.revisions r on r.data_point = d.id
			where d.project_id = $1 and r.project_id = $1 and r.author = $2 group by d.id
		) found`, project, author).Scan(&newest, &earlier)
	if err != nil {
		return 0, 0, fmt.Errorf("count the data points of an author: %w", err)
	}
	return newest, earlier, nil
}

// CountOfOthers counts those of some data points of a project that are live and whose newest revision an author did not
// write.
func (q Queries) CountOfOthers(
	ctx context.Context, project uuid.UUID, ids []uuid.UUID, author string,
) (n int, err error) {
	err = q.DB.QueryRow(ctx, `select count(*) from datapoints.data_points d
		join datapoints.revisions r on r.data_point = d.id and r.number = d.revision
		where d.project_id = $1 and d.id = any($2) and r.author is distinct from $3`, project, ids, author).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the data points of others: %w", err)
	}
	return n, nil
}

// ListAuthored returns the source ids of some live data points with a revision of an author.
func (q Queries) ListAuthored(ctx context.Context, project uuid.UUID, author string, limit int) ([]string, error) {
	rows, err := q.DB.Query(ctx, `select d.source_id from datapoints.data_points d
		where d.project_id = $1 and d.id in (select data_point from datapoints.revisions where project_id = $1 and author = $2)
		limit $3`, project, author, limit)
	if err != nil {
		return nil, fmt.Errorf("list the data points of an author: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list the data points of an author: %w", err)
	}
	return ids, nil
}

// Authors returns the authors of the newest revisions of live data points, by their source ids.
func (q Queries) Authors(ctx context.Context, project auth.Project, sources []string) (map[string]string, error) {
	ids := make([]uuid.UUID, len(sources))
	for i, source := range sources {
		ids[i] = stream.DataPointID(project.Namespace, source)
	}
	rows, err := q.DB.Query(ctx, `select source_id, author from datapoints.data_points
		where id = any($2::uuid[]) and project_id = $1 and author is not null`, project.ID, ids)
	if err != nil {
		return nil, fmt.Errorf("find authors: %w", err)
	}
	authors := make(map[string]string, len(sources))
	var source, author string
	if _, err = pgx.ForEachRow(rows, []any{&source, &author}, func() error {
		authors[source] = author
		return nil
	}); err != nil {
		return nil, fmt.Errorf("find authors: %w", err)
	}
	return authors, nil
}

// CountUncleaned counts the deletions of a project up to a position that are not recorded as cleaned.
func (q Queries) CountUncleaned(ctx context.Context, project uuid.UUID, to eventstore.Position) (n int, err error) {
	err = q.DB.QueryRow(ctx, `select count(*) from datapoints.deletions
		where project_id = $1 and not cleaned and position <= $2`, project, int64(to)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count deletions: %w", err)
	}
	return n, nil
}
