package pipeline

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/work"
)

const (
	// stuckPause is the pause between two tries of a stuck deletion, and the first one between two tries
	// of another stuck fan-out. That pause doubles up to longestStuckPause.
	stuckPause        = time.Minute
	longestStuckPause = time.Hour
)

// Stuck is a committed operation whose fan-out cannot be completed, because something that it needs
// cannot be read or the program panics. What a stuck deletion deletes is served until that is repaired
// or an operator sets the deletion aside.
type Stuck struct {
	work.Operation
	Err error
	// tried is when it was last tried; pause is the time until it is tried again.
	tried time.Time
	pause time.Duration
}

// stuckList holds stuck operations, for the loops of a finisher and for readers of its state.
type stuckList struct {
	mu sync.Mutex
	by map[uuid.UUID]Stuck
}

func (l *stuckList) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.by)
}

// isResting reports whether the pause after the last try of an operation has not ended.
func (l *stuckList) isResting(id uuid.UUID, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, is := l.by[id]
	return is && now.Sub(s.tried) < s.pause
}

// put records a try of an operation; first reports that it was not recorded before.
func (l *stuckList) put(s Stuck) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = make(map[uuid.UUID]Stuck)
	}
	last, before := l.by[s.ID]
	if s.pause = stuckPause; before && s.Category != stream.Deletion {
		s.pause = min(2*last.pause, longestStuckPause)
	}
	l.by[s.ID] = s
	return !before
}

func (l *stuckList) drop(id uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.by, id)
}

// retain drops the operations that are not among the pending ones: another process completed them.
func (l *stuckList) retain(pending map[uuid.UUID]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.by, func(id uuid.UUID, _ Stuck) bool { return !pending[id] })
}

// StuckFanOuts counts the batches and bulk writes that cannot be completed.
func (f *Finisher) StuckFanOuts() int {
	return f.stuck.count() - len(f.Stuck()) + f.stuckBulks.count()
}

// Stuck returns the deletions that cannot be completed, oldest first.
func (f *Finisher) Stuck() []Stuck {
	f.stuck.mu.Lock()
	defer f.stuck.mu.Unlock()
	list := make([]Stuck, 0, len(f.stuck.by))
	for _, s := range f.stuck.by {
		if s.Category == stream.Deletion {
			list = append(list, s)
		}
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

// attempt resumes a fan-out. It records one that cannot be completed, so that nothing else waits for
// it.
func (f *Finisher) attempt(ctx context.Context, op work.Operation) error {
	err := f.resume(ctx, op)
	f.record(ctx, &f.stuck, op, err)
	return err
}

// record records the outcome of a try in a list, and logs an operation that is new there.
func (f *Finisher) record(ctx context.Context, list *stuckList, op work.Operation, err error) {
	if err == nil {
		list.drop(op.ID)
	}
	if !commands.Lasting(err) || !list.put(Stuck{Operation: op, Err: err, tried: f.Now()}) {
		return
	}
	message := "a fan-out cannot be completed, will retry with growing pauses"
	if op.Category == stream.Deletion {
		message = "a deletion cannot be completed, what it deletes is served until it is repaired or set aside"
	}
	f.Logger.ErrorContext(ctx, message, //nolint:sloglint // one of two constants
		op.Category, op.ID, "project", op.ProjectID, "position", op.Position, "err", err)
}
