package identities

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/lru"
)

// Authors caches which authors have an identity record, so that a send does not read their streams.
// It caches only if this process is the only writer: it learns of no other process's removals. Other
// processes query the directory (unknown).
type Authors struct {
	journal *engine.Journal
	records Records
	alone   bool

	mu       sync.Mutex
	known    *lru.Map[uuid.UUID, struct{}]
	removals uint64
}

// maxAuthors bounds the cache. What is evicted is read again.
const maxAuthors = 100_000

func newAuthors(journal *engine.Journal, records Records, alone bool) *Authors {
	return &Authors{
		journal: journal, records: records, alone: alone, known: lru.New[uuid.UUID, struct{}](maxAuthors),
	}
}

func (a *Authors) has(id uuid.UUID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.known.Get(id)
	return ok
}

// generation counts removals. A caller reads it before it reads a stream, and passes it to add.
func (a *Authors) generation() (removals uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.removals
}

// add caches a record, unless one was removed since the given generation.
func (a *Authors) add(id uuid.UUID, since uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.alone && a.removals == since {
		a.known.Add(id, struct{}{})
	}
}

// forget removes a record from the cache. Call it before the removal is answered, even if its
// outcome is unknown.
func (a *Authors) forget(id uuid.UUID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.removals++
	a.known.Remove(id)
}

// Unknown returns those of the authors that may have no identity record. Of the others, no removal
// was answered as done: only this process removes what the cache has, and a removal is answered once the
// directory has applied it. A removal that is in progress may follow the send, as it may follow a read.
//
// What the directory has is not cached: it may lag a removal that was answered as not visible yet. A sole
// writer reads the stream of each author once instead.
func (a *Authors) Unknown(ctx context.Context, call engine.Call, names ...string) []string {
	var unknown []string
	var ids []uuid.UUID
	for _, name := range names {
		id := stream.IdentityID(call.Principal.Project.Namespace, name)
		if name != "" && !a.has(id) {
			unknown, ids = append(unknown, name), append(ids, id)
		}
	}
	if len(unknown) == 0 || a.alone || a.records == nil {
		return unknown
	}
	recorded, err := a.records.Known(ctx, call.Principal.Project, ids)
	if err != nil {
		a.journal.Logger.WarnContext(ctx, "query of identity records failed, each is read instead", "err", err)
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

// Ensure ensures that an author has an identity record. It runs before the append of the
// send, so that no crash leaves a send without its author's record.
func (a *Authors) Ensure(ctx context.Context, call engine.Call, author string) error {
	return a.ensureFrom(ctx, call, author, identity.OriginIngest)
}

// EnsureSignedIn ensures that a person who signed in has an identity record in the project of a call, by the name under
// which the person recalls and sends.
func (s *Service) EnsureSignedIn(ctx context.Context, call engine.Call, name string) error {
	if len(s.Authors.Unknown(ctx, call, name)) == 0 {
		return nil
	}
	return s.Authors.ensureFrom(ctx, call, name, identity.OriginLogin)
}

func (a *Authors) ensureFrom(ctx context.Context, call engine.Call, name string, origin identity.Origin) error {
	id := stream.IdentityID(call.Principal.Project.Namespace, name)
	since := a.generation()
	if err := ensureIdentityIn(ctx, a.journal, call, id, name, origin); err != nil {
		return err
	}
	a.add(id, since)
	return nil
}
