package auth

import (
	"context"
	"encoding/binary"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annals-project/annals/internal/allowance"
)

// slowTable returns each look-up when the test releases it, except that of one key.
type slowTable struct {
	Keys
	known   [32]byte
	release chan struct{}
	asking  atomic.Int64
}

func (s *slowTable) KeyByHash(_ context.Context, _ Kind, hash [32]byte) (Holder, bool, error) {
	if hash == s.known {
		return Holder{Principal: Principal{Kind: ProjectKey}}, true, nil
	}
	s.asking.Add(1)
	<-s.release
	return Holder{}, false, nil
}

func TestStrangers_MadeUpKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slowTable{known: [32]byte{255}, release: make(chan struct{})}
		s := NewStrangers(table, lookups())
		if _, ok, err := s.KeyByHash(t.Context(), ProjectKey, table.known); !ok || err != nil {
			t.Fatalf("%t, %v", ok, err)
		}
		var calls sync.WaitGroup
		for i := range uint64(100) {
			from := WithPeer(t.Context(), netip.AddrFrom4([4]byte{10, 0, 0, byte(i % 4)}))
			calls.Go(func() {
				var hash [32]byte
				binary.BigEndian.PutUint64(hash[:], i)
				if _, ok, err := s.KeyByHash(from, ProjectKey, hash); ok || err != nil {
					t.Errorf("a made-up key: %t, %v", ok, err)
				}
			})
		}
		synctest.Wait()
		if n := table.asking.Load(); n != strangerLookups {
			t.Errorf("%d look-ups at once, want %d", n, strangerLookups)
		}
		if _, ok, err := s.KeyByHash(t.Context(), ProjectKey, table.known); !ok || err != nil {
			t.Errorf("a key that was found before: %t, %v", ok, err)
		}
		for range strangerLookups {
			table.release <- struct{}{}
		}
		synctest.Wait()
		if n := table.asking.Load(); n != 2*strangerLookups {
			t.Errorf("%d look-ups, want the next ones", n)
		}
		close(table.release)
		calls.Wait()
		if _, ok, err := s.KeyByHash(t.Context(), ManagementKey, table.known); !ok || err != nil {
			t.Errorf("%t, %v", ok, err)
		}
	})
}

// lookups are those of package admission, which imports this one.
func lookups() *allowance.Allowance {
	return allowance.New(allowance.Config{
		Total: strangerLookups, Share: 1, Wait: 2 * time.Second, Waiters: 256, Refusal: "too many",
	})
}

const strangerLookups = 2

// A peer that floods the service with made-up keys holds one look-up, and few places of those that wait: the first use
// of a new key from elsewhere is looked up at once.
func TestStrangers_FloodOfOnePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slowTable{release: make(chan struct{}), known: [32]byte{255}}
		s := NewStrangers(table, lookups())
		flood := WithPeer(t.Context(), netip.MustParseAddr("192.0.2.1"))
		var calls sync.WaitGroup
		var refused atomic.Int64
		for i := range uint64(1000) {
			calls.Go(func() {
				var hash [32]byte
				binary.BigEndian.PutUint64(hash[:], i)
				if _, _, err := s.KeyByHash(flood, ProjectKey, hash); err != nil {
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := table.asking.Load(); n != 1 || refused.Load() != 1000-1-256/4 {
			t.Errorf("%d look-ups at once and %d refusals", n, refused.Load())
		}
		other := WithPeer(t.Context(), netip.MustParseAddr("192.0.2.2"))
		if _, ok, err := s.KeyByHash(other, ProjectKey, table.known); !ok || err != nil {
			t.Errorf("a new key of another peer: %t, %v", ok, err)
		}
		if _, ok, err := s.KeyByHash(flood, ProjectKey, table.known); !ok || err != nil {
			t.Errorf("it is known from then on: %t, %v", ok, err)
		}
		close(table.release)
		calls.Wait()
	})
}

func TestStrangers_WaitTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slowTable{release: make(chan struct{})}
		table.known[0] = 1
		s := NewStrangers(table, lookups())
		var calls sync.WaitGroup
		calls.Go(func() { _, _, _ = s.KeyByHash(t.Context(), ProjectKey, [32]byte{9}) })
		synctest.Wait()
		if _, ok, err := s.KeyByHash(t.Context(), ProjectKey, table.known); ok || err == nil ||
			!strings.Contains(err.Error(), "too many") {
			t.Errorf("%t, %v, want a refusal", ok, err)
		}
		close(table.release)
		calls.Wait()
		if _, ok, err := s.KeyByHash(t.Context(), ProjectKey, table.known); !ok || err != nil {
			t.Errorf("a known key afterwards: %t, %v", ok, err)
		}
	})
}
