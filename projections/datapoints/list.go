package datapoints

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
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
	// Audience is the slug, "" if the audience was removed.
	Audience   string    `json:"audience"`
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
	// Newer and Older report whether the filter selects others before and after the page.
	Newer, Older bool
	// Total counts what the filter selects, up to one more than MaxCounted.
	Total int64
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

// selection is the condition of a filter with its arguments. $1 is the project.
type selection struct {
	where string
	args  []any
}

func (s *selection) and(condition string, args ...any) {
	numbers := make([]any, len(args))
	for n := range args {
		numbers[n] = len(s.args) + n + 1
	}
	s.where += " and " + fmt.Sprintf(condition, numbers...)
	s.args = append(s.args, args...)
}

// prefix selects what begins with a text, by an index on the bytes. The last code point is no character, so no text
// goes on with it.
func (s *selection) prefix(column, text string) {
	s.and(column+` collate "C" >= $%d and `+column+` collate "C" < $%d`, text, text+string(utf8.MaxRune))
}

func (f Filter) selection(project uuid.UUID) *selection {
	s := &selection{where: "d.project_id = $1", args: []any{project}}
	if !f.From.IsZero() {
		s.and("d.occurred_at >= $%d", f.From)
	}
	if !f.To.IsZero() {
		s.and("d.occurred_at < $%d", f.To)
	}
	if f.Author != "" {
		s.and("d.author = $%d", f.Author)
	}
	switch f.Audience {
	case "":
	case audience.Default:
		s.and("d.audience = $%d", uuid.Nil)
	default:
		s.and("d.audience = (select id from directory.audiences where project_id = $1 and slug = $%d)", f.Audience)
	}
	if f.Label != "" {
		s.prefix("d.label_key", *labelKey(&f.Label))
	}
	if f.ID != "" {
		s.prefix("d.source_key", start(f.ID))
		s.and("starts_with(d.source_id, $%d)", f.ID)
	}
	return s
}

// List lists data points as the projection is now.
func (q Queries) List(ctx context.Context, project uuid.UUID, query ListQuery) (list List, err error) {
	query.Limit = min(max(query.Limit, 1), MaxListed)
	b := new(pgx.Batch)
	s := query.selection(project)
	b.Queue(fmt.Sprintf("select count(*) from (select from datapoints.data_points d where %s limit %d) counted", s.where,
		MaxCounted+1), s.args...).QueryRow(func(row pgx.Row) error { return row.Scan(&list.Total) })
	queuePage(b, project, query, &list.Points)
	if err := q.DB.SendBatch(ctx, b).Close(); err != nil {
		return List{}, fmt.Errorf("list data points: %w", err)
	}
	another := len(list.Points) > query.Limit
	list.Points = list.Points[:min(len(list.Points), query.Limit)]
	if list.Newer, list.Older = query.After != nil, another; query.Before != nil {
		slices.Reverse(list.Points)
		list.Newer, list.Older = another, true
	}
	return list, nil
}

// queuePage reads a page in the order of the walk, and one data point more.
func queuePage(b *pgx.Batch, project uuid.UUID, query ListQuery, into *[]Listed) {
	s, order := query.selection(project), "d.occurred_at desc, d.id desc"
	switch {
	case query.Before != nil:
		s.and("(d.occurred_at, d.id) > ($%d, $%d)", query.Before.OccurredAt, query.Before.ID)
		order = "d.occurred_at, d.id"
	case query.After != nil:
		s.and("(d.occurred_at, d.id) < ($%d, $%d)", query.After.OccurredAt, query.After.ID)
	}
	sql := fmt.Sprintf(`select d.id, d.source_id, d.revision, d.occurred_at, d.accepted_at, coalesce(d.author, ''),
			d.audience, coalesce(a.slug, ''), d.ingestion_id, d.memories, r.label, substring(r.content from 1 for %d)
		from (select * from datapoints.data_points d where %s order by %s limit %d) d
		cross join lateral (
			select label, content from datapoints.revisions where data_point = d.id and number = d.revision offset 0
		) r
		left join directory.audiences a on a.id = d.audience and a.project_id = $1
		order by %s`, excerptBytes, s.where, order, query.Limit+1, order)
	b.Queue(sql, s.args...).Query(func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, scanListed)
		return err
	})
}

func scanListed(row pgx.CollectableRow) (p Listed, err error) {
	var content []byte
	err = row.Scan(&p.ID, &p.SourceID, &p.Revision, &p.OccurredAt, &p.AcceptedAt, &p.Author, &p.AudienceID, &p.Audience,
		&p.Ingestion, &p.Memories, &p.Label, &content)
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
		coalesce(a.slug, ''), d.ingestion_id, d.memories, r.label, d.captured, r.content, r.content_blob, r.metadata,
		r.metadata_blob
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
			&s.Ingestion, &s.Memories, &s.Label, &s.Captured, &s.Content, &s.ContentBlob, &s.Metadata, &s.MetadataBlob)
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
