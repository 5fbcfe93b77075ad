package directory

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/annals-project/annals/domain/audience"
)

// settle finds out which rules the identities of the page enter or leave. What the page itself put or recomputed is counted anew.
func (g *page) settle(ctx context.Context, tx pgx.Tx) error {
	for _, x := range g.entries {
		if !x.dirty || !x.before.visible() && !x.now.visible() {
			continue
		}
		if same, err := g.unchanged(ctx, x); err != nil {
			return err
		} else if same {
			continue
		}
		project := g.projects[x.project]
		if project == nil {
			return fmt.Errorf("an identity of a project that nothing created: %s", x.project)
		}
		rules, err := g.rulesBefore(ctx, tx, x.project, project)
		if err != nil {
			return err
		}
		for r, by := range map[*record]int64{x.before: -1, x.now: +1} {
			if len(rules.rules) == 0 || !r.visible() {
				continue
			}
			text, err := g.encoded(ctx, r)
			if err != nil {
				return err
			}
			for _, audience := range rules.reached(text) {
				g.deltas[audience] += by
			}
		}
	}
	for id := range g.deltas {
		if a := g.audiences[id]; g.removed.has(id) || a != nil && (a.anew || a.rule == nil) || g.deltas[id] == 0 {
			delete(g.deltas, id)
		}
	}
	return nil
}

// rulesBefore are the rules of a project as they were before the page.
func (g *page) rulesBefore(ctx context.Context, tx pgx.Tx, id uuid.UUID, project *projectRow) (ruleSet, error) {
	if project.before == 0 {
		return ruleSet{}, nil
	}
	cache := g.projector.rules
	if rules, ok := cache.get(id, project.before); ok {
		return rules, nil
	}
	rules, err := readRules(ctx, tx, selectRules, id)
	if err != nil {
		return ruleSet{}, err
	}
	cache.put(id, project.before, rules)
	return rules, nil
}

const (
	selectTraits = `select traits from identities where project_id = $1 and identity is not null`
	updateCounts = `update audiences a set member_count = c.count from unnest($1::uuid[], $2::bigint[]) as c (id, count) where a.id = c.id`
	addCounts    = `update audiences a set member_count = a.member_count + c.count from unnest($1::uuid[], $2::bigint[]) as c (id, count) where a.id = c.id`
)

// recount counts who belongs to the audiences that are to be counted anew, in one pass over the identities of each project.
func (g *page) recount(ctx context.Context, tx pgx.Tx) error {
	of := map[uuid.UUID][]*counted{}
	for _, a := range g.audiences {
		if !a.anew {
			continue
		}
		c := &counted{id: a.id}
		if err := json.Unmarshal([]byte(*a.rule), &c.rule); err != nil {
			return fmt.Errorf("decode the rule of audience %s: %w", a.id, err)
		}
		of[a.project] = append(of[a.project], c)
	}
	var (
		audiences [][16]byte
		counts    []int64
	)
	for project, list := range of {
		rows, err := tx.Query(ctx, selectTraits, [16]byte(project))
		if err != nil {
			return fmt.Errorf("count identities: %w", err)
		}
		if err := count(rows, list); err != nil {
			return fmt.Errorf("count identities: %w", err)
		}
		for _, c := range list {
			audiences, counts = append(audiences, c.id), append(counts, c.members)
		}
	}
	if len(audiences) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, updateCounts, audiences, counts); err != nil {
		return fmt.Errorf("write counts: %w", err)
	}
	return nil
}

// counted is a rule and how many it was found to reach.
type counted struct {
	id      uuid.UUID
	rule    audience.Rule
	members int64
}

func count(rows pgx.Rows, list []*counted) error {
	defer rows.Close()
	compared, values := names{}, map[string]string{}
	for _, c := range list {
		compared.add(c.rule)
	}
	for rows.Next() {
		var text []byte
		if err := rows.Scan((*pgtype.DriverBytes)(&text)); err != nil {
			return err
		}
		clear(values)
		compared.pick(text, values)
		for _, c := range list {
			if c.rule.Matches(values) {
				c.members++
			}
		}
	}
	return rows.Err()
}
