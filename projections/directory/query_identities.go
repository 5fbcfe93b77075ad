package directory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

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

const (
	// maxSearched is how many identities a search by prefix looks at, maxSearchedByTrait how many of those with a
	// trait: each of these is read from its row.
	maxSearched        = 200_000
	maxSearchedByTrait = 10_000
	// MaxTotal is up to how many identities an IdentityPage counts.
	MaxTotal = 10_000
)

// Statements read an index in the order of the list: $1 is the project, ($2, $3) the place to begin at and $4 how many
// to look at. Those that filter what these find stop early.
const (
	searchAll = `select created_at, id, identity from directory.identities
		where project_id = $1 and identity is not null and (created_at, id) < ($2, $3::uuid)
		order by created_at desc, id desc limit $4`
	// searchMarked finds identities by a trait. The few records with too many traits for table marks are scanned.
	searchMarked = `select created_at, id from (
			(select created_at, identity_id as id from directory.marks m
				where m.mark = $5 and (m.created_at, m.identity_id) < ($2, $3::uuid)
				order by m.created_at desc, m.identity_id desc limit $4)
			union all
			select i.created_at, i.id from directory.identities i
			where i.project_id = $1 and i.broad and i.identity is not null and (i.created_at, i.id) < ($2, $3::uuid)
				and case when not i.broad then false when $7::text is null then i.traits::jsonb ? $6
					else i.traits::jsonb ->> $6 = $7 end
		) marked order by created_at desc, id desc limit $4`
	nameOfMarked = `select m.created_at, m.id, i.identity from (` + searchMarked + `) m
		join directory.identities i on i.id = m.id and i.project_id = $1 and i.identity is not null
		order by m.created_at desc, m.id desc`
	// selectSizes adds the sizes of traits.
	selectSizes = `select i.created_at, i.id, octet_length(i.traits) from (%s) found join directory.identities i
			on i.id = found.id and i.project_id = $1
		order by i.created_at desc, i.id desc`
	// selectLast finds the place of the last of as many as there may be.
	selectLast  = `select created_at, id from (%s) found offset $4 - 1`
	selectCount = `select count(*) from (%s) found`
	// selectTraitKeys reads the keys of the newest identities, unless one has very many.
	selectTraitKeys = `select distinct key from (
			select traits from directory.identities where project_id = $1 and identity is not null
			order by created_at desc, id desc limit 1000) i, json_object_keys(i.traits::json) key
		where octet_length(i.traits) < 16384 order by key limit 100`
)

// search looks for the identities of a Listing.
type search struct {
	// sql finds identities by their names, unnamed in the same order without these.
	sql, unnamed string

	most int
	args []any // without $4

	project uuid.UUID
	// names is the prefix.
	names string
}

func (q *Queries) search(project uuid.UUID, l Listing) search {
	end := pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	s := search{
		sql: searchAll, most: q.searched, args: []any{project, end, uuid.Max}, project: project, names: l.Prefix,
	}
	if l.Key != "" {
		m := audience.KeyHash(project, l.Key)
		if l.Value != nil {
			m = audience.ValueHash(project, l.Key, *l.Value)
		}
		s.sql, s.most, s.args = searchMarked, q.searchedByTrait, append(s.args, [16]byte(m), l.Key, l.Value)
	}
	if s.unnamed = s.sql; l.Key != "" && l.Prefix != "" {
		s.sql = nameOfMarked
	}
	return s
}

// from lets the search begin at a place of the list, and go back if it is to.
func (s *search) from(at Cursor, back bool) {
	if s.args[1], s.args[2] = at.CreatedAt, at.ID; back {
		turn := strings.NewReplacer(" desc", " asc", ") < (", ") > (")
		s.sql, s.unnamed = turn.Replace(s.sql), turn.Replace(s.unnamed)
	}
}

// run runs the search, within another statement, for at most limit identities.
func (s search) run(ctx context.Context, db replica.Snapshot, within string, limit int) (pgx.Rows, error) {
	most, where := limit, ""
	if s.names != "" {
		most = s.most
	}
	args := slices.Insert(slices.Clone(s.args), 3, any(most))
	if s.names != "" {
		args = append(args, s.names)
		where = fmt.Sprintf("where starts_with(identity, $%d)", len(args))
	}
	found := fmt.Sprintf("select created_at, id from (%s) looked %s limit %d", s.sql, where, limit)
	rows, err := db.Query(ctx, fmt.Sprintf(within, found), args...)
	if err != nil {
		return nil, fmt.Errorf("search identities: %w", err)
	}
	return rows, nil
}

