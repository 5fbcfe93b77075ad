package directory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/table"
)

// audienceHead is the part of a row of table audiences that a page loads.
type audienceHead struct {
	ID       uuid.UUID           `db:"id"`
	Project  uuid.UUID           `db:"project_id,once"`
	Compiled []byte              `db:"compiled"` // the rule as matched; nil for a fixed audience
	Position eventstore.Position `db:"position"`
}

// audienceRow is a row of table audiences. Unless the audience was put within the page, only its head is set, and the
// fields for a recompute.
type audienceRow struct {
	audienceHead
	Slug         string    `db:"slug"`
	Name         string    `db:"name"`
	Kind         string    `db:"kind"`
	Rule         *string   `db:"rule"`
	CreatedAt    time.Time `db:"created_at"`
	PutAt        time.Time `db:"put_at"`
	RecomputedAt time.Time `db:"recomputed_at"`
	MemberCount  int64     `db:"member_count"`
	Outdated     bool      `db:"outdated"`
	// A put begins a recount.
	Recounting  bool      `db:"recounting"`
	RecountedTo uuid.UUID `db:"recounted_to"`
	Recounted   int64     `db:"recounted"`

	put   bool // put within the page: all fields are set
	dirty bool
	// needsRecount is set if its members must be counted.
	needsRecount bool
}

var (
	audienceHeads = table.NewPart[audienceHead](Name, schema, "audiences")
	// The count of the rule before stays until the recount is done.
	audiences = table.New[audienceRow](Name, schema, "audiences", table.Change{
		Column: "member_count", Value: "case when excluded.rule is null then 0 else audiences.member_count end",
	})
)

// audiencePut creates an audience or replaces its definition. Members of a fixed audience are the
// listed identities with a record at this point of the log: a record that is created later is not a
// member.
func (f *fold) audiencePut(ctx context.Context, at eventstore.Position, e *audience.Put) error {
	project := f.projects[e.ProjectID]
	if project == nil {
		return fmt.Errorf("project %s of an audience was not created", e.ProjectID)
	}
	if a := f.audiences[e.AudienceID]; a != nil && at <= a.Position {
		return nil
	}
	a := &audienceRow{
		audienceHead: audienceHead{ID: e.AudienceID, Project: e.ProjectID, Position: at},
		Slug:         e.Slug, Name: e.Name, Kind: string(e.Kind),
		CreatedAt: pgarray.Instant(e.CreatedAt), PutAt: pgarray.Instant(e.PutAt), RecomputedAt: pgarray.Instant(e.PutAt),
		put: true, dirty: true,
	}
	list, before := members{}, f.members[e.AudienceID]
	if e.Kind == audience.KindRule {
		text, compiled, err := f.ruleOf(ctx, e)
		if err != nil {
			return err
		}
		a.Rule, a.Compiled = &text, compiled
		a.Outdated, a.Recounting, a.needsRecount = true, true, true
		f.defined(at, e, &text, nil)
	} else {
		listed, err := f.membersOf(ctx, e)
		if err != nil {
			return err
		}
		f.defined(at, e, nil, listed)
		for _, id := range listed {
			if !f.hasRecord(id) {
				continue
			}
			one, is := before[id]
			if !is {
				one = member{since: a.PutAt, stays: before == nil && !f.removedRecords.has(id)}
			}
			list[id] = one
		}
	}
	f.audiences[a.ID], f.members[a.ID], project.dirty = a, list, true
	project.RulesAt = max(project.RulesAt, at)
	delete(f.removed, a.ID)
	return nil
}

// hasRecord reports whether an identity has a record at this point of the log.
func (f *fold) hasRecord(id uuid.UUID) bool {
	if x := f.identities[id]; x != nil {
		return x.now != nil
	}
	return f.existing.has(id)
}

