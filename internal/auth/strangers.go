package auth

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/annals-project/annals/internal/lru"
)

const (
	// strangerLookups is how many keys that were never found are looked up at once.
	strangerLookups = 2
	// strangerWait is how long such a look-up waits for its turn before the call is refused.
	strangerWait = 2 * time.Second
)

// Strangers bounds the look-ups of keys that were never found, so that calls with made-up keys
// leave the database to the others. A key that was found once is looked up at once from then on.
type Strangers struct {
	Keys
	lookups *semaphore.Weighted

	mu  sync.Mutex
	met *lru.Map[cached, struct{}]
}

var _ Keys = (*Strangers)(nil)

// NewStrangers bounds the look-ups of keys.
func NewStrangers(keys Keys) *Strangers {
	lookups := semaphore.NewWeighted(strangerLookups)
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
	waiting, cancel := context.WithTimeout(ctx, strangerWait)
	defer cancel()
	if err := s.lookups.Acquire(waiting, 1); err != nil {
		return Holder{}, false, fmt.Errorf("wait for the look-up of a key: %w", err)
	}
	defer s.lookups.Release(1)
	h, ok, err := s.Keys.KeyByHash(ctx, kind, hash)
	if err == nil && ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.met.Add(key, struct{}{})
	}
	return h, ok, err
}
