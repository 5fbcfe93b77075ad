package continuity_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/continuity"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
)

// hangLimit bounds a test that hangs.
const hangLimit = 5 * time.Minute

// server is an event store whose content can be put back from a copy.
type server struct {
	*testing.T
	ctx context.Context

	mu     sync.Mutex
	memory *eventstoretest.Memory
	// reads counts the reads of the head and of positions.
	reads atomic.Int64
	// end is the end that reads show, 0 for that of the log. noEvent is a position that was never one.
	end, noEvent atomic.Uint64
}

func newServer(t *testing.T) *server {
	ctx, cancel := context.WithTimeout(t.Context(), hangLimit)
	t.Cleanup(cancel)
	return &server{T: t, ctx: ctx, memory: eventstoretest.NewMemory()}
}

func (s *server) now() *eventstoretest.Memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory
}

// putBack replaces the content. The subscriptions end, as with the server.
func (s *server) putBack(content *eventstoretest.Memory) {
	s.mu.Lock()
	before := s.memory
	s.memory = content
	s.mu.Unlock()
	before.DropSubscriptions()
}

// store is what clients see.
func (s *server) store() eventstore.Store { return served{s.memory, s} }

// add appends events in streams of their own to a store, one by one.
func (s *server) add(store eventstore.Store, n int) (last eventstore.Appended) {
	s.Helper()
	for range n {
		var err error
		if last, err = store.Append(s.ctx, "thing-"+uuid.NewString(), eventstore.NoStream, proposed()); err != nil {
			s.Fatal(err)
		}
	}
	return last
}

func proposed() []eventstore.Proposed {
	return []eventstore.Proposed{{ID: uuid.New(), Type: "thing.counted.v1", Data: []byte(`{}`)}}
}

// served sends each call to the content of the server at the time.
type served struct {
	eventstore.Store
	server *server
}

func (s served) Append(
	ctx context.Context, stream string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	return s.server.now().Append(ctx, stream, expected, events)
}

func (s served) Tombstone(
	ctx context.Context, stream string, expected eventstore.Revision,
) (eventstore.Position, error) {
	return s.server.now().Tombstone(ctx, stream, expected)
}

func (s served) ReadAll(
	ctx context.Context, after eventstore.Position, limit int,
) ([]eventstore.Recorded, error) {
	return s.server.now().ReadAll(ctx, after, limit)
}

func (s served) ReadAt(ctx context.Context, at eventstore.Position) (eventstore.Recorded, bool, error) {
	s.server.reads.Add(1)
	if uint64(at) == s.server.noEvent.Load() {
		return eventstore.Recorded{}, false, eventstore.ErrNoEvent
	}
	return s.server.now().ReadAt(ctx, at)
}

func (s served) Head(ctx context.Context) (eventstore.Position, error) {
	s.server.reads.Add(1)
	if end := s.server.end.Load(); end > 0 {
		return eventstore.Position(end), nil
	}
	return s.server.now().Head(ctx)
}

func (s served) Subscribe(ctx context.Context, after eventstore.Position) (eventstore.Subscription, error) {
	return s.server.now().Subscribe(ctx, after)
}

func (s *server) client(patience time.Duration) *continuity.Store {
	return continuity.New(s.store(), patience, slog.New(slog.NewTextHandler(s.Output(), nil)))
}

// follow receives the log after a position up to another one.
func (s *server) follow(c *continuity.Store, after, to eventstore.Position) eventstore.Subscription {
	s.Helper()
	sub, err := c.Subscribe(s.ctx, after)
	runtest.Must(s, err)
	for after < to {
		r, err := sub.Next(s.ctx)
		runtest.Must(s, err)
		after = r.Position
	}
	return sub
}

// wantOlder wants the error of a log that ends or went on at head without what was applied.
func (s *server) wantOlder(err error, head, applied eventstore.Position) {
	s.Helper()
	older, is := errors.AsType[*eventstore.OlderCopyError](err)
	if !is || *older != (eventstore.OlderCopyError{Head: head, Applied: applied}) {
		s.Errorf("got %v, want an older copy at %d that lacks %d", err, head, applied)
	}
	for _, end := range []eventstore.Position{head, applied} {
		if is && !strings.Contains(older.Error(), fmt.Sprint(end)) {
			s.Errorf("%q does not name %d", older, end)
		}
	}
}

