package auth

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
		s := NewStrangers(table)
		if _, ok, err := s.KeyByHash(t.Context(), ProjectKey, table.known); !ok || err != nil {
			t.Fatalf("%t, %v", ok, err)
		}
		var calls sync.WaitGroup
		for i := range uint64(100) {
			calls.Go(func() {
				var hash [32]byte
				binary.BigEndian.PutUint64(hash[:], i)
				if _, ok, err := s.KeyByHash(t.Context(), ProjectKey, hash); ok || err != nil {
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

func TestStrangers_WaitTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slowTable{release: make(chan struct{})}
		table.known[0] = 1
		s := NewStrangers(table)
		var calls sync.WaitGroup
		for i := range byte(strangerLookups) {
			calls.Go(func() { _, _, _ = s.KeyByHash(t.Context(), ProjectKey, [32]byte{9, i}) })
		}
		synctest.Wait()
		if _, ok, err := s.KeyByHash(t.Context(), ProjectKey, table.known); ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%t, %v, want a refusal", ok, err)
		}
		close(table.release)
		calls.Wait()
		if _, ok, err := s.KeyByHash(t.Context(), ProjectKey, table.known); !ok || err != nil {
			t.Errorf("a known key afterwards: %t, %v", ok, err)
		}
	})
}
