package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/switchover"
)

// AudienceHead is an audience without its members.
type AudienceHead struct {
	ID   uuid.UUID     `json:"-"`
	Slug string        `json:"slug"`
	Name string        `json:"name"`
	Kind audience.Kind `json:"kind"`
	// Rule is an audience.Rule as JSON, nil for a fixed audience and in a list.
	Rule json.RawMessage `json:"rule,omitempty"`
	// Members counts the members; of a fixed audience in a list, MaxTotal+1 means more than MaxTotal. Counting is true
	// while those of a new rule are counted.
	Members  int64 `json:"members"`
	Counting bool  `json:"isCounting"`
	// Memories counts what recall could return of it: data points and memories.
	Memories int64 `json:"memories"`
	// PutAt is when its newest definition was put, RecomputedAt when it was last put or counted.
	PutAt        time.Time `json:"putAt"`
	RecomputedAt time.Time `json:"recomputedAt"`
	CreatedAt    time.Time `json:"createdAt"`
}

// Definition is the rule, zero for a fixed audience and in a list.
func (a AudienceHead) Definition() (rule audience.Rule, err error) {
	if a.Rule != nil {
		err = json.Unmarshal(a.Rule, &rule)
	}
	return rule, err
}

// AudienceListing asks for audiences in the order of their slugs, directly after or before one. Prefix limits it to
// those that begin with it.
type AudienceListing struct {
	Prefix, After, Before string
	Limit                 int
}

// AudienceHeads are audiences in the order of their slugs.
type AudienceHeads struct {
	List           []AudienceHead
	Previous, Next bool
}

const selectAudienceHeads = `select a.id, a.slug, a.name, a.kind, case when %s then a.rule end, a.outdated, a.put_at,
		a.recomputed_at, a.created_at, case when a.kind = 'rule' then a.member_count else (select count(*) from (
			select from directory.members m where m.audience_id = a.id limit %s) counted) end
	from (select * from directory.audiences where project_id = $1 and %s limit $2) a`

