package auth

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/allowance"
)

// table is keys that can be revoked, and that count how often they are asked.
type table struct {
	live   map[[32]byte]Principal
	named  map[string]Named // by organization and slug
	agents map[uuid.UUID]AgentHolder
	asked  int
	err    error
	during func()
}

func (t *table) KeyByHash(_ context.Context, kind Kind, hash [32]byte) (Holder, bool, error) {
	t.asked++
	p, ok := t.live[hash]
	if t.during != nil {
		t.during()
	}
	return Holder{Principal: p}, ok && kind == p.Kind, t.err
}

func (t *table) ProjectNamed(_ context.Context, organization uuid.UUID, slug string) (Named, bool, error) {
	t.asked++
	n, ok := t.named[organization.String()+slug]
	if t.during != nil {
		t.during()
	}
	return n, ok, t.err
}

func (t *table) Agent(_ context.Context, id uuid.UUID) (AgentHolder, bool, error) {
	t.asked++
	h, ok := t.agents[id]
	if t.during != nil {
		t.during()
	}
	return h, ok, t.err
}

func TestCache(t *testing.T) {
	one, two := [32]byte{1}, [32]byte{2}
	keys := &table{live: map[[32]byte]Principal{one: {Kind: ProjectKey, KeyName: "one"}}}
	c := NewCache(keys)
	want := func(hash [32]byte, kind Kind, name string, asked int) {
		t.Helper()
		p, ok, err := c.KeyByHash(t.Context(), kind, hash)
		if err != nil || ok != (name != "") || p.KeyName != name && ok || keys.asked != asked {
			t.Errorf("%q, %t, %v after %d lookups, want %q after %d", p.KeyName, ok, err, keys.asked, name, asked)
		}
	}
	want(one, ProjectKey, "one", 1)
	want(one, ProjectKey, "one", 1)
	want(one, ManagementKey, "", 2) // the same value as another kind is another key
	want(two, ProjectKey, "", 3)
	keys.live[two] = Principal{Kind: ProjectKey, KeyName: "two"}
	want(two, ProjectKey, "", 3) // the key is not handed out yet
	c.Forget()
	want(two, ProjectKey, "two", 4)
	delete(keys.live, one)
	c.Forget()
	want(one, ProjectKey, "", 5)
	want(one, ProjectKey, "", 5)
	want(two, ProjectKey, "two", 6)
}

func TestCache_ReadDuringAChange(t *testing.T) {
	hash := [32]byte{1}
	keys := &table{live: map[[32]byte]Principal{hash: {Kind: ProjectKey}}}
	c := NewCache(keys)
	keys.during = func() { // revoked between the read of the table and its answer
		delete(keys.live, hash)
		c.Forget()
	}
	if _, ok, err := c.KeyByHash(t.Context(), ProjectKey, hash); !ok || err != nil {
		t.Fatalf("%t, %v", ok, err)
	}
	if _, ok, err := c.KeyByHash(t.Context(), ProjectKey, hash); ok || err != nil {
		t.Errorf("the revoked key is known: %t, %v", ok, err)
	}
}

func TestCache_ExpiredEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hash := [32]byte{1}
		keys := &table{live: map[[32]byte]Principal{hash: {Kind: ProjectKey}}}
		c := NewCache(keys)
		for n, wait := range []time.Duration{0, cachedFor - 1, 1, cachedFor} {
			<-time.After(wait)
			if _, ok, err := c.KeyByHash(t.Context(), ProjectKey, hash); !ok || err != nil {
				t.Fatalf("%t, %v", ok, err)
			}
			if want := []int{1, 1, 2, 3}[n]; keys.asked != want {
				t.Errorf("look %d: the table was asked %d times, want %d", n, keys.asked, want)
			}
		}
	})
}

func TestCache_FailuresAndBound(t *testing.T) {
	hash := [32]byte{1}
	keys := &table{live: map[[32]byte]Principal{hash: {Kind: ProjectKey}}, err: errors.New("no database")}
	c := NewCache(keys)
	if _, _, err := c.KeyByHash(t.Context(), ProjectKey, hash); err == nil {
		t.Error("no error")
	}
	keys.err = nil
	for n := range maxCached + 1 {
		var hash [32]byte
		binary.BigEndian.PutUint32(hash[:], uint32(n))
		keys.live[hash] = Principal{Kind: ProjectKey}
		if _, ok, err := c.KeyByHash(t.Context(), ProjectKey, hash); !ok || err != nil {
			t.Fatalf("key %d: %t, %v", n, ok, err)
		}
		if c.known.Len() > maxCached {
			t.Fatalf("%d keys are kept", c.known.Len())
		}
	}
}

