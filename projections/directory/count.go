package directory

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// adjustCounts computes how the changed identities change the member counts, for all identities of
// a project at once. It leaves out audiences that are recounted.
func (f *fold) adjustCounts(ctx context.Context) error {
	changed := map[uuid.UUID][]*identityState{}
	for _, x := range f.identities {
		if x.changed && (x.before.visible() || x.now.visible()) {
			changed[x.project] = append(changed[x.project], x)
			f.identityDeltas[x.project] += asInt(x.now.visible()) - asInt(x.before.visible())
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
		read := func() (*ruleSet, error) { return readRules(ctx, f.tx, selectRules, id) }
		rules, err := f.projector.rules.load(id, project.before, read)
		if err != nil {
			return err
		}
		if len(rules.rules) > 0 {
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

func (f *fold) adjust(rules *ruleSet, identities []*identityState) {
	t := newTally(rules, 2*len(identities))
	for _, x := range identities {
		if x.before.visible() {
			t.add(x.before.traits.traitKeys, false)
		}
		if x.now.visible() {
			t.add(x.now.traits.traitKeys, true)
		}
	}
	t.flush()
	for n, delta := range t.counts {
		id := rules.rules[n].audience
		if a := f.audiences[id]; delta == 0 || f.removed.has(id) || a != nil && (a.needsRecount || a.compiled == nil) {
			continue
		}
		f.memberDeltas[id] += delta
	}
}

const (
	selectTraitKeys = `select marks from identities where project_id = $1 and identity is not null`
	updateCounts    = `update audiences a set member_count = c.count from unnest($1::uuid[], $2::bigint[]) as c (id,
		count) where a.id = c.id`
	addIdentityDeltas = `update projects p set identities = p.identities + c.count from unnest($1::uuid[],
		$2::bigint[]) as c (id, count) where p.project_id = c.id`
	addMemberDeltas = `update audiences a set member_count = a.member_count + c.count from unnest($1::uuid[],
		$2::bigint[]) as c (id, count) where a.id = c.id`
)

// recount counts the members of the audiences that need it, in one pass over the identities of each
// project.
func (f *fold) recount(ctx context.Context) error {
	of := map[uuid.UUID]*setBuilder{}
	for _, a := range f.audiences {
		if !a.needsRecount {
			continue
		}
		if of[a.project] == nil {
			of[a.project] = newSetBuilder()
		}
		if err := of[a.project].add(a.id, a.compiled); err != nil {
			return fmt.Errorf("read the rule of audience %s: %w", a.id, err)
		}
	}
	var (
		audiences []uuid.UUID
		counts    []int64
	)
	for project, m := range of {
		set := m.build()
		found, err := count(ctx, f.tx, project, set)
		if err != nil {
			return fmt.Errorf("count identities: %w", err)
		}
		for n, r := range set.rules {
			audiences, counts = append(audiences, r.audience), append(counts, found[n])
		}
	}
	if len(audiences) == 0 {
		return nil
	}
	if _, err := f.tx.Exec(ctx, updateCounts, audiences, counts); err != nil {
		return fmt.Errorf("write counts: %w", err)
	}
	return nil
}

// count counts, by rule, the identities of a project that match.
func count(ctx context.Context, tx pgx.Tx, project uuid.UUID, set *ruleSet) ([]int64, error) {
	rows, err := tx.Query(ctx, selectTraitKeys, project)
	if err != nil {
		return nil, err
	}
	var (
		t   = newTally(set, blockStates)
		row pgtype.DriverBytes
	)
	_, err = pgx.ForEachRow(rows, []any{&row}, func() error {
		t.add(traitKeys(row), true)
		return nil
	})
	t.flush()
	return t.counts, err
}
