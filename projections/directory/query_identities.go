package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/unnest"
)

// Identity is a record of the directory as the API shows it.
type Identity struct {
	Identity string `json:"identity"`
	// Traits is an object of strings.
	Traits json.RawMessage `json:"traits"`
	Origin string          `json:"origin"`
	// LastSeenAt is when the identity last wrote a data point or recalled since the record was made, nil where it did not.
	LastSeenAt *time.Time `json:"lastSeenAt"`
	CreatedAt  time.Time  `json:"createdAt"`
	UpdatedAt  time.Time  `json:"updatedAt"`
	// Audiences are the slugs of the named audiences that the identity belongs to, sorted; nil where they were not asked for.
	Audiences []string `json:"audiences"`

	id uuid.UUID
}

// Mark is where a page of identities ends.
type Mark struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

// Listing asks for a page of identities.
type Listing struct {
	// After is where the page before ended, nil for the first.
	After *Mark
	// Limit is the most identities of the page, at least 1.
	Limit int
	// Key is a trait that they have, "" for any; Value is the value of that trait, nil for any.
	Key   string
	Value *string
}

// Identities is a page of identities, newest first.
type Identities struct {
	List []Identity
	// More says that there are further ones after End, which is nil where none were found.
	More bool
	End  *Mark
}

const identityColumns = `i.id, i.identity, i.traits, i.origin, i.created_at, i.updated_at`

func scanIdentity(row pgx.CollectableRow) (i Identity, err error) {
	var traits string
	if err := row.Scan((*[16]byte)(&i.id), &i.Identity, &traits, &i.Origin, &i.CreatedAt, &i.UpdatedAt); err != nil {
		return Identity{}, err
	}
	i.Traits, i.CreatedAt, i.UpdatedAt = json.RawMessage(traits), i.CreatedAt.UTC(), i.UpdatedAt.UTC()
	return i, nil
}

// Identity finds a record with its audiences, once the projection has passed the head of the log:
// lastSeenAt then includes every send that was answered before. The fault is service-unavailable
// while the projection is stopped or late.
func (q *Queries) Identity(ctx context.Context, project auth.Project, name string) (i Identity, ok bool, err error) {
	if err := q.passHead(ctx); err != nil {
		return Identity{}, false, err
	}
	return q.identity(ctx, project, name)
}

func (q *Queries) identity(ctx context.Context, project auth.Project, name string) (found Identity, ok bool, err error) {
	id := stream.IdentityID(project.Namespace, name)
	var (
		bytes int64
		at    eventstore.Position
	)
	err = q.db.QueryRow(ctx, `select octet_length(i.traits), p.rules_at from directory.identities i join directory.projects p using (project_id)
		where i.id = $2 and i.project_id = $1 and i.identity is not null`, [16]byte(project.ID), [16]byte(id)).Scan(&bytes, (*uint64)(&at))
	if errors.Is(err, pgx.ErrNoRows) {
		return Identity{}, false, nil
	}
	if err != nil {
		return Identity{}, false, fmt.Errorf("find an identity: %w", err)
	}
	if err := allowance.Reserve(ctx, answerCopies*bytes); err != nil {
		return Identity{}, false, err
	}
	if _, kept := q.rules.get(project.ID, at); !kept && at != 0 {
		leave, err := q.rules.enter(ctx, project.ID)
		if err != nil {
			return Identity{}, false, fmt.Errorf("find an identity: %w", err)
		}
		defer leave()
	}
	err = pgx.BeginTxFunc(ctx, q.db, snapshot, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `select `+identityColumns+` from directory.identities i
			where i.id = $2 and i.project_id = $1 and i.identity is not null`, [16]byte(project.ID), [16]byte(id))
		if err != nil {
			return err
		}
		if found, err = pgx.CollectExactlyOneRow(rows, scanIdentity); err != nil {
			return err
		}
		v, rules, err := q.lookIn(ctx, tx, project, id)
		if err != nil {
			return err
		}
		rows, err = tx.Query(ctx, `select slug from directory.audiences where project_id = $1 and id = any($2::uuid[]) order by slug collate "C"`,
			[16]byte(project.ID), idsOf(v.reach(rules)))
		if err != nil {
			return err
		}
		found.Audiences, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Identity{}, false, nil
	}
	if err == nil {
		err = q.lastSeen(ctx, project, []*Identity{&found})
	}
	if err != nil {
		return Identity{}, false, fmt.Errorf("find an identity: %w", err)
	}
	return found, true, nil
}