func TestCache_NamedProjects(t *testing.T) {
	one, other := uuid.New(), uuid.New()
	keys := &table{named: map[string]Named{one.String() + "a": {Project: Project{Slug: "a"}}}}
	c := NewCache(keys)
	want := func(organization uuid.UUID, slug string, ok, archived bool, asked int) {
		t.Helper()
		n, got, err := c.ProjectNamed(t.Context(), organization, slug)
		if err != nil || got != ok || n.Archived != archived || keys.asked != asked {
			t.Errorf("%+v, %t, %v after %d lookups, want %t, archived %t after %d", n, got, err, keys.asked, ok, archived, asked)
		}
	}
	want(one, "a", true, false, 1)
	want(one, "a", true, false, 1)
	want(other, "a", false, false, 2) // the slug of a neighbour is the neighbour's
	want(other, "a", false, false, 3)
	keys.named[one.String()+"a"] = Named{Archived: true}
	c.Forget()
	want(one, "a", true, true, 4)
	keys.during = func() { // unarchived between the read of the table and its answer
		keys.named[one.String()+"a"] = Named{}
		c.Forget()
	}
	c.Forget()
	want(one, "a", true, true, 5)
	want(one, "a", true, false, 6)
	keys.err = errors.New("no database")
	if _, _, err := c.ProjectNamed(t.Context(), other, "a"); err == nil {
		t.Error("no error")
	}
}

func TestCache_Agents(t *testing.T) {
	id := uuid.New()
	keys := &table{agents: map[uuid.UUID]AgentHolder{id: {ID: id}}}
	c := NewCache(keys)
	want := func(agent uuid.UUID, ok, stopped bool, asked int) {
		t.Helper()
		h, got, err := c.Agent(t.Context(), agent)
		if err != nil || got != ok || h.Stopped != stopped || keys.asked != asked {
			t.Errorf("%+v, %t, %v after %d lookups, want %t, stopped %t after %d", h, got, err, keys.asked, ok, stopped, asked)
		}
	}
	want(id, true, false, 1)
	want(id, true, false, 1)
	want(uuid.New(), false, false, 2)
	keys.agents[id] = AgentHolder{ID: id, Stopped: true}
	c.Forget()
	want(id, true, true, 3)
	keys.during = func() { // stopped between the read of the table and its answer
		delete(keys.agents, id)
		c.Forget()
	}
	c.Forget()
	want(id, true, true, 4)
	want(id, false, false, 5)
	keys.err = errors.New("no database")
	if _, _, err := c.Agent(t.Context(), id); err == nil {
		t.Error("no error")
	}
}

// everyKey knows every key.
type everyKey struct{}

func (everyKey) KeyByHash(context.Context, Kind, [32]byte) (Holder, bool, error) {
	return Holder{}, true, nil
}

func (everyKey) ProjectNamed(context.Context, uuid.UUID, string) (Named, bool, error) {
	return Named{}, true, nil
}

func (everyKey) Agent(context.Context, uuid.UUID) (AgentHolder, bool, error) {
	return AgentHolder{}, true, nil
}

// A key may have been revoked since the projection stopped.
func TestFailClosed(t *testing.T) {
	for _, stopped := range []error{nil, errors.New("stopped")} {
		keys := FailClosed(everyKey{}, func(context.Context) error { return stopped })
		_, known, err := keys.KeyByHash(t.Context(), ProjectKey, [32]byte{})
		_, named, namedErr := keys.ProjectNamed(t.Context(), uuid.New(), "default")
		_, agent, agentErr := keys.Agent(t.Context(), uuid.New())
		if stopped == nil && (!known || !named || !agent || err != nil || namedErr != nil || agentErr != nil) {
			t.Errorf("a key is refused: %v, %v", err, namedErr)
		}
		for _, err := range []error{err, namedErr, agentErr} {
			if f, is := errors.AsType[*fault.Error](err); stopped != nil && (!is || f.Code != fault.CodeServiceUnavailable) {
				t.Errorf("while the projection is stopped: %v", err)
			}
		}
		if stopped != nil && (known || named || agent) {
			t.Error("a key is known while the projection is stopped")
		}
	}
}

// slowKeys answers after a time.
type slowKeys struct {
	everyKey
	after time.Duration
}

func (s slowKeys) KeyByHash(ctx context.Context, _ Kind, _ [32]byte) (Holder, bool, error) {
	select {
	case <-time.After(s.after):
		return Holder{}, true, nil
	case <-ctx.Done():
		return Holder{}, false, ctx.Err()
	}
}

// A look-up that takes too long, as of a locked table, is given up, so that the call is answered.
func TestFailClosed_SlowLookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for after, found := range map[time.Duration]bool{
			lookUpTimeout - time.Millisecond: true, lookUpTimeout + time.Millisecond: false, time.Hour: false,
		} {
			keys := FailClosed(slowKeys{after: after}, func(context.Context) error { return nil })
			_, known, err := keys.KeyByHash(t.Context(), ProjectKey, [32]byte{})
			if known != found || (err == nil) != found {
				t.Errorf("after %s: %t, %v", after, known, err)
			}
		}
	})
}

