package commands

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/lru"
)

// authors caches which authors have an identity record, so that a send does not read their streams.
// It caches only if this process is the only writer: it learns of no other process's removals. Other
// processes query the directory (unknownAuthors).
type authors struct {
	alone bool

	mu       sync.Mutex
	known    *lru.Map[uuid.UUID, struct{}]
	removals uint64
}

// maxAuthors bounds the cache. What is evicted is read again.
const maxAuthors = 100_000

func newAuthors(alone bool) *authors {
	return &authors{alone: alone, known: lru.New[uuid.UUID, struct{}](maxAuthors)}
}

func (a *authors) has(id uuid.UUID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.known.Get(id)
	return ok
}

// generation counts removals. A caller reads it before it reads a stream, and passes it to add.
func (a *authors) generation() (removals uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.removals
}

// add caches a record, unless one was removed since the given generation.
func (a *authors) add(id uuid.UUID, since uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.alone && a.removals == since {
		a.known.Add(id, struct{}{})
	}
}

// forget removes a record from the cache. Call it before the removal is answered, even if its
// outcome is unknown.
func (a *authors) forget(id uuid.UUID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.removals++
	a.known.Remove(id)
}

// unknownAuthors returns those of the authors that may have no identity record. Of the others, no removal
// was answered as done: only this process removes what the cache has, and a removal is answered once the
// directory has applied it. A removal that is in progress may follow the send, as it may follow a read.
//
// What the directory has is not cached: it may lag a removal that was answered as not visible yet. A sole
// writer reads the stream of each author once instead.
func (s *Service) unknownAuthors(ctx context.Context, call Call, names ...string) []string {
	var unknown []string
	var ids []uuid.UUID
	for _, name := range names {
		id := stream.IdentityID(call.Principal.Project.Namespace, name)
		if name != "" && !s.authors.has(id) {
			unknown, ids = append(unknown, name), append(ids, id)
		}
	}
	if len(unknown) == 0 || s.authors.alone || s.records == nil {
		return unknown
	}
	recorded, err := s.records.Known(ctx, call.Principal.Project, ids)
	if err != nil {
		s.journal.Logger.WarnContext(ctx, "query of identity records failed, each is read instead", "err", err)
		return unknown
	}
	rest := unknown[:0]
	for i, name := range unknown {
		if _, is := recorded[ids[i]]; !is {
			rest = append(rest, name)
		}
	}
	return rest
}

// ensureIdentity ensures that an author has an identity record. It runs before the append of the
// send, so that no crash leaves a send without its author's record.
func (s *Service) ensureIdentity(ctx context.Context, call Call, author string) error {
	return s.ensureIdentityFrom(ctx, call, author, identity.OriginIngest)
}

// EnsureSignedIn ensures that a person who signed in has an identity record in the project of a call, by the name under
// which the person recalls and sends.
func (s *Service) EnsureSignedIn(ctx context.Context, call Call, name string) error {
	if len(s.unknownAuthors(ctx, call, name)) == 0 {
		return nil
	}
	return s.ensureIdentityFrom(ctx, call, name, identity.OriginLogin)
}

func (s *Service) ensureIdentityFrom(ctx context.Context, call Call, name string, origin identity.Origin) error {
	id := stream.IdentityID(call.Principal.Project.Namespace, name)
	since := s.authors.generation()
	if err := s.journal.ensureIdentityIn(ctx, call, id, name, origin); err != nil {
		return err
	}
	s.authors.add(id, since)
	return nil
}