const (
	// listAll and listMarked find one more than asked for, with the size of its traits. Those with more traits than are marked
	// are few, and looked through.
	listAll = `select i.created_at, i.id, octet_length(i.traits) from directory.identities i
		where i.project_id = $1 and i.identity is not null and ($2::timestamptz is null or (i.created_at, i.id) < ($2, $3::uuid))
		order by i.created_at desc, i.id desc limit $4`
	listMarked = `with marked as (
			select m.created_at, m.identity_id as id from directory.marks m
			where m.mark = $5 and ($2::timestamptz is null or (m.created_at, m.identity_id) < ($2, $3::uuid))
			order by m.created_at desc, m.identity_id desc limit $4
		), broad as (
			select i.created_at, i.id from directory.identities i
			where i.project_id = $1 and i.broad and i.identity is not null and ($2::timestamptz is null or (i.created_at, i.id) < ($2, $3::uuid))
				and case when not i.broad then false when $7::text is null then i.traits::jsonb ? $6 else i.traits::jsonb ->> $6 = $7 end
		), found as (
			select created_at, id from marked union all select created_at, id from broad
		)
		select i.created_at, i.id, octet_length(i.traits) from found f join directory.identities i on i.id = f.id and i.project_id = $1 and i.identity is not null
		order by i.created_at desc, i.id desc limit $4`
	// selectPage reads what was found, as long as it is the same record.
	selectPage = `select ` + identityColumns + ` from unnest($2::timestamptz[], $3::uuid[]) as f (created_at, id)
		join directory.identities i on i.id = f.id and i.created_at = f.created_at and i.project_id = $1 and i.identity is not null
		order by i.created_at desc, i.id desc`
)

// maxPageBytes is the most bytes of traits as JSON in a page of several identities.
const maxPageBytes = 4 << 20

// answerCopies is how often an answer is in memory while it is built and written: its text, and the part that is encoded.
const answerCopies = 2

// found is an identity of a page before its traits are read.
type found struct {
	Mark
	bytes int64
}

// Identities lists identities of a project, newest first, once the projection has passed the head of the log. A page can be shorter than
// asked for where it would have too many bytes, which are reserved before they are read. The fault is service-unavailable where the
// projection is stopped, or late, or too many bytes of answers are in flight.
func (q *Queries) Identities(ctx context.Context, project auth.Project, l Listing) (Identities, error) {
	if err := q.passHead(ctx); err != nil {
		return Identities{}, err
	}
	list, more, err := q.find(ctx, project, l)
	if err != nil || len(list) == 0 {
		return Identities{}, err
	}
	bytes := int64(0)
	for _, i := range list {
		bytes += i.bytes
	}
	if err := allowance.Reserve(ctx, answerCopies*bytes); err != nil {
		return Identities{}, err
	}
	rows, err := q.db.Query(ctx, selectPage, [16]byte(project.ID), unnest.Column(list, func(i found) time.Time { return i.CreatedAt }),
		unnest.IDs(list, func(i found) uuid.UUID { return i.ID }))
	if err != nil {
		return Identities{}, fmt.Errorf("list identities: %w", err)
	}
	page := Identities{More: more, End: &list[len(list)-1].Mark}
	if page.List, err = pgx.CollectRows(rows, scanIdentity); err != nil {
		return Identities{}, fmt.Errorf("list identities: %w", err)
	}
	of := make([]*Identity, len(page.List))
	for n := range page.List {
		of[n] = &page.List[n]
	}
	if err := q.lastSeen(ctx, project, of); err != nil {
		return Identities{}, fmt.Errorf("list identities: %w", err)
	}
	return page, nil
}

// find finds the identities of a page, without their traits. more says that there are others after them.
func (q *Queries) find(ctx context.Context, project auth.Project, l Listing) (list []found, more bool, err error) {
	var (
		after *time.Time
		last  [16]byte
	)
	if l.After != nil {
		after, last = &l.After.CreatedAt, l.After.ID
	}
	sql, args := listAll, []any{[16]byte(project.ID), after, last, l.Limit + 1}
	if l.Key != "" {
		m := keyMark(project.ID, l.Key)
		if l.Value != nil {
			m = valueMark(project.ID, l.Key, *l.Value)
		}
		sql, args = listMarked, append(args, [16]byte(m), l.Key, l.Value)
	}
	rows, err := q.db.Query(ctx, sql, args...)
	if err != nil {
		return nil, false, fmt.Errorf("list identities: %w", err)
	}
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (i found, err error) {
		err = row.Scan(&i.CreatedAt, (*[16]byte)(&i.ID), &i.bytes)
		i.CreatedAt = i.CreatedAt.UTC()
		return i, err
	})
	if err != nil {
		return nil, false, fmt.Errorf("list identities: %w", err)
	}
	bytes := int64(0)
	for n, i := range list {
		if bytes += i.bytes; n == l.Limit || n > 0 && bytes > maxPageBytes {
			return list[:n], true, nil
		}
	}
	return list, false, nil
}