// slowTable returns each look-up when the test releases it, except that of one key.
type slowTable struct {
	Keys
	known   [32]byte
	release chan struct{}
	asking  atomic.Int64
}

func (s *slowTable) KeyByHash(_ context.Context, _ Kind, hash [32]byte) (Holder, bool, error) {
	if hash == s.known {
		return Holder{Principal: Principal{Kind: ProjectKey}}, true, nil
	}
	s.asking.Add(1)
	<-s.release
	return Holder{}, false, nil
}

func TestStrangers_MadeUpKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slowTable{known: [32]byte{255}, release: make(chan struct{})}
		s := NewStrangers(table, lookups())
		if _, ok, err := s.KeyByHash(t.Context(), ProjectKey, table.known); !ok || err != nil {
			t.Fatalf("%t, %v", ok, err)
		}
		var calls sync.WaitGroup
		for i := range uint64(100) {
			from := WithPeer(t.Context(), netip.AddrFrom4([4]byte{10, 0, 0, byte(i % 4)}))
			calls.Go(func() {
				var hash [32]byte
				binary.BigEndian.PutUint64(hash[:], i)
				if _, ok, err := s.KeyByHash(from, ProjectKey, hash); ok || err != nil {
					t.Errorf("a made-up key: %t, %v", ok, err)
				}
			})
		}
		synctest.Wait()
		if n := table.asking.Load(); n != strangerLookups {
			t.Errorf("%d look-ups at once, want %d", n, strangerLookups)
		}
		if _, ok, err := s.KeyByHash(t.Context(), ProjectKey, table.known); !ok || err != nil {
			t.Errorf("a key that was found before: %t, %v", ok, err)
		}
		for range strangerLookups {
			table.release <- struct{}{}
		}
		synctest.Wait()
		if n := table.asking.Load(); n != 2*strangerLookups {
			t.Errorf("%d look-ups, want the next ones", n)
		}
		close(table.release)
		calls.Wait()
		if _, ok, err := s.KeyByHash(t.Context(), ManagementKey, table.known); !ok || err != nil {
			t.Errorf("%t, %v", ok, err)
		}
	})
}

// lookups are those of package admission, which imports this one.
func lookups() *allowance.Allowance {
	return allowance.New(allowance.Config{
		Total: strangerLookups, Share: 1, Wait: 2 * time.Second, Waiters: 256, Refusal: "too many",
	})
}

const strangerLookups = 2

// A peer that floods the service with made-up keys holds one look-up, and few places of those that wait: the first use
// of a new key from elsewhere is looked up at once.
func TestStrangers_FloodOfOnePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slowTable{release: make(chan struct{}), known: [32]byte{255}}
		s := NewStrangers(table, lookups())
		flood := WithPeer(t.Context(), netip.MustParseAddr("192.0.2.1"))
		var calls sync.WaitGroup
		var refused atomic.Int64
		for i := range uint64(1000) {
			calls.Go(func() {
				var hash [32]byte
				binary.BigEndian.PutUint64(hash[:], i)
				if _, _, err := s.KeyByHash(flood, ProjectKey, hash); err != nil {
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := table.asking.Load(); n != 1 || refused.Load() != 1000-1-256/4 {
			t.Errorf("%d look-ups at once and %d refusals", n, refused.Load())
		}
		other := WithPeer(t.Context(), netip.MustParseAddr("192.0.2.2"))
		if _, ok, err := s.KeyByHash(other, ProjectKey, table.known); !ok || err != nil {
			t.Errorf("a new key of another peer: %t, %v", ok, err)
		}
		if _, ok, err := s.KeyByHash(flood, ProjectKey, table.known); !ok || err != nil {
			t.Errorf("it is known from then on: %t, %v", ok, err)
		}
		close(table.release)
		calls.Wait()
	})
}

func TestStrangers_WaitTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slowTable{release: make(chan struct{})}
		table.known[0] = 1
		s := NewStrangers(table, lookups())
		var calls sync.WaitGroup
		calls.Go(func() { _, _, _ = s.KeyByHash(t.Context(), ProjectKey, [32]byte{9}) })
		synctest.Wait()
		if _, ok, err := s.KeyByHash(t.Context(), ProjectKey, table.known); ok || err == nil ||
			!strings.Contains(err.Error(), "too many") {
			t.Errorf("%t, %v, want a refusal", ok, err)
		}
		close(table.release)
		calls.Wait()
		if _, ok, err := s.KeyByHash(t.Context(), ProjectKey, table.known); !ok || err != nil {
			t.Errorf("a known key afterwards: %t, %v", ok, err)
		}
	})
}