func (q *Queries) audienceHeads(
	ctx context.Context, project auth.Project, sql string, args ...any,
) ([]AudienceHead, error) {
	at, err := q.atHead(ctx, "audiences")
	if err == nil {
		err = at.atPrimary(ctx)
	}
	if err != nil {
		return nil, err
	}
	rows, err := q.db.Query(ctx, sql, append([]any{project.ID}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("read audiences: %w", err)
	}
	list, err := pgx.CollectRows(rows, scanAudienceHead)
	if err != nil {
		return nil, fmt.Errorf("read audiences: %w", err)
	}
	scopes, err := q.scopes.Scopes(ctx, project)
	for n := range list {
		list[n].Memories = scopes[list[n].ID]
	}
	return list, err
}

func scanAudienceHead(row pgx.CollectableRow) (a AudienceHead, err error) {
	var rule *string
	err = row.Scan(&a.ID, &a.Slug, &a.Name, &a.Kind, &rule, &a.Counting, &a.PutAt, &a.RecomputedAt, &a.CreatedAt,
		&a.Members)
	a.PutAt, a.RecomputedAt, a.CreatedAt = a.PutAt.UTC(), a.RecomputedAt.UTC(), a.CreatedAt.UTC()
	if rule != nil {
		a.Rule = json.RawMessage(*rule)
	}
	return a, err
}

// AudienceHeads lists named audiences of a project.
func (q *Queries) AudienceHeads(ctx context.Context, project auth.Project, l AudienceListing) (AudienceHeads, error) {
	at, where := l.After, `starts_with(slug, $4) and slug collate "C" > $3 order by slug collate "C"`
	if l.Before != "" {
		at, where = l.Before, `starts_with(slug, $4) and slug collate "C" < $3 order by slug collate "C" desc`
	}
	sql := fmt.Sprintf(selectAudienceHeads, "false", strconv.Itoa(MaxTotal+1), where)
	list, err := q.audienceHeads(ctx, project, sql, l.Limit+1, at, l.Prefix)
	if err != nil {
		return AudienceHeads{}, err
	}
	slices.SortFunc(list, func(a, b AudienceHead) int { return strings.Compare(a.Slug, b.Slug) })
	more := len(list) > l.Limit
	if l.Before != "" {
		return AudienceHeads{List: list[max(0, len(list)-l.Limit):], Previous: more, Next: true}, nil
	}
	return AudienceHeads{List: list[:min(l.Limit, len(list))], Previous: l.After != "", Next: more}, nil
}

// AudienceHead finds a named audience by its slug.
func (q *Queries) AudienceHead(ctx context.Context, project auth.Project, slug string) (AudienceHead, bool, error) {
	sql := fmt.Sprintf(selectAudienceHeads, "true", "all", "slug = $3")
	list, err := q.audienceHeads(ctx, project, sql, 1, slug)
	if err != nil || len(list) == 0 {
		return AudienceHead{}, false, err
	}
	return list[0], true, nil
}

// Member is a member of an audience.
type Member struct {
	Identity string `json:"identity"`
	// Since is when it became a member, if Exact. Otherwise it was one then, and maybe before.
	Since time.Time `json:"since"`
	Exact bool      `json:"isExact"`
	// Until is when it left since the time that was asked about, nil if it did not. UntilKnown is false beyond the bounds.
	Until      *time.Time `json:"until,omitempty"`
	UntilKnown bool       `json:"isUntilKnown,omitempty"`

	id uuid.UUID
}

// MemberListing asks for members of an audience, in an order that stays, directly after or before a place.
type MemberListing struct {
	After, Before *uuid.UUID
	Limit         int
}

// Members are members of an audience.
type Members struct {
	List []Member
	// Previous and Next report whether there may be others before Start and after End. The list may end early, and be
	// empty, where many identities were looked at.
	Previous, Next bool
	Start, End     uuid.UUID
}

const (
	// maxMatched is how many identities a list of members looks at, and a slice of it.
	maxMatched  = 40_000
	matchSlice  = 4096
	selectFixed = `select m.identity_id, i.identity, m.since from directory.members m
		join directory.identities i on i.id = m.identity_id and i.project_id = $1 and i.identity is not null
		where m.audience_id = $2 and m.identity_id > $3 order by m.identity_id limit $4`
	selectMatching = `select id, identity, created_at, updated_at, marks from directory.identities
		where project_id = $1 and identity is not null and id > $2 order by id limit $3`
)

// backwards makes a statement read its index to the other side.
var backwards = strings.NewReplacer("id > $", "id < $", " limit", " desc limit")

// Members lists the members of a named audience. ok is false if there is none of that slug.
func (q *Queries) Members(
	ctx context.Context, project auth.Project, slug string, l MemberListing,
) (page Members, ok bool, err error) {
	a, ok, err := q.AudienceHead(ctx, project, slug)
	if err != nil || !ok {
		return Members{}, ok, err
	}
	from, turn := uuid.Nil, func(sql string) string { return sql }
	switch {
	case l.Before != nil:
		from, turn = *l.Before, backwards.Replace
	case l.After != nil:
		from = *l.After
	}
	last, more := from, false
	if a.Kind == audience.KindRule {
		page.List, last, more, err = q.matching(ctx, project, a, turn(selectMatching), from, l.Limit)
	} else {
		page.List, err = q.listed(ctx, project, a, turn(selectFixed), from, l.Limit+1)
	}
	if err != nil {
		return Members{}, false, fmt.Errorf("list members of an audience: %w", err)
	}
	if len(page.List) > l.Limit {
		page.List, more = page.List[:l.Limit], true
		last = page.List[l.Limit-1].id
	} else if len(page.List) > 0 && !more {
		last = page.List[len(page.List)-1].id
	}
	first := from
	if len(page.List) > 0 {
		first = page.List[0].id
	}
	page.Start, page.End, page.Previous, page.Next = first, last, l.After != nil, more
	if err := q.beginnings(ctx, project.ID, a, page.List); err != nil {
		return Members{}, false, err
	}
	if l.Before != nil {
		slices.Reverse(page.List)
		page.Start, page.End, page.Previous, page.Next = last, first, more, true
	}
	return page, true, nil
}

func (q *Queries) listed(
	ctx context.Context, project auth.Project, a AudienceHead, sql string, from uuid.UUID, limit int,
) ([]Member, error) {
	rows, err := q.db.Query(ctx, sql, project.ID, a.ID, from, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Member, error) {
		m := Member{Exact: true}
		err := row.Scan(&m.id, &m.Identity, &m.Since)
		m.Since = m.Since.UTC()
		return m, err
	})
}

// matching lists identities that match a rule, at least limit+1 unless it has looked at as many as it may: more is true
// then, and last the last that it has looked at.
func (q *Queries) matching(
	ctx context.Context, project auth.Project, a AudienceHead, sql string, from uuid.UUID, limit int,
) (list []Member, last uuid.UUID, more bool, err error) {
	rule, err := a.Definition()
	if err != nil {
		return nil, from, false, err
	}
	var m audience.Matcher
	if err := m.Add(a.ID, audience.Compile(project.ID, rule)); err != nil {
		return nil, from, false, err
	}
	last = from
	for looked := 0; looked < q.matched; {
		n, found, err := q.matchSlice(ctx, project, a, &m, sql, &last)
		if err != nil {
			return nil, from, false, err
		}
		if list = append(list, found...); n < matchSlice || len(list) > limit {
			return list, last, false, nil
		}
		looked += n
	}
	return list, last, true, nil
}

