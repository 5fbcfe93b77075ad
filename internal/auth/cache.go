package auth

import (
	"context"
	"sync"
	"time"
)

// cachedFor is how long a key is remembered, however sure it is that nothing changed.
const cachedFor = 10 * time.Second

// maxCached bounds the memory of a Cache; a process that is asked for more keys than that looks some up again.
const maxCached = 10_000

// Cache remembers who live keys belong to until it is told that something changed. It is for a process that alone applies
// what changes a key, and so can tell: Forget comes between the change and the answer that promises it.
type Cache struct {
	keys Keys

	mu      sync.Mutex
	changes uint64 // how often it was told to forget
	known   map[cached]found
}

type cached struct {
	kind Kind
	hash [32]byte
}

type found struct {
	principal Principal
	archived  bool
	until     time.Time
}

var _ Keys = (*Cache)(nil)

// NewCache makes a cache in front of keys.
func NewCache(keys Keys) *Cache { return &Cache{keys: keys, known: map[cached]found{}} }

// KeyByHash implements Keys. What is unknown is looked up each time, so a new key works at once.
func (c *Cache) KeyByHash(ctx context.Context, kind Kind, hash [32]byte) (p Principal, archived bool, ok bool, err error) {
	key := cached{kind, hash}
	c.mu.Lock()
	changes := c.changes
	f, known := c.known[key]
	c.mu.Unlock()
	if known && time.Now().Before(f.until) {
		return f.principal, f.archived, true, nil
	}
	p, archived, ok, err = c.keys.KeyByHash(ctx, kind, hash)
	if err != nil || !ok {
		return p, archived, ok, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// What was read while something changed may be the state before.
	if c.changes == changes {
		if len(c.known) >= maxCached {
			clear(c.known)
		}
		c.known[key] = found{p, archived, time.Now().Add(cachedFor)}
	}
	return p, archived, true, nil
}

// Forget drops all that is remembered, and what is being looked up at the moment is not remembered.
func (c *Cache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	clear(c.known)
}
