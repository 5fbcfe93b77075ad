package auth

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
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
	// unknown holds until when a key is taken for unknown. A key that is made is forgotten here before it is handed out.
	unknown map[cached]time.Time
	named   map[namedKey]foundNamed
}

type cached struct {
	kind Kind
	hash [32]byte
}

type found struct {
	holder Holder
	until  time.Time
}

type namedKey struct {
	organization uuid.UUID
	slug         string
}

type foundNamed struct {
	named Named
	until time.Time
}

var _ Keys = (*Cache)(nil)

// NewCache makes a cache in front of keys.
func NewCache(keys Keys) *Cache {
	return &Cache{keys: keys, known: map[cached]found{}, unknown: map[cached]time.Time{}, named: map[namedKey]foundNamed{}}
}

// KeyByHash implements Keys. A new key works at once, since Forget comes before it is handed out.
func (c *Cache) KeyByHash(ctx context.Context, kind Kind, hash [32]byte) (Holder, bool, error) {
	key := cached{kind, hash}
	c.mu.Lock()
	changes := c.changes
	f, known := c.known[key]
	until, unknown := c.unknown[key]
	c.mu.Unlock()
	switch {
	case known && time.Now().Before(f.until):
		return f.holder, true, nil
	case unknown && time.Now().Before(until):
		return Holder{}, false, nil
	}
	h, ok, err := c.keys.KeyByHash(ctx, kind, hash)
	if err != nil {
		return h, ok, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// What was read while something changed may be the state before.
	if c.changes != changes {
		return h, ok, nil
	}
	if !ok {
		if len(c.unknown) >= maxCached {
			clear(c.unknown)
		}
		c.unknown[key] = time.Now().Add(cachedFor)
		return h, false, nil
	}
	if len(c.known) >= maxCached {
		clear(c.known)
	}
	c.known[key] = found{h, time.Now().Add(cachedFor)}
	return h, true, nil
}

// ProjectNamed implements Keys. A slug that names nothing is looked up each time.
func (c *Cache) ProjectNamed(ctx context.Context, organizationID uuid.UUID, slug string) (Named, bool, error) {
	key := namedKey{organizationID, slug}
	c.mu.Lock()
	changes := c.changes
	f, known := c.named[key]
	c.mu.Unlock()
	if known && time.Now().Before(f.until) {
		return f.named, true, nil
	}
	n, ok, err := c.keys.ProjectNamed(ctx, organizationID, slug)
	if err != nil || !ok {
		return n, ok, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes == changes {
		if len(c.named) >= maxCached {
			clear(c.named)
		}
		c.named[key] = foundNamed{n, time.Now().Add(cachedFor)}
	}
	return n, true, nil
}

// Forget drops all that is remembered, and what is being looked up at the moment is not remembered.
func (c *Cache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	clear(c.known)
	clear(c.unknown)
	clear(c.named)
}
