package commands

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// authors remembers which authors have a directory record, so that their streams are not read on every send.
type authors struct {
	mu    sync.Mutex
	known map[uuid.UUID]struct{}
}

// maxAuthors bounds the memory; past it the oldest half of nothing in particular is forgotten and read again.
const maxAuthors = 100_000

func newAuthors() *authors { return &authors{known: make(map[uuid.UUID]struct{})} }

func (a *authors) has(id uuid.UUID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.known[id]
	return ok
}

func (a *authors) add(id uuid.UUID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= maxAuthors {
		drop := maxAuthors / 2
		for k := range a.known {
			if drop--; drop < 0 {
				break
			}
			delete(a.known, k)
		}
	}
	a.known[id] = struct{}{}
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
	name := stream.Name(stream.Identity, id)
	_, exists, err := s.Log.Last(ctx, name)
	if err != nil {
		return err
	}
	if !exists {
		appeared := identity.Appeared{ProjectID: call.Principal.Project.ID, Identity: author, Origin: identity.OriginIngest, AppearedAt: call.ReceivedAt}
		// A conflict means that another send of the author was first.
		if _, err := s.Log.Append(ctx, name, eventstore.NoStream, call.meta(uuid.New()), appeared); err != nil && !errors.Is(err, eventstore.ErrConflict) {
			return err
		}
	}
	s.authors.add(id)
	return nil
}
