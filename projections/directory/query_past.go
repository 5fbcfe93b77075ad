package directory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pgarray"
)

// The bounds of a question about the past: how many definitions of an audience and rows of traits of a record it reads
// before and after a time, and how many bytes of rules and lists. somePast is for many audiences at once.
const (
	maxPast      = 100
	somePast     = 20
	maxPastBytes = 16 << 20
)

// always is later than all times of the log.
var always = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// standing is whether a record belonged to an audience. It is unknown beyond the bounds.
type standing int

const (
	outside standing = iota
	inside
	unknown
)

func standingOf(is bool) standing {
	if is {
		return inside
	}
	return outside
}

// definition is what an audience was from a time on.
type definition struct {
	lastDefinition
	rule    *audience.Rule
	matcher *audience.Matcher
	list    []byte
	loaded  bool
}

// timeline is the definitions of an audience around a time, the earliest first. Earlier and later report that there
// are others.
type timeline struct {
	project        uuid.UUID
	tx             querier
	bytes          *int // that may still be read
	definitions    []*definition
	earlier, later bool
}

// recordPast is the traits of a record around a time, the earliest first. Earlier and later are those of a timeline.
type recordPast struct {
	id             uuid.UUID
	name           string
	born           eventstore.Position
	traits         []lastPast
	earlier, later bool
}

const selectTimelines = `select p.audience_id, p.position, p.from_at, p.slug, p.kind, p.list, p.from_at > $3
	from unnest($2::uuid[]) t (id) cross join lateral (
		(select * from directory.past_audiences where audience_id = t.id and project_id = $1 and from_at <= $3
			order by position desc limit $4)
		union all
		(select * from directory.past_audiences where audience_id = t.id and project_id = $1 and from_at > $3
			order by position limit $4)
	) p order by p.audience_id, p.position`

// readTimelines reads the definitions of audiences around a time.
func readTimelines(
	ctx context.Context, tx querier, project uuid.UUID, at time.Time, most int, of ...uuid.UUID,
) (map[uuid.UUID]*timeline, error) {
	rows, err := tx.Query(ctx, selectTimelines, project, of, at, most)
	if err != nil {
		return nil, fmt.Errorf("read definitions of audiences: %w", err)
	}
	found, left := make(map[uuid.UUID]*timeline, len(of)), maxPastBytes
	for _, id := range of {
		found[id] = &timeline{project: project, tx: tx, bytes: &left}
	}
	var d lastDefinition
	var after bool
	counts := map[uuid.UUID]*[2]int{}
	_, err = pgx.ForEachRow(rows, []any{
		&d.Audience, (*uint64)(&d.Position), &d.From, &d.Slug, &d.Kind, (*uint64)(&d.List), &after,
	}, func() error {
		d.From = d.From.UTC()
		t := found[d.Audience]
		t.definitions = append(t.definitions, &definition{lastDefinition: d})
		if counts[d.Audience] == nil {
			counts[d.Audience] = new([2]int)
		}
		counts[d.Audience][asInt(after)]++
		return nil
	})
	for id, n := range counts {
		found[id].earlier, found[id].later = n[0] == most, n[1] == most
	}
	if err != nil {
		return nil, fmt.Errorf("read definitions of audiences: %w", err)
	}
	return found, nil
}

// at is the definition at a time, nil for none.
func (t *timeline) at(at time.Time) *definition {
	n := sort.Search(len(t.definitions), func(n int) bool { return t.definitions[n].From.After(at) })
	if n == 0 {
		return nil
	}
	return t.definitions[n-1]
}

const (
	selectPastRule = `select rule, octet_length(rule) from directory.past_audiences
		where audience_id = $1 and position = $2 and octet_length(rule) <= $3`
	selectPastList = `select members, octet_length(members) from directory.past_lists
		where audience_id = $1 and position = $2 and octet_length(members) <= $3`
)

