package directory

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/keylock"
)

// The limits of the cache in bytes, for all projects and for one. The largest rules that a project
// may have fit. A larger set is read each time.
const (
	maxCachedRules    = 64 << 20
	maxCachedRulesOne = 20 << 20
)

// cachedRules are the rules of a project as of a position of its audiences.
type cachedRules struct {
	at    eventstore.Position
	rules *audience.Matcher
	// bytes is their size.
	bytes int
}

// cost is the size that they count with. No rules also take some memory.
func (r cachedRules) cost() int { return r.bytes + 512 }

// ruleCache caches the rules of projects until an audience of the project changes. The position of
// the newest change identifies the rules, since the log never changes up to a position.
type ruleCache struct {
	mu       sync.Mutex
	projects map[uuid.UUID]cachedRules
	bytes    int
	// turns limits the concurrent reads of rule sets, each of which may be as large as the limits allow. Others
	// wait for the result of the one that reads those of their project.
	turns
}

// maxTurns is the most callers that have a turn.
const maxTurns = 4

// turns lets one caller of a project work at a time, and a few of all.
type turns struct {
	byProject keylock.Map[uuid.UUID]
	all       chan struct{}
}

func newTurns() turns { return turns{all: make(chan struct{}, maxTurns)} }

func newRuleCache() *ruleCache {
	return &ruleCache{projects: map[uuid.UUID]cachedRules{}, turns: newTurns()}
}

func (c *ruleCache) get(project uuid.UUID, at eventstore.Position) (*audience.Matcher, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cached, ok := c.projects[project]
	return cached.rules, ok && cached.at == at
}

// put caches rules. It evicts the largest first, so that large ones never evict smaller ones.
func (c *ruleCache) put(project uuid.UUID, rules cachedRules) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.projects[project]; ok {
		c.drop(project)
	}
	if rules.bytes > maxCachedRulesOne {
		return
	}
	c.projects[project] = rules
	c.bytes += rules.cost()
	for c.bytes > maxCachedRules {
		biggest, most := uuid.Nil, 0
		for other, cached := range c.projects {
			if n := cached.cost(); n > most {
				biggest, most = other, n
			}
		}
		c.drop(biggest)
	}
}

func (c *ruleCache) drop(project uuid.UUID) {
	c.bytes -= c.projects[project].cost()
	delete(c.projects, project)
}

// load returns cached rules, or reads and caches them.
func (c *ruleCache) load(
	project uuid.UUID, at eventstore.Position, read func() (*audience.Matcher, error),
) (*audience.Matcher, error) {
	if rules, ok := c.get(project, at); ok {
		return rules, nil
	}
	rules, err := read()
	if err == nil {
		c.put(project, cachedRules{at: at, rules: rules, bytes: rules.Bytes()})
	}
	return rules, err
}

// acquire waits until the caller may work for a project. The caller must not hold a connection
// meanwhile, else callers could wait for each other's connections.
func (t *turns) acquire(ctx context.Context, project uuid.UUID) (release func(), err error) {
	unlock, err := t.byProject.Lock(ctx, project)
	if err != nil {
		return nil, err
	}
	select {
	case t.all <- struct{}{}:
		return func() { <-t.all; unlock() }, nil
	case <-ctx.Done():
		unlock()
		return nil, ctx.Err()
	}
}