// audienceRemoved removes an audience. It ignores an audience that is already removed.
func (f *fold) audienceRemoved(at eventstore.Position, e *audience.Removed) error {
	project := f.projects[e.ProjectID]
	if project == nil {
		return fmt.Errorf("project %s of an audience was not created", e.ProjectID)
	}
	delete(f.audiences, e.AudienceID)
	f.removed.add(e.AudienceID)
	f.members[e.AudienceID] = members{}
	f.undefined(at, e)
	project.RulesAt, project.dirty = max(project.RulesAt, at), true
	return nil
}

// audienceRecomputed marks an audience with a rule for a recount.
func (f *fold) audienceRecomputed(at eventstore.Position, e *audience.Recomputed) {
	a := f.audiences[e.AudienceID]
	if a == nil || at <= a.Position {
		return
	}
	a.RecomputedAt, a.Position, a.dirty = pgarray.Instant(e.RecomputedAt), at, true
	a.needsRecount = a.needsRecount || a.Compiled != nil
}

// ruleOf returns the rule of a put, as the JSON of the API and compiled.
func (f *fold) ruleOf(ctx context.Context, e *audience.Put) (text string, compiled []byte, err error) {
	rule := audience.Rule{}
	switch {
	case e.RuleBlob != nil:
		if err := f.readJSON(ctx, *e.RuleBlob, "rule", &rule); err != nil {
			return "", nil, err
		}
	case e.Rule != nil:
		rule = *e.Rule
	}
	shown := audience.Rule{Match: rule.Match, Conditions: make([]audience.Condition, 0, len(rule.Conditions))}
	for _, c := range rule.Conditions {
		if c.Values == nil {
			c.Values = []string{}
		}
		shown.Conditions = append(shown.Conditions, c)
	}
	if text, err = encode(shown); err != nil {
		return "", nil, fmt.Errorf("encode rule: %w", err)
	}
	return text, audience.Compile(e.ProjectID, rule), nil
}

// membersOf returns the listed members of a put, from the event or from its blob.
func (f *fold) membersOf(ctx context.Context, e *audience.Put) ([]uuid.UUID, error) {
	if e.MembersBlob == nil {
		return e.Members, nil
	}
	if list, ok := f.memberLists[*e.MembersBlob]; ok {
		return list, nil
	}
	list, err := f.readMembers(ctx, *e.MembersBlob)
	if err != nil {
		return nil, err
	}
	f.memberLists[*e.MembersBlob] = list
	return list, nil
}

func (f *fold) readMembers(ctx context.Context, ref blob.Ref) ([]uuid.UUID, error) {
	data, ok, err := f.readBlob(ctx, ref, "members")
	if err != nil || !ok {
		return nil, err
	}
	list := make([]uuid.UUID, 0, len(data)/16)
	for ; len(data) >= 16; data = data[16:] {
		list = append(list, uuid.UUID(data[:16]))
	}
	return list, nil
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// selectRules is for the projector, whose search_path is the schema that it builds;
// selectRulesQualified is for queries.
const (
	selectRules = `select id, compiled from audiences where project_id = $1 and compiled is not null
		order by id`
	selectRulesQualified = `select id, compiled from directory.audiences
		where project_id = $1 and compiled is not null order by id`
)

// readRules reads the rules that a statement selects.
func readRules(ctx context.Context, db querier, sql string, args ...any) (*audience.Matcher, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	var (
		m        audience.Matcher
		id       uuid.UUID
		compiled pgtype.DriverBytes
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &compiled}, func() error { return m.Add(id, compiled) })
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	return &m, nil
}

const (
	addIdentityDeltas = `update projects p set identities = p.identities + c.count from unnest($1::uuid[],
		$2::bigint[]) as c (id, count) where p.project_id = c.id`
	addMemberDeltas = `update audiences a set member_count = a.member_count + c.count from unnest($1::uuid[],
		$2::bigint[]) as c (id, count) where a.id = c.id`
	addRecountDeltas = `update audiences a set recounted = a.recounted + c.count from unnest($1::uuid[],
		$2::bigint[]) as c (id, count) where a.id = c.id`
)

