package auth

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
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