// wantStopped wants every call that writes or follows the log to fail.
func (s *server) wantStopped(c *continuity.Store) {
	s.Helper()
	before, err := s.now().Head(s.ctx)
	runtest.Must(s, err)
	for name, call := range map[string]func() error{
		"append": func() error {
			_, err := c.Append(s.ctx, "thing-after", eventstore.NoStream, proposed())
			return err
		},
		"delete":    func() error { _, err := c.Delete(s.ctx, "thing-after", eventstore.NoStream); return err },
		"tombstone": func() error { _, err := c.Tombstone(s.ctx, "thing-after", eventstore.NoStream); return err },
		"truncate":  func() error { return c.Truncate(s.ctx, "thing-after", 0) },
		"read":      func() error { _, err := c.ReadAll(s.ctx, 0, 1); return err },
		"head":      func() error { _, err := c.Head(s.ctx); return err },
		"subscribe": func() error { _, err := c.Subscribe(s.ctx, 0); return err },
		"check":     func() error { return c.Check(s.ctx) },
		"err":       c.Err,
	} {
		err := call()
		if _, older := errors.AsType[*eventstore.OlderCopyError](err); !older || errors.Is(err, eventstore.ErrUnknown) {
			s.Errorf("%s after the log went back: %v", name, err)
		}
	}
	if after, err := s.now().Head(s.ctx); err != nil || after != before {
		s.Errorf("something was written after the log went back: %d, then %d, %v", before, after, err)
	}
}

// A copy that is shorter, and one that has received as many other events.
func TestStore_PutBack(t *testing.T) {
	for name, others := range map[string]int{"shorter": 0, "shorter, with others": 10, "longer, with others": 60} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			c := s.client(0)
			s.add(c, 20)
			older := s.now().Copy()
			newest := s.add(c, 30).Position
			sub := s.follow(c, 0, newest)
			s.add(older, others)
			s.putBack(older)
			head, err := older.Head(s.ctx)
			runtest.Must(t, err)
			if _, err := sub.Next(s.ctx); err == nil {
				t.Fatal("the subscription goes on")
			}
			_, err = c.Append(s.ctx, "thing-new", eventstore.NoStream, proposed())
			s.wantOlder(err, head, newest)
			s.wantStopped(c)
		})
	}
}

// A process that follows nothing notices with its next append, whose answer has a position that the log had before.
func TestStore_AnswerBelowTheNewestPosition(t *testing.T) {
	s := newServer(t)
	c := s.client(0)
	s.add(c, 20)
	older := s.now().Copy()
	newest := s.add(c, 30).Position
	s.putBack(older)
	_, err := c.Append(s.ctx, "thing-new", eventstore.NoStream, proposed())
	head, _ := older.Head(s.ctx)
	s.wantOlder(err, head, newest)
	s.wantStopped(c)
}

// An append to a copy that others have made longer is answered before it is noticed. What it appended does not hide
// that the copy lacks what was applied.
func TestStore_AnswerAboveTheNewestPosition(t *testing.T) {
	s := newServer(t)
	c := s.client(0)
	older := s.now().Copy()
	newest := s.add(c, 30).Position
	s.follow(c, 0, newest)
	s.add(older, 60)
	s.putBack(older)
	at := s.add(c, 1).Position
	_, err := c.Subscribe(s.ctx, newest)
	s.wantOlder(err, at, newest)
	s.wantStopped(c)
}

// A process that has just begun knows what the projections of others have applied.
func TestStore_AppliedByOthers(t *testing.T) {
	s := newServer(t)
	s.add(s.store(), 20)
	older := s.now().Copy()
	newest := s.add(s.store(), 30).Position
	last, _, err := s.now().ReadAt(s.ctx, newest)
	runtest.Must(t, err)
	s.add(older, 60)
	s.putBack(older)
	c := s.client(0)
	c.Applied(newest, last.ID)
	head, _ := older.Head(s.ctx)
	s.wantOlder(c.Check(s.ctx), head, newest)
	s.wantStopped(c)
}

// A server that has no event at the position of one that was applied went back, as a genuine one does whose positions
// are bytes.
func TestStore_NoEventAtThePosition(t *testing.T) {
	s := newServer(t)
	c := s.client(0)
	newest := s.add(c, 3).Position
	s.noEvent.Store(uint64(newest))
	head := s.add(s.store(), 2).Position
	s.wantOlder(c.Check(s.ctx), head, newest)
}

