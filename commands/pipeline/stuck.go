package pipeline

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/work"
)

// stuckPause is the pause between two tries of a stuck deletion.
const stuckPause = time.Minute

// Stuck is a committed deletion whose fan-out cannot be completed, because something that it needs
// cannot be read. What it deletes is served until that is repaired or an operator sets the deletion
// aside.
type Stuck struct {
	work.Operation
	Err error
	// tried is when it was last tried.
	tried time.Time
}

// stuckList holds the stuck deletions, for the loops of a finisher and for readers of its state.
type stuckList struct {
	mu sync.Mutex
	by map[uuid.UUID]Stuck
}

func (l *stuckList) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.by)
}

// isResting reports whether a deletion was tried less than stuckPause ago.
func (l *stuckList) isResting(id uuid.UUID, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, is := l.by[id]
	return is && now.Sub(s.tried) < stuckPause
}

// put records a deletion; first reports that it was not recorded before.
func (l *stuckList) put(s Stuck) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = make(map[uuid.UUID]Stuck)
	}
	_, before := l.by[s.ID]
	l.by[s.ID] = s
	return !before
}

func (l *stuckList) drop(id uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.by, id)
}

// Stuck returns the deletions that cannot be completed, oldest first.
func (f *Finisher) Stuck() []Stuck {
	f.stuck.mu.Lock()
	defer f.stuck.mu.Unlock()
	list := make([]Stuck, 0, len(f.stuck.by))
	for _, s := range f.stuck.by {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Stuck) int { return int(min(max(int64(a.Position)-int64(b.Position), -1), 1)) })
	return list
}

// isSetAside reports whether an operator has set a deletion aside. Such a deletion is not tried and
// blocks nothing.
func (f *Finisher) isSetAside(op work.Operation) bool {
	if op.Category != stream.Deletion || !f.IsSetAside(op.Position) {
		return false
	}
	f.stuck.drop(op.ID)
	return true
}

// attempt resumes a fan-out. It records a deletion that cannot be completed, so that nothing else
// waits for it.
func (f *Finisher) attempt(ctx context.Context, op work.Operation) error {
	err := f.resume(ctx, op)
	switch {
	case op.Category != stream.Deletion:
	case err == nil:
		f.stuck.drop(op.ID)
	case commands.Lasting(err):
		if f.stuck.put(Stuck{Operation: op, Err: err, tried: f.Now()}) {
			f.Logger.ErrorContext(ctx,
				"a deletion cannot be completed, what it deletes is served until it is repaired or set aside",
				"deletion", op.ID, "project", op.ProjectID, "position", op.Position, "err", err)
		}
	}
	return err
}