// load reads the rule or the list of a definition. It returns false beyond the bounds.
func (t *timeline) load(ctx context.Context, d *definition) (ok bool, err error) {
	if d.loaded || d.Kind == kindRemoved {
		return true, nil
	}
	sql, at := selectPastRule, d.Position
	if d.Kind == string(audience.KindFixed) {
		sql, at = selectPastList, d.List
		same := slices.IndexFunc(t.definitions, func(o *definition) bool { return o.loaded && o.List == at })
		if same >= 0 {
			d.list, d.loaded = t.definitions[same].list, true
			return true, nil
		}
	}
	rows, err := t.tx.Query(ctx, sql, d.Audience, int64(at), *t.bytes)
	if err != nil {
		return false, fmt.Errorf("read a definition of an audience: %w", err)
	}
	type read struct {
		text []byte
		size int
	}
	one, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (r read, err error) {
		return r, row.Scan(&r.text, &r.size)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read a definition of an audience: %w", err)
	}
	*t.bytes -= one.size
	if d.loaded = true; d.Kind == string(audience.KindFixed) {
		d.list = one.text
		return true, nil
	}
	d.rule, d.matcher = new(audience.Rule), new(audience.Matcher)
	if err := json.Unmarshal(one.text, d.rule); err != nil {
		return false, fmt.Errorf("decode a rule: %w", err)
	}
	return true, d.matcher.Add(d.Audience, audience.Compile(t.project, *d.rule))
}

// lists reports whether a list has an identity.
func lists(list []byte, id uuid.UUID) bool {
	n := sort.Search(len(list)/16, func(n int) bool { return bytes.Compare(list[16*n:16*n+16], id[:]) >= 0 })
	return n < len(list)/16 && bytes.Equal(list[16*n:16*n+16], id[:])
}

// at is the traits of a record at a time, nil for none.
func (r *recordPast) at(at time.Time) *lastPast {
	n := sort.Search(len(r.traits), func(n int) bool { return r.traits[n].From.After(at) })
	if n == 0 {
		return nil
	}
	return &r.traits[n-1]
}

// standing reports whether a record belonged to the audience at a time, as the matcher of recall decides it.
func (t *timeline) standing(ctx context.Context, r *recordPast, at time.Time) (standing, error) {
	d, traits := t.at(at), r.at(at)
	switch {
	case d == nil && t.earlier || traits == nil && r.earlier:
		return unknown, nil
	case d == nil || traits == nil || d.Kind == kindRemoved:
		return outside, nil
	case d.Kind == string(audience.KindFixed) && r.born >= d.Position: // who had no record then was not listed
		return outside, nil
	}
	if ok, err := t.load(ctx, d); err != nil || !ok {
		return unknown, err
	}
	if d.matcher == nil {
		return standingOf(lists(d.list, r.id)), nil
	}
	return standingOf(len(d.matcher.Reached(audience.TraitKeys(traits.Marks))) > 0), nil
}

// changes are the times at which the standing of a record may change, in order.
func (t *timeline) changes(r *recordPast) (times []time.Time) {
	for _, d := range t.definitions {
		times = append(times, d.From)
	}
	for _, v := range r.traits {
		times = append(times, v.From)
	}
	slices.SortFunc(times, time.Time.Compare)
	return slices.CompactFunc(times, time.Time.Equal)
}

// since returns since when a record has belonged to the audience that it belongs to at a time. It is not exact if it
// may have been before.
func (t *timeline) since(ctx context.Context, r *recordPast, at time.Time) (since time.Time, exact bool, err error) {
	times := t.changes(r)
	times = times[:sort.Search(len(times), func(n int) bool { return times[n].After(at) })]
	for _, since = range slices.Backward(times) {
		// Times are whole microseconds, so this is the standing before the change.
		is, err := t.standing(ctx, r, since.Add(-time.Microsecond))
		if err != nil || is != inside {
			return since, is == outside, err
		}
	}
	return since, false, nil
}

// until returns when a record that belongs to the audience at a time left it, nil if it did not or if known is false.
func (t *timeline) until(ctx context.Context, r *recordPast, at time.Time) (until *time.Time, known bool, err error) {
	for _, change := range t.changes(r) {
		if !change.After(at) {
			continue
		}
		is, err := t.standing(ctx, r, change)
		switch {
		case err != nil || is == unknown:
			return nil, false, err
		case is == outside:
			return &change, true, nil
		}
	}
	return nil, !t.later && !r.later, nil
}