// The member that led a cluster until now may show an old end.
func TestStore_OldEndOfAnotherMember(t *testing.T) {
	s := newServer(t)
	c := s.client(hangLimit)
	old := s.add(c, 3).Position
	s.add(c, 3)
	s.end.Store(uint64(old))
	for i, call := range []func() error{
		func() error { return c.Check(s.ctx) },
		func() error { _, err := c.Head(s.ctx); return err },
		func() error {
			_, err := c.Append(s.ctx, "thing-old", eventstore.NoStream, proposed())
			return err
		},
	} {
		err := call()
		if _, older := errors.AsType[*eventstore.OlderCopyError](err); older || !errors.Is(err, eventstore.ErrUnavailable) {
			t.Errorf("call %d: %v, want an event store that is not ready", i, err)
		}
	}
	s.end.Store(0)
	s.add(c, 1)
	if err := c.Check(s.ctx); err != nil {
		t.Error(err)
	}
}

// What is ordinary is no older copy, and no append reads anything for it.
func TestStore_Ordinary(t *testing.T) {
	for name, happens := range map[string]func(s *server, c *continuity.Store){
		"idle": func(*server, *continuity.Store) {},
		"an append is repeated": func(s *server, c *continuity.Store) {
			events := proposed()
			for range 2 {
				if _, err := c.Append(s.ctx, "thing-repeated", eventstore.NoStream, events); err != nil {
					s.Error(err)
				}
				s.add(c, 2)
			}
		},
		"appends are answered in another order": func(s *server, c *continuity.Store) {
			var appends sync.WaitGroup
			for range 8 {
				appends.Go(func() {
					for range 20 {
						if _, err := c.Append(s.ctx, "thing-"+uuid.NewString(), eventstore.NoStream, proposed()); err != nil {
							s.Error(err)
						}
					}
				})
			}
			appends.Wait()
		},
		"the newest event is erased": func(s *server, c *continuity.Store) {
			if _, err := c.Append(s.ctx, "thing-erased", eventstore.NoStream, proposed()); err != nil {
				s.Fatal(err)
			}
			if _, err := s.now().Tombstone(s.ctx, "thing-erased", 0); err != nil { // by another process
				s.Fatal(err)
			}
			runtest.Must(s, s.now().Scavenge(s.ctx))
		},
		"all remembered events are erased": func(s *server, c *continuity.Store) {
			for i := range 40 {
				name := fmt.Sprint("thing-erased", i)
				if _, err := c.Append(s.ctx, name, eventstore.NoStream, proposed()); err != nil {
					s.Fatal(err)
				}
				if _, err := s.now().Tombstone(s.ctx, name, 0); err != nil {
					s.Fatal(err)
				}
			}
			runtest.Must(s, s.now().Scavenge(s.ctx))
		},
		"an event of the system is the newest": func(s *server, c *continuity.Store) {
			s.add(c, 1)
			if _, err := c.Tombstone(s.ctx, "thing-ended", eventstore.NoStream); err != nil {
				s.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			c := s.client(0)
			newest := s.add(c, 5).Position
			sub := s.follow(c, 0, newest)
			happens(s, c)
			s.now().DropSubscriptions() // an ordinary loss of a connection
			for {
				r, err := sub.Next(s.ctx)
				if err != nil {
					break
				}
				newest = r.Position
			}
			s.add(c, 1)
			head, err := c.Head(s.ctx)
			runtest.Must(t, err)
			s.follow(c, newest, head)
			if err := c.Check(s.ctx); err != nil {
				t.Error(err)
			}
			before := s.reads.Load()
			s.add(c, 10)
			if read := s.reads.Load() - before; read > 0 {
				t.Errorf("10 appends read the log %d times", read)
			}
		})
	}
}

// While the log cannot be compared, an append is repeated as after any lost connection.
func TestStore_NotReached(t *testing.T) {
	s := newServer(t)
	down := &failing{Store: s.store()}
	c := continuity.New(down, 0, slog.New(slog.DiscardHandler))
	sub := s.follow(c, 0, s.add(c, 1).Position)
	s.now().DropSubscriptions()
	if _, err := sub.Next(s.ctx); err == nil {
		t.Fatal("the subscription goes on")
	}
	down.fails.Store(true)
	_, err := c.Append(s.ctx, "thing-down", eventstore.NoStream, proposed())
	if !errors.Is(err, eventstore.ErrUnknown) || !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("append: %v", err)
	}
	down.fails.Store(false)
	s.add(c, 1)
}

// failing is a store whose head cannot be read.
type failing struct {
	eventstore.Store
	fails atomic.Bool
}

func (f *failing) Head(ctx context.Context) (eventstore.Position, error) {
	if f.fails.Load() {
		return 0, eventstore.ErrUnavailable
	}
	return f.Store.Head(ctx)
}
