package auth

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/lru"
)

// cachedFor is how long a key is remembered, even if nothing changed.
const cachedFor = 10 * time.Second

// maxCached is the most keys in a Cache. A process with more keys than that looks some up again.
const maxCached = 10_000

// Cache remembers the holders of live keys until Forget. Use it only in a process that alone
// applies the changes of keys: that process calls Forget after the change and before the response
// that confirms it.
type Cache struct {
	keys Keys

	mu      sync.Mutex
	changes uint64 // calls of Forget
	known   *lru.Map[cached, found[Holder]]
	// unknown holds the keys that are no one's, apart from the known ones, so that made-up keys evict
	// none of those. A new key is removed here before it is handed out.
	unknown *lru.Map[cached, found[Holder]]
	named   *lru.Map[namedKey, found[Named]]
	agents  *lru.Map[uuid.UUID, found[AgentHolder]]
}

type cached struct {
	kind Kind
	hash [32]byte
}

type namedKey struct {
	organization uuid.UUID
	slug         string
}

// found is what a look-up returned, remembered until a time.
type found[V any] struct {
	value V
	until time.Time
}

var _ Keys = (*Cache)(nil)

// NewCache makes a cache in front of keys.
func NewCache(keys Keys) *Cache {
	return &Cache{
		keys: keys, known: lru.New[cached, found[Holder]](maxCached), unknown: lru.New[cached, found[Holder]](maxCached),
		named: lru.New[namedKey, found[Named]](maxCached), agents: lru.New[uuid.UUID, found[AgentHolder]](maxCached),
	}
}

// KeyByHash implements Keys. A new key works at once, since Forget comes before it is handed out.
func (c *Cache) KeyByHash(ctx context.Context, kind Kind, hash [32]byte) (Holder, bool, error) {
	key := cached{kind, hash}
	holder, known, changes := recalled(c, c.known, key)
	if known {
		return holder, true, nil
	}
	if _, unknown, _ := recalled(c, c.unknown, key); unknown {
		return Holder{}, false, nil
	}
	h, ok, err := c.keys.KeyByHash(ctx, kind, hash)
	if err != nil {
		return h, ok, err
	}
	in := c.known
	if !ok {
		in = c.unknown
	}
	remember(c, in, key, h, changes)
	return h, ok, nil
}

// ProjectNamed implements Keys. A slug that names nothing is looked up each time.
func (c *Cache) ProjectNamed(ctx context.Context, organizationID uuid.UUID, slug string) (Named, bool, error) {
	key := namedKey{organizationID, slug}
	named, known, changes := recalled(c, c.named, key)
	if known {
		return named, true, nil
	}
	n, ok, err := c.keys.ProjectNamed(ctx, organizationID, slug)
	if err == nil && ok {
		remember(c, c.named, key, n, changes)
	}
	return n, ok, err
}

// Agent implements Keys. One that is unknown is looked up each time: only tokens that the service signed name agents.
func (c *Cache) Agent(ctx context.Context, id uuid.UUID) (AgentHolder, bool, error) {
	holder, known, changes := recalled(c, c.agents, id)
	if known {
		return holder, true, nil
	}
	h, ok, err := c.keys.Agent(ctx, id)
	if err == nil && ok {
		remember(c, c.agents, id, h, changes)
	}
	return h, ok, err
}

// recalled returns what is remembered of a key, and how often something changed so far.
func recalled[K comparable, V any](c *Cache, in *lru.Map[K, found[V]], key K) (value V, ok bool, changes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := in.Get(key)
	return f.value, ok && time.Now().Before(f.until), c.changes
}

// remember remembers what was read, unless something changed meanwhile: then it may be the state
// before.
func remember[K comparable, V any](c *Cache, in *lru.Map[K, found[V]], key K, value V, changes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes == changes {
		in.Add(key, found[V]{value, time.Now().Add(cachedFor)})
	}
}

// Forget drops every entry. Results of look-ups in progress are not remembered.
func (c *Cache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.known.Purge()
	c.unknown.Purge()
	c.named.Purge()
	c.agents.Purge()
}

// lookUpTimeout bounds a look-up: a table may be locked by somebody else.
const lookUpTimeout = 10 * time.Second

// failClosed refuses to look keys up while their projection is stopped, and gives a look-up up that takes too long.
type failClosed struct {
	keys    Keys
	stopped func(context.Context) error
}

// FailClosed returns keys that are refused with service-unavailable while stopped returns an error: the projection of
// keys has stopped, and a key could have been revoked since.
func FailClosed(keys Keys, stopped func(context.Context) error) Keys {
	return failClosed{keys, stopped}
}

// KeyByHash implements Keys.
func (k failClosed) KeyByHash(ctx context.Context, kind Kind, hash [32]byte) (Holder, bool, error) {
	if err := k.check(ctx); err != nil {
		return Holder{}, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	return k.keys.KeyByHash(ctx, kind, hash)
}

// ProjectNamed implements Keys.
func (k failClosed) ProjectNamed(ctx context.Context, organizationID uuid.UUID, slug string) (Named, bool, error) {
	if err := k.check(ctx); err != nil {
		return Named{}, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	return k.keys.ProjectNamed(ctx, organizationID, slug)
}

// Agent implements Keys.
func (k failClosed) Agent(ctx context.Context, id uuid.UUID) (AgentHolder, bool, error) {
	if err := k.check(ctx); err != nil {
		return AgentHolder{}, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	return k.keys.Agent(ctx, id)
}

func (k failClosed) check(ctx context.Context) error {
	if k.stopped(ctx) != nil {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "keys cannot be checked; /readyz shows why")
	}
	return nil
}

// Strangers bounds the look-ups of keys that were never found, so that calls with made-up keys
// leave the database to the others. The look-ups are shared in turn between the addresses of peers, so that one
// peer does not use them up. A key that was found once is looked up at once from then on.
type Strangers struct {
	Keys
	lookups *allowance.Allowance

	mu  sync.Mutex
	met *lru.Map[cached, struct{}]
}

var _ Keys = (*Strangers)(nil)

// NewStrangers bounds the look-ups of keys.
func NewStrangers(keys Keys, lookups *allowance.Allowance) *Strangers {
	return &Strangers{Keys: keys, lookups: lookups, met: lru.New[cached, struct{}](maxCached)}
}

// KeyByHash implements Keys. Its error also means that too many unknown keys are being looked up.
func (s *Strangers) KeyByHash(ctx context.Context, kind Kind, hash [32]byte) (Holder, bool, error) {
	key := cached{kind, hash}
	s.mu.Lock()
	_, met := s.met.Get(key)
	s.mu.Unlock()
	if met {
		return s.Keys.KeyByHash(ctx, kind, hash)
	}
	lookup := s.lookups.Open(allowance.Owner{Organization: Peer(ctx)})
	if err := lookup.Reserve(ctx, 1); err != nil {
		return Holder{}, false, err
	}
	defer lookup.Release()
	h, ok, err := s.Keys.KeyByHash(ctx, kind, hash)
	if err == nil && ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.met.Add(key, struct{}{})
	}
	return h, ok, err
}

type peerKey struct{}

// WithPeer returns a context with the address of the caller, for the look-up of its key.
func WithPeer(ctx context.Context, address netip.Addr) context.Context {
	return context.WithValue(ctx, peerKey{}, address)
}

// Peer returns the address that calls as an id.
func Peer(ctx context.Context) uuid.UUID {
	address, _ := ctx.Value(peerKey{}).(netip.Addr)
	if !address.IsValid() {
		return uuid.Nil
	}
	return address.As16()
}
