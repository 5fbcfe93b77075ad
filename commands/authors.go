package commands

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
)

// authors remembers which authors have a directory record, so that their streams are not read on every send. It remembers only where
// this process alone writes the log: nobody else tells it of a removal.
type authors struct {
	alone bool

	mu       sync.Mutex
	known    map[uuid.UUID]struct{}
	removals uint64
}

// maxAuthors bounds the memory; what is forgotten is read again.
const maxAuthors = 100_000

func newAuthors(alone bool) *authors {
	return &authors{alone: alone, known: make(map[uuid.UUID]struct{})}
}

func (a *authors) has(id uuid.UUID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.known[id]
	return ok
}

// look is what add wants to know of the time before the stream was read.
func (a *authors) look() (removals uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.removals
}

// add remembers a record that was seen, unless one was removed since the look before that.
func (a *authors) add(id uuid.UUID, since uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.alone || a.removals != since {
		return
	}
	makeRoom(a.known, maxAuthors)
	a.known[id] = struct{}{}
}

// forget is called once a record is removed, or may be, and before that is answered.
func (a *authors) forget(id uuid.UUID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.removals++
	delete(a.known, id)
}

// appear makes sure that the author of a send has a directory record. It runs before the append of the send rather than
// behind it: then no crash leaves a send without its author, and nobody needs to look for one.
func (s *Service) appear(ctx context.Context, call Call, author string) error {
	if author == "" {
		return nil
	}
	id := stream.IdentityID(call.Principal.Project.Namespace, author)
	if s.authors.has(id) {
		return nil
	}
	since := s.authors.look()
	if err := s.Log.appearIn(ctx, call, id, author, identity.OriginIngest); err != nil {
		return err
	}
	s.authors.add(id, since)
	return nil
}
