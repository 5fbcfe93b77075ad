package allowance

import (
	"github.com/google/uuid"
)

// Owner is who holds or waits: a project of an organization. A call without a project has the zero one.
type Owner struct{ Organization, Project uuid.UUID }

// Queue is what waits for something that organizations share. It is taken in turn: between the
// organizations, between the projects of one, and in the order of arrival within a project. Its methods are
// called under a lock of the caller.
type Queue[T any] struct {
	most    int
	waiting []*Waiter[T] // in the order of arrival
	// served counts the turns. A new one has its turn after all that wait.
	served        uint64
	organizations map[uuid.UUID]*organization
}

// Waiter is one that waits. Its value belongs to the caller.
type Waiter[T any] struct {
	Value   T
	project *project
}

// Owner returns who waits.
func (w *Waiter[T]) Owner() Owner { return w.project.owner }

// organization and project have an entry while they hold or wait.
type organization struct {
	turn, waiting uint64
	taken         int64
	projects      map[uuid.UUID]*project
}

type project struct {
	owner         Owner
	turn, waiting uint64
	taken         int64
	of            *organization
}

// NewQueue returns a queue of at most most waiters, a quarter of them of one organization.
func NewQueue[T any](most int) *Queue[T] {
	return &Queue[T]{most: most, organizations: map[uuid.UUID]*organization{}}
}

// Len returns how many wait.
func (q *Queue[T]) Len() int { return len(q.waiting) }

// Each calls a function with each waiter.
func (q *Queue[T]) Each(each func(Owner, T)) {
	for _, w := range q.waiting {
		each(w.project.owner, w.Value)
	}
}

// Push adds a waiter. If there are too many, the newest of the project with most of them leaves, of the
// organization or of all: so the many of one project make no other leave. Removed is that one, perhaps the
// new one; nil if there is room for all.
func (q *Queue[T]) Push(o Owner, value T) (w, removed *Waiter[T]) {
	w = &Waiter[T]{Value: value, project: q.project(o)}
	q.waiting = append(q.waiting, w)
	w.project.waiting++
	w.project.of.waiting++
	var among *organization
	switch {
	case w.project.of.waiting > uint64(max(q.most/4, min(q.most, 1))): //nolint:gosec // most is not negative
		among = w.project.of
	case len(q.waiting) > q.most:
		among = w.project.of
		for _, other := range q.organizations {
			if other.waiting > among.waiting {
				among = other
			}
		}
	default:
		return w, nil
	}
	for _, other := range q.waiting {
		switch {
		case other.project.of != among:
		case removed == nil, other.project == removed.project, other.project.waiting > removed.project.waiting,
			other.project.waiting == removed.project.waiting && other == w:
			removed = other
		}
	}
	q.Remove(removed)
	return w, removed
}

// Remove removes a waiter.
func (q *Queue[T]) Remove(w *Waiter[T]) {
	for i, other := range q.waiting {
		if other == w {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			w.project.waiting--
			w.project.of.waiting--
			q.forget(w.project)
			return
		}
	}
}

// Next returns the next of those that fit, nil for none. It stays in the queue until Take or Remove.
func (q *Queue[T]) Next(fits func(Owner, T) bool) *Waiter[T] {
	return q.next(func(w *Waiter[T]) bool { return fits(w.project.owner, w.Value) })
}

func (q *Queue[T]) next(fits func(*Waiter[T]) bool) (first *Waiter[T]) {
	for _, w := range q.waiting {
		if (first == nil || w.project.before(first.project)) && fits(w) {
			first = w
		}
	}
	return first
}

func (p *project) before(o *project) bool {
	if p.of != o.of {
		return p.of.turn < o.of.turn
	}
	return p.turn < o.turn
}

// Take removes a waiter whose turn it is.
func (q *Queue[T]) Take(w *Waiter[T]) {
	q.turn(w.project)
	q.Remove(w)
}

func (q *Queue[T]) turn(p *project) {
	q.served++
	p.turn, p.of.turn = q.served, q.served
}

// project returns the entry of an owner, with its turn at the end if it is new.
func (q *Queue[T]) project(o Owner) *project {
	of := q.organizations[o.Organization]
	if of == nil {
		of = &organization{turn: q.served, projects: map[uuid.UUID]*project{}}
		q.organizations[o.Organization] = of
	}
	p := of.projects[o.Project]
	if p == nil {
		p = &project{owner: o, turn: q.served, of: of}
		of.projects[o.Project] = p
	}
	return p
}

// forget drops the entry of a project that neither holds nor waits.
func (q *Queue[T]) forget(p *project) {
	if p.taken != 0 || p.waiting != 0 {
		return
	}
	if delete(p.of.projects, p.owner.Project); len(p.of.projects) == 0 {
		delete(q.organizations, p.owner.Organization)
	}
}