// selectTraits reads the traits of records around a time. $3 and $4 are the most rows up to then, and after.
const selectTraits = `select i.id, i.identity, i.born, p.from_at, p.marks, p.from_at > $2
	from unnest($1::uuid[]) t (id)
	cross join lateral (select id, identity, born from directory.identities
		where id = t.id and identity is not null and project_id = $5 offset 0) i
	cross join lateral (
		(select from_at, marks from directory.past_traits where identity_id = t.id and from_at <= $2
			order by from_at desc limit $3)
		union all
		(select from_at, marks from directory.past_traits where identity_id = t.id and from_at > $2
			order by from_at limit $4)
	) p order by i.id, p.from_at`

// selectTraitsThen is selectTraits for one row up to then, and none after.
const selectTraitsThen = `select i.id, i.identity, i.born, p.from_at, p.marks, false
	from directory.identities i cross join lateral (select from_at, marks from directory.past_traits
		where identity_id = i.id and from_at <= $2 order by from_at desc limit $3) p
	where i.id = any($1::uuid[]) and i.identity is not null and i.project_id = $5 and $4 = 0`

// readPasts reads the traits of records around a time, by their ids. A record without any is absent.
func readPasts(
	ctx context.Context, tx querier, project uuid.UUID, ids []uuid.UUID, at time.Time, before, after int,
) (map[uuid.UUID]*recordPast, error) {
	sql := selectTraits
	if before == 1 && after == 0 {
		sql = selectTraitsThen
	}
	rows, err := tx.Query(ctx, sql, ids, at, before, after, project)
	if err != nil {
		return nil, fmt.Errorf("read the traits of a time: %w", err)
	}
	found := make(map[uuid.UUID]*recordPast, len(ids))
	var one recordPast
	var from time.Time
	var marks []byte
	var later bool
	counts := map[uuid.UUID]*[2]int{}
	_, err = pgx.ForEachRow(rows, []any{&one.id, &one.name, (*uint64)(&one.born), &from, &marks, &later}, func() error {
		r := found[one.id]
		if r == nil {
			r = new(one)
			found[one.id], counts[one.id] = r, new([2]int)
		}
		r.traits = append(r.traits, lastPast{one.id, from.UTC(), slices.Clone(marks)})
		counts[one.id][asInt(later)]++
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the traits of a time: %w", err)
	}
	for id, n := range counts {
		found[id].earlier, found[id].later = n[0] == before, n[1] == after
	}
	return found, nil
}

// beginnings sets since when members have belonged to an audience. What a member was listed since stays, unless a rule
// reached it before.
func (q *Queries) beginnings(ctx context.Context, project uuid.UUID, a AudienceHead, list []Member) error {
	if len(list) == 0 {
		return nil
	}
	lines, err := readTimelines(ctx, q.db, project, always, maxPast, a.ID)
	if err != nil {
		return err
	}
	ids := make([]uuid.UUID, len(list))
	for n, m := range list {
		ids[n] = m.id
	}
	pasts, err := readPasts(ctx, q.db, project, ids, always, maxPast, 0)
	if err != nil {
		return err
	}
	for n := range list {
		m := &list[n]
		m.Since, m.Exact, err = lines[a.ID].beginning(ctx, pasts[m.id], a, m.Since, m.Exact)
		if err != nil {
			return err
		}
	}
	return nil
}

// beginning returns since when a record has belonged to the audience that it belongs to now. since and exact are what
// the tables of the present know.
func (t *timeline) beginning(
	ctx context.Context, r *recordPast, a AudienceHead, since time.Time, exact bool,
) (time.Time, bool, error) {
	if r == nil {
		return since, exact, nil
	}
	from := always
	if a.Kind != audience.KindRule {
		from = since
		if d := t.at(since.Add(-time.Microsecond)); d == nil || d.Kind != string(audience.KindRule) {
			return since, exact, nil
		}
	}
	is, err := t.standing(ctx, r, from)
	if err != nil || is != inside { // it changed meanwhile, or is beyond the bounds
		return since, exact, err
	}
	return t.since(ctx, r, from)
}

// PastJudgement is what a judgement as of a time adds.
type PastJudgement struct {
	At time.Time `json:"at"`
	// ErasedAt is set if the identity was erased later: what it was before then is not known any more, and nothing else
	// is set.
	ErasedAt *time.Time `json:"erasedAt,omitempty"`
	// HadRecord reports whether the identity had a record then.
	HadRecord bool `json:"hadRecord"`
	// IsKnown is false beyond the bounds of what is looked at.
	IsKnown bool `json:"isKnown"`
	// Until is when it left the audience since, nil if it did not. UntilKnown is false beyond the bounds.
	Until      *time.Time `json:"until,omitempty"`
	UntilKnown bool       `json:"isUntilKnown"`
	// AudienceRemovedAt is set if the audience was deleted later.
	AudienceRemovedAt *time.Time `json:"audienceRemovedAt,omitempty"`
}

const (
	selectErased   = `select erased_at from directory.heads where project_id = $1 and id = $2 and erased_at > $3`
	selectTraitsAt = `select traits from directory.past_traits where identity_id = $1 and from_at <= $2
		order by from_at desc limit 1`
	selectPrivateTo = `select identity from directory.identities
		where private = $1 and project_id = $2 and identity is not null`
)

// JudgeAt reports whether an identity belonged to an audience at a time, as the matcher of recall decides it of the
// traits, the list and the rule of then.
func (q *Queries) JudgeAt(
	ctx context.Context, project auth.Project, name string, of uuid.UUID, at time.Time,
) (j Judgement, err error) {
	at = pgarray.Instant(at)
	id := stream.IdentityID(project.Namespace, name)
	err = q.judging(ctx, func(ctx context.Context, tx pgx.Tx) error {
		j = Judgement{Past: &PastJudgement{At: at, IsKnown: true, UntilKnown: true}}
		var erased time.Time
		err := tx.QueryRow(ctx, selectErased, project.ID, id, at).Scan(&erased)
		if err == nil {
			j.Past.ErasedAt = new(erased.UTC())
			return nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("look for an erasure: %w", err)
		}
		pasts, err := readPasts(ctx, tx, project.ID, []uuid.UUID{id}, at, maxPast, maxPast)
		if err != nil {
			return err
		}
		r := pasts[id]
		if r == nil {
			r = &recordPast{id: id}
		}
		j.HasRecord = r.at(at) != nil
		j.Past.HadRecord = j.HasRecord
		lines, err := readTimelines(ctx, tx, project.ID, at, maxPast, of)
		if err != nil {
			return err
		}
		if t := lines[of]; len(t.definitions) > 0 {
			return j.past(ctx, tx, project, t, r)
		}
		err = tx.QueryRow(ctx, selectPrivateTo, of, project.ID).Scan(&j.PrivateTo)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("find whose private audience it is: %w", err)
		}
		j.IsMember = j.PrivateTo != "" && j.PrivateTo == name
		return nil
	})
	return j, err
}

