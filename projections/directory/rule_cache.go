package directory

import (
	"context"
	"sync"

	"github.com/google/uuid"

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
	at  eventstore.Position
	set *ruleSet
}

// ruleCache caches the rules of projects until an audience of the project changes. The position of
// the newest change identifies the rules, since the log never changes up to a position.
type ruleCache struct {
	mu       sync.Mutex
	projects map[uuid.UUID]cachedRules
	bytes    int
	// loads lets one caller read the rules of a project while others wait for the result.
	loads keylock.Map[uuid.UUID]
	// reading limits the concurrent reads of rule sets, each of which may be as large as the limits
	// allow.
	reading chan struct{}
}

// maxReading is the most concurrent reads of rule sets.
const maxReading = 4

func newRuleCache() *ruleCache {
	return &ruleCache{projects: map[uuid.UUID]cachedRules{}, reading: make(chan struct{}, maxReading)}
}

func (c *ruleCache) get(project uuid.UUID, at eventstore.Position) (*ruleSet, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cached, ok := c.projects[project]
	return cached.set, ok && cached.at == at
}

// put caches a set. It evicts the largest sets first, so a large set never evicts a smaller one.
func (c *ruleCache) put(project uuid.UUID, at eventstore.Position, set *ruleSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.projects[project]; ok {
		c.drop(project)
	}
	if set.bytes > maxCachedRulesOne {
		return
	}
	c.projects[project] = cachedRules{at: at, set: set}
	c.bytes += cost(set)
	for c.bytes > maxCachedRules {
		biggest, most := uuid.Nil, 0
		for other, cached := range c.projects {
			if n := cost(cached.set); n > most {
				biggest, most = other, n
			}
		}
		c.drop(biggest)
	}
}

// cost is the size that a set counts with. An empty set also takes some memory.
func cost(set *ruleSet) int { return set.bytes + 512 }

func (c *ruleCache) drop(project uuid.UUID) {
	c.bytes -= cost(c.projects[project].set)
	delete(c.projects, project)
}

// load returns cached rules, or reads and caches them.
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

// acquire waits until the caller may read the rules of a project: one caller for each project, and
// a few of all. The caller must not hold a connection meanwhile, else readers could wait for each
// other's connections.
func (c *ruleCache) acquire(ctx context.Context, project uuid.UUID) (release func(), err error) {
	unlock, err := c.loads.Lock(ctx, project)
	if err != nil {
		return nil, err
	}
	select {
	case c.reading <- struct{}{}:
		return func() { <-c.reading; unlock() }, nil
	case <-ctx.Done():
		unlock()
		return nil, ctx.Err()
	}
}