// adjustCounts computes how the changed identities change the member counts, for all identities of
// a project at once.
func (f *fold) adjustCounts(ctx context.Context) error {
	changed := map[uuid.UUID][]*identityState{}
	for _, x := range f.identities {
		if x.changed && (x.before.visible() || x.now.visible()) {
			changed[x.Project] = append(changed[x.Project], x)
			f.identityDeltas[x.Project] += asInt(x.now.visible()) - asInt(x.before.visible())
		}
	}
	for id, identities := range changed {
		project := f.projects[id]
		if project == nil {
			return fmt.Errorf("project %s of an identity was not created", id)
		}
		if project.before == 0 {
			continue
		}
		read := func() (*audience.Matcher, error) { return readRules(ctx, f.tx, selectRules, id) }
		rules, err := f.projector.rules.load(id, project.before, read)
		if err != nil {
			return err
		}
		if len(rules.Audiences()) > 0 {
			f.adjust(rules, identities)
		}
	}
	return nil
}

func asInt(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// adjust computes the changes of the counts of a project. It leaves out the counts that a put makes
// outdated. A recount that runs counts what is after it with the traits of then.
func (f *fold) adjust(rules *audience.Matcher, identities []*identityState) {
	audiences, ran := rules.Audiences(), map[uuid.UUID]bool{} // the identities up to which recounts have counted
	for n, delta := range deltas(rules, identities) {
		id := audiences[n]
		if !f.staysDefined(id) {
			continue
		}
		r, runs := f.recounts[id]
		if delta != 0 && !r.outdated {
			f.memberDeltas[id] += delta
		}
		if runs && r.to != uuid.Nil && !f.restarts(id) {
			ran[r.to] = true
		}
	}
	for to := range ran {
		var counted []*identityState
		for _, x := range identities {
			if bytes.Compare(x.ID[:], to[:]) <= 0 {
				counted = append(counted, x)
			}
		}
		for n, delta := range deltas(rules, counted) {
			id := audiences[n]
			if r := f.recounts[id]; delta != 0 && r.to == to && f.staysDefined(id) && !f.restarts(id) {
				f.recountDeltas[id] += delta
			}
		}
	}
}

// staysDefined reports whether the page neither puts nor removes an audience.
func (f *fold) staysDefined(id uuid.UUID) bool {
	a := f.audiences[id]
	return !f.removed.has(id) && (a == nil || !a.put)
}

// restarts reports whether the page lets the recount of an audience begin again.
func (f *fold) restarts(id uuid.UUID) bool {
	a := f.audiences[id]
	return a != nil && a.needsRecount
}

// deltas returns, by rule, how the changes of identities change the number of its members.
func deltas(rules *audience.Matcher, identities []*identityState) []int64 {
	t := audience.NewTally(rules, 2*len(identities))
	for _, x := range identities {
		if x.before.visible() {
			t.Add(x.before.traits.traitKeys, false)
		}
		if x.now.visible() {
			t.Add(x.now.traits.traitKeys, true)
		}
	}
	return t.Counts()
}

// A recount counts the members of a rule in slices, in the order of the ids of identities. A page that
// changes an identity adjusts what the recount has counted if the identity is before that place, and
// else leaves it to the recount. So the count is right wherever pages and slices meet, and a recount
// that begins again forgets what it had counted.
//
// The recounts of a project that are at the same place move on together: many rules that are put at once
// cost one pass over the identities.
//
// Recall does not use the counts: it matches the rules with the traits of the viewer.

// Recount is the kind of the follow-up that counts the members of an audience, the key.
const Recount = projection.Recount

// noIdentity is where a recount begins.
const noIdentity = `'00000000-0000-0000-0000-000000000000'::uuid`

// maxSliceBytes is about the most bytes of traits that a slice reads, and of rules.
const maxSliceBytes = 4 << 20

const (
	selectRecounts = `select id, recounted_to, outdated from audiences where project_id = any($1::uuid[]) and recounting`
	selectPlace    = `select recounted_to from audiences where id = $1 and recounting`
	// selectTogether selects the rule of an audience, and others whose recounts are at the same place.
	selectTogether = `select id, compiled from (
			select id, compiled, sum(octet_length(compiled)) over (order by id <> $3, id) - octet_length(compiled) as before
			from audiences where project_id = $1 and recounting and recounted_to = $2) found
		where before < $4 order by id`
	// selectSlice leaves out, unread, what is beyond the bytes of a slice.
	selectSlice = `select id, shown, marks from (
			select id, shown, marks, sum(octet_length(marks)) over (order by id) - octet_length(marks) as before from (
				select id, identity is not null as shown, marks from identities
				where project_id = $1 and id > $2 order by id limit $3) found) summed
		where before < $4 order by id`
	moveRecounts = `update audiences a set recounted_to = $3, recounted = a.recounted + c.count
		from unnest($1::uuid[], $2::bigint[]) as c (id, count) where a.id = c.id`
	endRecounts = `update audiences a set member_count = a.recounted + c.count, outdated = false, recounting = false,
			recounted_to = ` + noIdentity + `, recounted = 0
		from unnest($1::uuid[], $2::bigint[]) as c (id, count) where a.id = c.id`
)

// recount is a recount that runs or waits.
type recount struct {
	// to is the last identity that it has counted, uuid.Nil for none.
	to uuid.UUID
	// outdated reports whether the count until its end is of the rule before.
	outdated bool
}

func (f *fold) readRecounts(rows pgx.Rows) error {
	for rows.Next() {
		var id uuid.UUID
		var r recount
		if err := rows.Scan(&id, &r.to, &r.outdated); err != nil {
			return err
		}
		f.recounts[id] = r
	}
	return rows.Err()
}

// followUps returns the recounts that the page asks for.
func (f *fold) followUps() (works []projections.FollowUp) {
	for _, a := range f.audiences {
		if a.needsRecount {
			works = append(works, projections.FollowUp{Kind: Recount, Key: a.ID, Project: a.Project, Position: a.Position})
		}
	}
	return works
}

// Slice implements projections.Following. The recount may have ended with others, or its audience was
// removed or is fixed now.
func (p *Projector) Slice(
	ctx context.Context, tx pgx.Tx, work projections.FollowUp,
) (cursor string, done bool, err error) {
	if work.Kind != Recount {
		return "", false, fmt.Errorf("no rule for follow-up %s", work.Kind)
	}
	var after uuid.UUID
	err = tx.QueryRow(ctx, selectPlace, work.Key).Scan(&after)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", true, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read a recount: %w", err)
	}
	rules, err := readRules(ctx, tx, selectTogether, work.Project, after, work.Key, maxSliceBytes)
	if err != nil {
		return "", false, err
	}
	s, err := p.countSlice(ctx, tx, work.Project, after, rules)
	if err != nil {
		return "", false, fmt.Errorf("count identities: %w", err)
	}
	audiences := rules.Audiences()
	if s.rows < p.slice && s.bytes < p.sliceBytes {
		_, err = tx.Exec(ctx, endRecounts, audiences, s.members)
		return "", true, err
	}
	_, err = tx.Exec(ctx, moveRecounts, audiences, s.members, s.last)
	return s.last.String(), false, err
}

// slice is what a slice counted: the members by rule among its rows.
type slice struct {
	rows, bytes int
	last        uuid.UUID
	members     []int64
}

// countSlice counts the members of rules among the next identities of a project.
func (p *Projector) countSlice(
	ctx context.Context, tx pgx.Tx, project, after uuid.UUID, rules *audience.Matcher,
) (s slice, err error) {
	rows, err := tx.Query(ctx, selectSlice, project, after, p.slice, p.sliceBytes)
	if err != nil {
		return s, err
	}
	var (
		t     = audience.NewTally(rules, p.slice)
		shown bool
		keys  pgtype.DriverBytes
	)
	_, err = pgx.ForEachRow(rows, []any{&s.last, &shown, &keys}, func() error {
		s.rows++
		s.bytes += len(keys)
		if shown {
			t.Add(audience.TraitKeys(keys), true)
		}
		return nil
	})
	s.members = t.Counts()
	return s, err
}
