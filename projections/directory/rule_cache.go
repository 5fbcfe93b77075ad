package directory

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/turns"
)

// The bounds of the rules that are kept, in bytes of all projects together and of one: the most that the limits of a project allow
// fits. What does not is read each time.
const (
	maxCachedRules    = 64 << 20
	maxCachedRulesOne = 20 << 20
)

// rulesOf are the rules of a project as of a position of its audiences.
type rulesOf struct {
	at  eventstore.Position
	set *ruleSet
}

// ruleCache keeps the rules of projects, each until an audience of the project changes. What is after a position of the log never
// changes, so the position alone decides whether the rules are those.
type ruleCache struct {
	mu       sync.Mutex
	projects map[uuid.UUID]rulesOf
	bytes    int
	// loads lets one caller of a project read its rules, which the others then find.
	loads turns.Turns[uuid.UUID]
	// reading bounds how many sets are read at once, each of which may be as big as the limits allow.
	reading chan struct{}
}

// maxReading is how many sets of rules are read at once.
const maxReading = 4

func newRuleCache() *ruleCache {
	return &ruleCache{projects: map[uuid.UUID]rulesOf{}, reading: make(chan struct{}, maxReading)}
}

func (c *ruleCache) get(project uuid.UUID, at eventstore.Position) (*ruleSet, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, ok := c.projects[project]
	return kept.set, ok && kept.at == at
}

// put keeps a set. To make room it drops the biggest others: a small set of another project is never dropped for a big one.
func (c *ruleCache) put(project uuid.UUID, at eventstore.Position, set *ruleSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.projects[project]; ok {
		c.drop(project)
	}
	if set.bytes > maxCachedRulesOne {
		return
	}
	c.projects[project] = rulesOf{at: at, set: set}
	c.bytes += cost(set)
	for c.bytes > maxCachedRules {
		biggest, most := uuid.Nil, 0
		for other, kept := range c.projects {
			if n := cost(kept.set); n > most {
				biggest, most = other, n
			}
		}
		c.drop(biggest)
	}
}

// cost is what a kept set counts: also one of no rules takes its place.
func cost(set *ruleSet) int { return set.bytes + 512 }

func (c *ruleCache) drop(project uuid.UUID) {
	c.bytes -= cost(c.projects[project].set)
	delete(c.projects, project)
}

// load is get, and where the rules are not kept, read and put.
func (c *ruleCache) load(project uuid.UUID, at eventstore.Position, read func() (*ruleSet, error)) (*ruleSet, error) {
	if set, ok := c.get(project, at); ok {
		return set, nil
	}
	set, err := read()
	if err == nil {
		c.put(project, at, set)
	}
	return set, err
}

// enter waits until the rules of a project may be read: one set at a time of each project, and a few of all. It must not be called
// with a connection in hand.
func (c *ruleCache) enter(ctx context.Context, project uuid.UUID) (leave func(), err error) {
	release, err := c.loads.Enter(ctx, project)
	if err != nil {
		return nil, err
	}
	select {
	case c.reading <- struct{}{}:
		return func() { <-c.reading; release() }, nil
	case <-ctx.Done():
		release()
		return nil, ctx.Err()
	}
}
