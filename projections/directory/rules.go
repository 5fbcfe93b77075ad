package directory

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/eventstore"
)

// rule is the rule of an audience.
type rule struct {
	audience uuid.UUID
	rule     audience.Rule
}

// ruleSet are the rules of a project, in the order of their audiences' ids, and the traits that they compare. It is never changed.
type ruleSet struct {
	rules []rule
	names names
}

// reached are the audiences whose rules traits as JSON fulfil.
func (s ruleSet) reached(text string) (reached []uuid.UUID) {
	if len(s.rules) == 0 {
		return nil
	}
	values := s.names.picked(text)
	for _, r := range s.rules {
		if r.rule.Matches(values) {
			reached = append(reached, r.audience)
		}
	}
	return reached
}

func (n names) add(r audience.Rule) {
	for _, c := range r.Conditions {
		n[c.Trait] = struct{}{}
	}
}

// rulesOf are the rules of a project as of a position of its audiences.
type rulesOf struct {
	at  eventstore.Position
	set ruleSet
}

// maxCached is of how many projects the rules are kept.
const maxCached = 256

// ruleCache keeps the rules of projects, each until an audience of the project changes. What stands behind a position of
// the log never changes, so whoever knows the position knows whether the rules are those.
type ruleCache struct {
	mu       sync.Mutex
	projects map[uuid.UUID]rulesOf
}

func newRuleCache() *ruleCache { return &ruleCache{projects: map[uuid.UUID]rulesOf{}} }

func (c *ruleCache) get(project uuid.UUID, at eventstore.Position) (ruleSet, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, ok := c.projects[project]
	return kept.set, ok && kept.at == at
}

func (c *ruleCache) put(project uuid.UUID, at eventstore.Position, set ruleSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, has := c.projects[project]; !has && len(c.projects) >= maxCached {
		for other := range c.projects { // any: whoever is asked for again is read again
			delete(c.projects, other)
			break
		}
	}
	c.projects[project] = rulesOf{at: at, set: set}
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// selectRules is what the projector reads; selectRulesQualified what readers do.
const (
	selectRules          = `select id, rule from audiences where project_id = $1 and rule is not null order by id`
	selectRulesQualified = `select id, rule from directory.audiences where project_id = $1 and rule is not null order by id`
)

// readRules reads the rules of a project.
func readRules(ctx context.Context, db querier, sql string, project uuid.UUID) (ruleSet, error) {
	rows, err := db.Query(ctx, sql, [16]byte(project))
	if err != nil {
		return ruleSet{}, fmt.Errorf("read rules: %w", err)
	}
	set := ruleSet{names: names{}}
	set.rules, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r rule, err error) {
		var text string
		if err := row.Scan((*[16]byte)(&r.audience), &text); err != nil {
			return rule{}, err
		}
		return r, json.Unmarshal([]byte(text), &r.rule)
	})
	if err != nil {
		return ruleSet{}, fmt.Errorf("read rules: %w", err)
	}
	for _, r := range set.rules {
		set.names.add(r.rule)
	}
	return set, nil
}