// matchSlice looks at the next identities, and moves last to the last of them.
func (q *Queries) matchSlice(
	ctx context.Context, project auth.Project, a AudienceHead, m *audience.Matcher, sql string, last *uuid.UUID,
) (looked int, found []Member, err error) {
	rows, err := q.db.Query(ctx, sql, project.ID, *last, matchSlice)
	if err != nil {
		return 0, nil, err
	}
	var (
		s      = audience.NewSelector(m)
		one    Member
		marks  pgtype.DriverBytes
		block  []Member
		update time.Time
		take   = func() {
			for _, place := range s.Take() {
				found = append(found, block[place])
			}
			block = block[:0]
		}
	)
	_, err = pgx.ForEachRow(rows, []any{&one.id, &one.Identity, &one.Since, &update, &marks}, func() error {
		*last, looked = one.id, looked+1
		next := one
		next.Since, next.Exact = sinceOf(a, one.Since.UTC(), update.UTC())
		if block = append(block, next); s.Add(audience.TraitKeys(marks)) {
			take()
		}
		return nil
	})
	take()
	return looked, found, err
}

// sinceOf returns since when an identity matches a rule at least. It is exact if the identity was created then with the
// traits that it has, or if the audience was created then.
func sinceOf(a AudienceHead, created, updated time.Time) (since time.Time, exact bool) {
	put := a.PutAt
	if updated.After(put) {
		return updated, updated.Equal(created)
	}
	return put, a.CreatedAt.Equal(put)
}

// Judgement is whether an identity belongs to an audience, and why.
type Judgement struct {
	// HasRecord is false for an identity without a record, which belongs to no audience.
	HasRecord bool `json:"hasRecord"`
	// Audience is nil if there is none, and for the private audience of an identity.
	Audience *AudienceHead `json:"audience"`
	// PrivateTo is the identity whose private audience it is, "" for another.
	PrivateTo string `json:"privateTo,omitempty"`
	// IsMember reports whether it belongs to the audience. Since and Exact are those of a Member then.
	IsMember bool      `json:"isMember"`
	Since    time.Time `json:"since"`
	Exact    bool      `json:"isExact"`
	// Past is set for a time in the past.
	Past *PastJudgement `json:"past,omitempty"`
	// Match and Conditions are those of a rule.
	Match      audience.Match    `json:"match,omitempty"`
	Conditions []JudgedCondition `json:"conditions"`
}

// JudgedCondition is a condition of a rule as an identity meets it.
type JudgedCondition struct {
	audience.Condition
	Holds bool `json:"holds"`
	// Value is the trait of the identity, nil for none.
	Value *string `json:"has"`
}

const (
	selectJudged = `select traits, marks, created_at, updated_at from directory.identities
		where project_id = $1 and id = $2 and identity is not null`
	selectListed = `select audience_id, since from directory.members where identity_id = $1 and audience_id = any($2::uuid[])`
)

const (
	// maxMemberships is how many audiences of an identity are explained. shortRule selects the rules of those.
	maxMemberships = 50
	shortRule      = "octet_length(a.rule) < 65536"
)

// Judge reports whether an identity belongs to an audience, as the matcher of recall decides it.
func (q *Queries) Judge(ctx context.Context, project auth.Project, name string, of uuid.UUID) (j Judgement, err error) {
	err = q.judging(ctx, func(ctx context.Context, tx pgx.Tx) error {
		list, has, err := judge(ctx, tx, project, name, "true", of)
		if j = (Judgement{HasRecord: has}); len(list) > 0 {
			j = list[0]
		}
		if err == nil && j.Audience == nil {
			_, j.PrivateTo, err = readReaders(ctx, tx, project.ID, of)
			j.IsMember = j.PrivateTo != "" && j.PrivateTo == name
		}
		return err
	})
	return j, err
}

// Memberships judges an identity for the audiences that it belongs to, in the order of their slugs. more is true if
// there are others. A long rule is not explained.
func (q *Queries) Memberships(
	ctx context.Context, project auth.Project, name string,
) (list []Judgement, more bool, err error) {
	reach, err := q.Reach(ctx, project, name)
	if err != nil {
		return nil, false, err
	}
	err = q.judging(ctx, func(ctx context.Context, tx pgx.Tx) error {
		list, _, err = judge(ctx, tx, project, name, shortRule, reach.Audiences...)
		return err
	})
	list = slices.DeleteFunc(list, func(j Judgement) bool { return !j.IsMember })
	if more = len(list) > maxMemberships; more {
		list = list[:maxMemberships]
	}
	return list, more, err
}

