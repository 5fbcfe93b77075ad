package auth

import (
	"context"
	"net/netip"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/lru"
)

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
