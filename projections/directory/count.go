package directory

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// adjustCounts finds out which rules the identities of the page enter or leave, all identities of a project at once. What the page itself
// put or recomputed is counted anew instead.
func (g *page) adjustCounts(ctx context.Context) error {
	changed := map[uuid.UUID][]*entry{}
	for _, x := range g.entries {
		if x.changed && (x.before.visible() || x.now.visible()) {
			changed[x.project] = append(changed[x.project], x)
			g.people[x.project] += one(x.now.visible()) - one(x.before.visible())
		}
	}
	for id, entries := range changed {
		project := g.projects[id]
		if project == nil {
			return fmt.Errorf("an identity of a project that nothing created: %s", id)
		}
		if project.before == 0 {
			continue
		}
		rules, err := g.projector.rules.load(id, project.before, func() (*ruleSet, error) { return readRules(ctx, g.tx, selectRules, id) })
		if err != nil {
			return err
		}
		if len(rules.rules) > 0 {
			g.adjust(rules, entries)
		}
	}
	return nil
}

func one(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

func (g *page) adjust(rules *ruleSet, entries []*entry) {
	t := newTally(rules, 2*len(entries))
	for _, x := range entries {
		if x.before.visible() {
			t.add(x.before.traits.marks, false)
		}
		if x.now.visible() {
			t.add(x.now.traits.marks, true)
		}
	}
	t.flush()
	for n, delta := range t.counts {
		id := rules.rules[n].audience
		if a := g.audiences[id]; delta == 0 || g.removed.has(id) || a != nil && (a.anew || a.compiled == nil) {
			continue
		}
		g.deltas[id] += delta
	}
}

const (
	selectMarks  = `select marks from identities where project_id = $1 and identity is not null`
	updateCounts = `update audiences a set member_count = c.count from unnest($1::uuid[], $2::bigint[]) as c (id, count) where a.id = c.id`
	addPeople    = `update projects p set identities = p.identities + c.count from unnest($1::uuid[], $2::bigint[]) as c (id, count) where p.project_id = c.id`
	addCounts    = `update audiences a set member_count = a.member_count + c.count from unnest($1::uuid[], $2::bigint[]) as c (id, count) where a.id = c.id`
)

// recount counts who belongs to the audiences that are to be counted anew, in one pass over the identities of each project.
func (g *page) recount(ctx context.Context) error {
	of := map[uuid.UUID]*setMaker{}
	for _, a := range g.audiences {
		if !a.anew {
			continue
		}
		if of[a.project] == nil {
			of[a.project] = newSetMaker()
		}
		if err := of[a.project].add(a.id, a.compiled); err != nil {
			return fmt.Errorf("read the rule of audience %s: %w", a.id, err)
		}
	}
	var (
		audiences [][16]byte
		counts    []int64
	)
	for project, m := range of {
		set := m.done()
		found, err := count(ctx, g.tx, project, set)
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
	if _, err := g.tx.Exec(ctx, updateCounts, audiences, counts); err != nil {
		return fmt.Errorf("write counts: %w", err)
	}
	return nil
}

// count counts the identities of a project that each rule reaches.
func count(ctx context.Context, tx pgx.Tx, project uuid.UUID, set *ruleSet) ([]int64, error) {
	rows, err := tx.Query(ctx, selectMarks, [16]byte(project))
	if err != nil {
		return nil, err
	}
	var (
		t   = newTally(set, blockStates)
		row pgtype.DriverBytes
	)
	_, err = pgx.ForEachRow(rows, []any{&row}, func() error {
		t.add(marks(row), true)
		return nil
	})
	t.flush()
	return t.counts, err
}
