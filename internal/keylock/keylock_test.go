package keylock

import (
	"context"
	"errors"
	"sync"
	"testing"
)

func TestLock_OneAtATime(t *testing.T) {
	var (
		all  Map[string]
		wait sync.WaitGroup
		sums = map[string]*int{"a": new(int), "b": new(int)} // unguarded but for the turns: the race detector watches
	)
	const callers, rounds = 8, 100
	for key, sum := range sums {
		for range callers {
			wait.Go(func() {
				for range rounds {
					leave, err := all.Lock(t.Context(), key)
					if err != nil {
						t.Error(err)
						return
					}
					*sum++
					leave()
				}
			})
		}
	}
	wait.Wait()
	for key, sum := range sums {
		if *sum != callers*rounds {
			t.Errorf("%s: %d of %d", key, *sum, callers*rounds)
		}
	}
	if len(all.locks) != 0 {
		t.Errorf("%d keys are kept that nobody works on", len(all.locks))
	}
}

func TestLock_AnotherKey(t *testing.T) {
	var all Map[int]
	for key := range 2 {
		leave, err := all.Lock(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
	}
}

func TestLock_WaiterGivesUp(t *testing.T) {
	var all Map[int]
	leave, err := all.Lock(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := all.Lock(gone, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	leave()
	leave, err = all.Lock(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	if len(all.locks) != 0 {
		t.Error("the key is kept although nobody works on it")
	}
}
