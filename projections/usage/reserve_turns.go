package usage

import (
	"context"
	"sync"

	"github.com/google/uuid"
)

// turns lets one caller of this process at a time work on an organization.
type turns struct {
	mu    *sync.Mutex
	known map[uuid.UUID]*turn
}

type turn struct {
	free    chan struct{} // holds one token while nobody works
	callers int
}

func newTurns() turns { return turns{mu: new(sync.Mutex), known: map[uuid.UUID]*turn{}} }

// enter waits for the turn, or gives up with the context. The leave must be called.
func (t turns) enter(ctx context.Context, id uuid.UUID) (leave func(), err error) {
	t.mu.Lock()
	own, ok := t.known[id]
	if !ok {
		own = &turn{free: make(chan struct{}, 1)}
		own.free <- struct{}{}
		t.known[id] = own
	}
	own.callers++
	t.mu.Unlock()
	forget := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.callers--; own.callers == 0 {
			delete(t.known, id)
		}
	}
	select {
	case <-own.free:
		return func() { own.free <- struct{}{}; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}
