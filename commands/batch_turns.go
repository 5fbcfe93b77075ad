package commands

import (
	"context"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// turns bounds how many parts of batches are appended at once. Projects get turns one after the other, so
// that the import of one does not hold up the batch of another. The calls bound how many wait.
type turns struct {
	mu   sync.Mutex
	free int
	// projects are those with waiting batches, the next one first. waiting are the batches of each, the
	// next one first; a turn closes the channel.
	projects []uuid.UUID
	waiting  map[uuid.UUID][]chan struct{}
}

// take waits for a turn. It returns false if the context ends first. The caller must call end otherwise.
func (t *turns) take(ctx context.Context, project uuid.UUID) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	if t.waiting[project] == nil {
		t.projects = append(t.projects, project)
	}
	t.waiting[project] = append(t.waiting[project], turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.Index(t.waiting[project], turn)
	if at < 0 { // the turn came meanwhile
		return true
	}
	if t.waiting[project] = slices.Delete(t.waiting[project], at, at+1); len(t.waiting[project]) == 0 {
		delete(t.waiting, project)
		t.projects = slices.DeleteFunc(t.projects, func(id uuid.UUID) bool { return id == project })
	}
	return false
}

// end gives the turn to the next project.
func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.projects) == 0 {
		t.free++
		return
	}
	project := t.projects[0]
	t.projects = t.projects[1:]
	next := t.waiting[project]
	close(next[0])
	if len(next) == 1 {
		delete(t.waiting, project)
		return
	}
	t.waiting[project] = next[1:]
	t.projects = append(t.projects, project)
}
