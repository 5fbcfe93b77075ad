package directory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
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