// past judges a record for an audience that was defined.
func (j *Judgement) past(
	ctx context.Context, tx pgx.Tx, project auth.Project, t *timeline, r *recordPast,
) (err error) {
	at := j.Past.At
	for _, d := range t.definitions {
		if d.Kind == kindRemoved && d.From.After(at) {
			j.Past.AudienceRemovedAt = &d.From
		}
	}
	d := t.at(at)
	if d == nil || d.Kind == kindRemoved {
		j.Past.IsKnown = d != nil || !t.earlier
		return nil
	}
	j.Audience = &AudienceHead{ID: d.Audience, Slug: d.Slug, Name: d.Slug, Kind: audience.Kind(d.Kind), PutAt: d.From}
	is, err := t.standing(ctx, r, at)
	if err != nil {
		return err
	}
	j.IsMember, j.Past.IsKnown = is == inside, is != unknown
	if j.IsMember {
		if j.Since, j.Exact, err = t.since(ctx, r, at); err != nil {
			return err
		}
		if j.Past.Until, j.Past.UntilKnown, err = t.until(ctx, r, at); err != nil {
			return err
		}
	}
	if d.rule == nil || r.at(at) == nil {
		return nil
	}
	var text string
	if err := tx.QueryRow(ctx, selectTraitsAt, r.id, at).Scan(&text); err != nil {
		return fmt.Errorf("read the traits of a time: %w", err)
	}
	var values map[string]string
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		return fmt.Errorf("decode the traits of a time: %w", err)
	}
	return j.conditions(project.ID, *d.rule, values, r.at(at).Marks)
}