// judging calls read in a snapshot of the projection that has applied the head of the log.
func (q *Queries) judging(ctx context.Context, read func(ctx context.Context, tx pgx.Tx) error) error {
	at, err := q.atHead(ctx, "judge")
	if err == nil {
		err = at.atPrimary(ctx)
	}
	if err != nil {
		return err
	}
	if err := switchover.Snapshot(ctx, q.db, []string{Name}, read); err != nil {
		return fmt.Errorf("judge an identity: %w", err)
	}
	return nil
}

// judge judges an identity for audiences, those that exist. rules is SQL for which rules are read.
func judge(
	ctx context.Context, tx pgx.Tx, project auth.Project, name, rules string, of ...uuid.UUID,
) (list []Judgement, has bool, err error) {
	sql := fmt.Sprintf(selectAudienceHeads, rules, "0", "id = any($3::uuid[]) order by slug")
	rows, err := tx.Query(ctx, sql, project.ID, maxMemberships+1, of)
	if err != nil {
		return nil, false, err
	}
	heads, err := pgx.CollectRows(rows, scanAudienceHead)
	if err != nil {
		return nil, false, err
	}
	var (
		text             string
		marks            []byte
		created, updated time.Time
	)
	id := stream.IdentityID(project.Namespace, name)
	err = tx.QueryRow(ctx, selectJudged, project.ID, id).Scan(&text, &marks, &created, &updated)
	if has = err == nil; err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, false, err
	}
	listed, err := readListed(ctx, tx, id, of)
	if err != nil {
		return nil, false, err
	}
	lines, err := readTimelines(ctx, tx, project.ID, always, somePast, of...)
	if err != nil {
		return nil, false, err
	}
	pasts, err := readPasts(ctx, tx, project.ID, []uuid.UUID{id}, always, maxPast, 0)
	if err != nil {
		return nil, false, err
	}
	for _, head := range heads {
		j := Judgement{HasRecord: has, Audience: &head}
		switch since, is := listed[head.ID]; {
		case !has:
		case head.Kind != audience.KindRule:
			j.IsMember, j.Since, j.Exact = is, since, true
		default:
			j.Since, j.Exact = sinceOf(head, created.UTC(), updated.UTC())
			err = j.judgeRule(project.ID, text, marks)
		}
		if err == nil && j.IsMember {
			j.Since, j.Exact, err = lines[head.ID].beginning(ctx, pasts[id], head, j.Since, j.Exact)
		}
		if list = append(list, j); err != nil {
			return nil, false, err
		}
	}
	return list, has, nil
}

// readListed reads since when an identity is in the lists of audiences.
func readListed(ctx context.Context, tx pgx.Tx, id uuid.UUID, of []uuid.UUID) (map[uuid.UUID]time.Time, error) {
	rows, err := tx.Query(ctx, selectListed, id, of)
	if err != nil {
		return nil, err
	}
	listed := map[uuid.UUID]time.Time{}
	var in uuid.UUID
	var since time.Time
	_, err = pgx.ForEachRow(rows, []any{&in, &since}, func() error { listed[in] = since.UTC(); return nil })
	return listed, err
}

// judgeRule sets what the traits of the identity decide.
func (j *Judgement) judgeRule(project uuid.UUID, text string, marks audience.TraitKeys) error {
	if j.Audience.Rule == nil { // it is too long, and was selected by the matcher
		j.IsMember = true
		return nil
	}
	var values map[string]string
	rule, err := j.Audience.Definition()
	if err = errors.Join(err, json.Unmarshal([]byte(text), &values)); err != nil {
		return err
	}
	j.Audience.Rule = nil // the conditions have it
	return j.conditions(project, rule, values, marks)
}

// conditions sets what the traits of an identity decide about a rule.
func (j *Judgement) conditions(
	project uuid.UUID, rule audience.Rule, values map[string]string, marks audience.TraitKeys,
) error {
	matches, holds, err := rule.Judge(project, marks)
	if err != nil {
		return err
	}
	j.IsMember, j.Match = matches, rule.Match
	for n, c := range rule.Conditions {
		judged := JudgedCondition{Condition: c, Holds: holds[n]}
		if value, has := values[c.Trait]; has {
			judged.Value = &value
		}
		j.Conditions = append(j.Conditions, judged)
	}
	return nil
}
