package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/pgarray"
)

// Identity is an identity record.
type Identity struct {
	Identity string `json:"identity"`
	// Traits is a JSON object of strings.
	Traits json.RawMessage `json:"traits"`
	Origin string          `json:"origin"`
	// LastSeenAt is when the identity last wrote a data point or recalled since its record was
	// created, nil if never.
	LastSeenAt *time.Time `json:"lastSeenAt"`
	CreatedAt  time.Time  `json:"createdAt"`
	UpdatedAt  time.Time  `json:"updatedAt"`
	// Audiences are the slugs of its named audiences, sorted; nil in a list.
	Audiences []string `json:"audiences,omitempty"`
	// PrivateAudience is the audience of its record alone.
	PrivateAudience uuid.UUID `json:"-"`

	id uuid.UUID
}

// Trait is a trait of an identity.
type Trait struct{ Key, Value string }

// Pairs are the traits, sorted by their keys.
func (i Identity) Pairs() (list []Trait, err error) {
	var traits map[string]string
	if err := json.Unmarshal(i.Traits, &traits); err != nil {
		return nil, fmt.Errorf("read the traits of an identity: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(traits)) {
		list = append(list, Trait{key, traits[key]})
	}
	return list, nil
}

// Cursor is the position of an identity in a list.
type Cursor struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

// Listing is a request for a list of identities.
type Listing struct {
	// After is the End of the previous list, nil for the first.
	After *Cursor
	// Before is the Start of the next list, to go back; nil to go on.
	Before *Cursor
	// Limit is the most identities to return, at least 1.
	Limit int
	// Prefix limits the list to identities that begin with it, whatever the case; "" for any.
	Prefix string
	// Key limits the list to identities with a trait, "" for any; Value to those with that value,
	// nil for any.
	Key   string
	Value *string
}

// Identities is a part of the list of identities, newest first.
type Identities struct {
	List []Identity
	// More is true if further identities follow in the direction asked: after End, or before Start. A search by
	// prefix ends its list early, with More, where it has looked at many.
	More bool
	// Start and End are the places of the first and of the last; nil if List is empty and More is false.
	Start, End *Cursor

	endsEarly bool
}

const identityColumns = `i.id, i.identity, i.traits, i.origin, i.created_at, i.updated_at, i.private`

func scanIdentity(row pgx.CollectableRow) (i Identity, err error) {
	var traits string
	err = row.Scan(&i.id, &i.Identity, &traits, &i.Origin, &i.CreatedAt, &i.UpdatedAt, &i.PrivateAudience)
	if err != nil {
		return Identity{}, err
	}
	i.Traits, i.CreatedAt, i.UpdatedAt = json.RawMessage(traits), i.CreatedAt.UTC(), i.UpdatedAt.UTC()
	return i, nil
}

// Identity finds a record with its audiences once the projection has applied the head of the log,
// so that lastSeenAt includes every send acknowledged before. The fault is service-unavailable
// while the projection is stopped or late.
func (q *Queries) Identity(ctx context.Context, project auth.Project, name string) (i Identity, ok bool, err error) {
	at, err := q.atHead(ctx, "identity")
	if err != nil {
		return Identity{}, false, err
	}
	i, ok, err = at.identity(ctx, project, stream.IdentityID(project.Namespace, name))
	if err == nil && ok {
		err = q.lastSeen(ctx, project, []*Identity{&i})
	}
	if err != nil {
		return Identity{}, false, fmt.Errorf("find identity: %w", err)
	}
	return i, ok, nil
}

// identity finds a record by its id, without when it was last seen.
func (r *readAtHead) identity(
	ctx context.Context, project auth.Project, id uuid.UUID,
) (found Identity, ok bool, err error) {
	var (
		bytes int64
		at    eventstore.Position
	)
	err = r.do(ctx, func(ctx context.Context, db replica.Snapshot) error {
		err := db.QueryRow(ctx, `select octet_length(i.traits), p.rules_at from directory.identities i
			join directory.projects p using (project_id)
			where i.id = $2 and i.project_id = $1 and i.identity is not null`, project.ID, id).Scan(&bytes, (*uint64)(&at))
		if ok = err == nil; errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil || !ok {
		return Identity{}, false, err
	}
	if err := allowance.Reserve(ctx, answerCopies*bytes); err != nil {
		return Identity{}, false, err
	}
	if _, cached := r.q.rules.get(project.ID, at); !cached && at != 0 {
		if err := r.atPrimary(ctx); err != nil { // only the primary fills the cache
			return Identity{}, false, err
		}
		release, err := r.q.rules.acquire(ctx, project.ID)
		if err != nil {
			return Identity{}, false, err
		}
		defer release()
	}
	err = r.snapshot(ctx, func(ctx context.Context, db replica.Snapshot) error {
		found, ok, err = r.record(ctx, db, project, id)
		return err
	})
	return found, ok, err
}

// record reads a record with its audiences in a snapshot. At the replica it declines unless the rules of
// the project are cached.
func (r *readAtHead) record(
	ctx context.Context, db replica.Snapshot, project auth.Project, id uuid.UUID,
) (found Identity, ok bool, err error) {
	rows, err := db.Query(ctx, `select `+identityColumns+` from directory.identities i
		where i.id = $2 and i.project_id = $1 and i.identity is not null`, project.ID, id)
	if err != nil {
		return Identity{}, false, err
	}
	found, err = pgx.CollectExactlyOneRow(rows, scanIdentity)
	if errors.Is(err, pgx.ErrNoRows) {
		return Identity{}, false, nil
	}
	if err != nil {
		return Identity{}, false, err
	}
	v, err := readViewer(ctx, db, project.ID, id)
	if err != nil {
		return Identity{}, false, err
	}
	var rules *audience.Matcher
	if v.rulesAt != 0 {
		if rules, err = r.rules(ctx, db, project.ID, v.rulesAt); err != nil {
			return Identity{}, false, err
		}
	}
	rows, err = db.Query(ctx, `select slug from directory.audiences where project_id = $1 and id = any($2::uuid[])
		order by slug collate "C"`, project.ID, v.reach(rules))
	if err != nil {
		return Identity{}, false, err
	}
	found.Audiences, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return found, true, err
}

// rules returns the rules of a project as of a snapshot.
func (r *readAtHead) rules(
	ctx context.Context, db replica.Snapshot, project uuid.UUID, at eventstore.Position,
) (*audience.Matcher, error) {
	if r.primary {
		return r.q.rulesAsOf(ctx, db, project, at)
	}
	if cached, ok := r.q.rules.get(project, at); ok {
		return cached, nil
	}
	return nil, replica.ErrDeclined
}

const (
	// selectFound reads the found records, unless they were removed or created again.
	selectFound = `select ` + identityColumns + ` from unnest($2::timestamptz[], $3::uuid[]) as f (created_at, id)
		join directory.identities i on i.id = f.id and i.created_at = f.created_at and i.project_id = $1
			and i.identity is not null
		order by i.created_at desc, i.id desc`
)

// maxPageBytes is the most bytes of traits as JSON in a response with several identities.
const maxPageBytes = 4 << 20

// answerCopies is how many copies of a response are in memory while it is written: its text and the
// encoded part.
const answerCopies = 2

// foundIdentity is an identity before its traits are read.
type foundIdentity struct {
	Cursor
	bytes int64
}

// Identities lists identities of a project, newest first, once the projection has applied the head
// of the log. It returns fewer than requested if they would have too many bytes, which it reserves
// before it reads them. The fault is service-unavailable if the projection is stopped or late, or
// if too many bytes of responses are in flight.
func (q *Queries) Identities(ctx context.Context, project auth.Project, l Listing) (Identities, error) {
	at, err := q.atHead(ctx, "identities")
	if err != nil {
		return Identities{}, err
	}
	var (
		list []foundIdentity
		page Identities
	)
	err = at.do(ctx, func(ctx context.Context, db replica.Snapshot) (err error) {
		list, page, err = q.find(ctx, db, project, l)
		return err
	})
	if err != nil || len(list) == 0 {
		return page, err
	}
	bytes := int64(0)
	for _, i := range list {
		bytes += i.bytes
	}
	if err := allowance.Reserve(ctx, answerCopies*bytes); err != nil {
		return Identities{}, err
	}
	err = at.do(ctx, func(ctx context.Context, db replica.Snapshot) error {
		rows, err := db.Query(ctx, selectFound, project.ID,
			pgarray.Column(list, func(i foundIdentity) time.Time { return i.CreatedAt }),
			pgarray.IDs(list, func(i foundIdentity) uuid.UUID { return i.ID }))
		if err != nil {
			return err
		}
		page.List, err = pgx.CollectRows(rows, scanIdentity)
		return err
	})
	if err != nil {
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
