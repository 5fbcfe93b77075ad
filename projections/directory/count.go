package directory

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/internal/rawjson"
)

// settle finds out which rules the identities of the page enter or leave. What the page itself put or recomputed is counted anew.
func (g *page) settle(ctx context.Context, tx pgx.Tx) error {
	for _, x := range g.entries {
		if !x.dirty || x.before == x.now || !x.before.visible() && !x.now.visible() {
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
		if len(rules) == 0 {
			continue
		}
		var before, now map[string]string
		if x.before.visible() {
			if before, err = g.values(ctx, x.before); err != nil {
				return err
			}
		}
		if x.now.visible() {
			if now, err = g.values(ctx, x.now); err != nil {
				return err
			}
		}
		for _, r := range rules {
			was, is := x.before.visible() && r.rule.Matches(before), x.now.visible() && r.rule.Matches(now)
			if was && !is {
				g.deltas[r.audience]--
			}
			if is && !was {
				g.deltas[r.audience]++
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
func (g *page) rulesBefore(ctx context.Context, tx pgx.Tx, id uuid.UUID, project *projectRow) ([]rule, error) {
	if project.before == 0 {
		return nil, nil
	}
	cache := g.projector.rules
	if rules, ok := cache.get(id, project.before); ok {
		return rules, nil
	}
	rules, err := readRules(ctx, tx, selectRules, id)
	if err != nil {
		return nil, err
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

// picked is of how many traits the values are picked from the text of all. For more of them all are decoded.
const picked = 8

func count(rows pgx.Rows, list []*counted) error {
	defer rows.Close()
	named := map[string]struct{}{}
	for _, c := range list {
		for _, condition := range c.rule.Conditions {
			named[condition.Trait] = struct{}{}
		}
	}
	var names []string
	for name := range named {
		names = append(names, name)
	}
	values := map[string]string{}
	for rows.Next() {
		var text []byte
		if err := rows.Scan((*pgtype.DriverBytes)(&text)); err != nil {
			return err
		}
		clear(values)
		if len(names) > picked {
			if err := json.Unmarshal(text, &values); err != nil {
				return err
			}
		} else {
			members, _ := rawjson.Members(text, names...)
			for name, value := range members {
				values[name], _ = rawjson.Text(value)
			}
		}
		for _, c := range list {
			if c.rule.Matches(values) {
				c.members++
			}
		}
	}
	return rows.Err()
}