// find finds the identities to return, without their traits, and the rest of the page.
func (q *Queries) find(
	ctx context.Context, db replica.Snapshot, project auth.Project, l Listing,
) (list []foundIdentity, page Identities, err error) {
	s, back := q.search(project.ID, l), l.Before != nil
	if at := cmp.Or(l.Before, l.After); at != nil {
		s.from(*at, back)
	}
	rows, err := s.run(ctx, db, selectSizes, l.Limit+1)
	if err != nil {
		return nil, page, err
	}
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (i foundIdentity, err error) {
		err = row.Scan(&i.CreatedAt, &i.ID, &i.bytes)
		i.CreatedAt = i.CreatedAt.UTC()
		return i, err
	})
	if err != nil {
		return nil, page, fmt.Errorf("search identities: %w", err)
	}
	if back { // the statement of the sizes has sorted them
		slices.Reverse(list)
	}
	var looked *Cursor
	if len(list) <= l.Limit {
		at, ok, err := s.looked(ctx, db)
		if err != nil {
			return nil, page, err
		}
		if ok {
			looked = &at
		}
	}
	bytes := int64(0)
	for n, i := range list {
		if bytes += i.bytes; n == l.Limit || n > 0 && bytes > maxPageBytes {
			list, page.More, looked = list[:n], true, nil
			break
		}
	}
	if back {
		slices.Reverse(list)
	}
	if len(list) > 0 {
		page.Start, page.End = &list[0].Cursor, &list[len(list)-1].Cursor
	}
	if looked != nil {
		page.More, page.endsEarly = true, true
		if back {
			page.Start, page.End = looked, cmp.Or(page.End, l.Before)
		} else {
			page.Start, page.End = cmp.Or(page.Start, l.After), looked
		}
	}
	return list, page, nil
}

// looked returns the place where a search by prefix has looked at as many as it may. ok is false if there are fewer.
func (s search) looked(ctx context.Context, db replica.Snapshot) (at Cursor, ok bool, err error) {
	if s.names == "" {
		return at, false, nil
	}
	all, err := countAll(ctx, db, s.project)
	if err != nil || all <= int64(s.most) {
		return at, false, err
	}
	s.names, s.sql = "", s.unnamed
	rows, err := s.run(ctx, db, selectLast, s.most)
	if err != nil {
		return at, false, err
	}
	_, err = pgx.ForEachRow(rows, []any{&at.CreatedAt, &at.ID}, func() error {
		ok, at.CreatedAt = true, at.CreatedAt.UTC()
		return nil
	})
	return at, ok, err
}

// IdentityPage is a page of a list of identities for people, newest first.
type IdentityPage struct {
	Identities
	// Newer and Older report whether there may be others before Start and after End.
	Newer, Older bool
	// Total is how many the search finds. TotalMore is true if it finds more than that.
	Total     int64
	TotalMore bool
}

// IdentityPage is Identities with what people want to know around it.
func (q *Queries) IdentityPage(ctx context.Context, project auth.Project, l Listing) (page IdentityPage, err error) {
	if page.Identities, err = q.Identities(ctx, project, l); err != nil {
		return IdentityPage{}, err
	}
	if page.Newer, page.Older = l.After != nil, page.More; l.Before != nil {
		page.Newer, page.Older = page.More, true
	}
	switch {
	case l.Prefix == "" && l.Key == "":
		page.Total, err = countAll(ctx, q.db, project.ID)
		return page, err
	case !page.Newer && (!page.Older || page.endsEarly): // it is the only page, or nobody knows what is after it
		page.Total, page.TotalMore = int64(len(page.List)), page.endsEarly
		return page, nil
	}
	s := q.search(project.ID, l)
	rows, err := s.run(ctx, q.db, selectCount, MaxTotal+1)
	if err != nil {
		return IdentityPage{}, err
	}
	if page.Total, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64]); err != nil {
		return IdentityPage{}, fmt.Errorf("count identities: %w", err)
	}
	_, looked, err := s.looked(ctx, q.db)
	page.TotalMore = page.Total > MaxTotal || looked
	page.Total = min(page.Total, MaxTotal)
	return page, err
}

func countAll(ctx context.Context, db rowQuerier, project uuid.UUID) (n int64, err error) {
	row := db.QueryRow(ctx, `select identities from directory.projects where project_id = $1`, project)
	if err := row.Scan(&n); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("count identities: %w", err)
	}
	return n, nil
}

// TraitKeys returns keys of traits that the newest identities of a project have, sorted, at most 100: what a form may
// suggest.
func (q *Queries) TraitKeys(ctx context.Context, project auth.Project) ([]string, error) {
	rows, err := q.db.Query(ctx, selectTraitKeys, project.ID)
	if err != nil {
		return nil, fmt.Errorf("read keys of traits: %w", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read keys of traits: %w", err)
	}
	return keys, nil
}
