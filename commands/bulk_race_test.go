package commands_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// intent is what one request asks of one identity.
type intent struct {
	put     map[string]string // of a put or a row of a bulk write
	patch   *identity.Patch
	created time.Time
}

// contest is what requests asked for, and how each was answered.
type contest struct {
	mu      sync.Mutex
	intents map[uuid.UUID]map[string]intent // by request and identity
	answers map[uuid.UUID]error
	bulks   map[uuid.UUID][]commands.IdentityStatus
}

func (r *contest) note(request uuid.UUID, intents map[string]intent, statuses []commands.IdentityStatus, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.intents[request], r.answers[request] = intents, err
	if statuses != nil {
		r.bulks[request] = statuses
	}
}

// uncut is a store that keeps what is cut off, so that everything that happened can be read.
type uncut struct{ eventstore.Store }

func (uncut) Truncate(context.Context, string, eventstore.Revision) error { return nil }

// Bulk writes and single writes of the same records over two processes at once: each bulk write is answered with success or with a
// conflict that leaves nothing, and what stands in the end is what the writes give one after the other, in the order of their commits.
func TestConcurrentWritesHaveAnOrder(t *testing.T) {
	t.Run("seen", func(t *testing.T) { raceWrites(t, false) })
	// Where the directory sees no bulk write before it is done, all of them are sorted behind their commits.
	t.Run("unseen", func(t *testing.T) { raceWrites(t, true) })
}

func raceWrites(t *testing.T, unseen bool) {
	whole := uncut{newWorld(t).store}
	w, other := worldOver(t, whole), worldOver(t, whole)
	if unseen {
		for _, one := range []*world{w, other} {
			one.Service = commands.New(commands.Config{
				Log: one.log, Waiter: noWait{}, Sends: one, Directory: blind{logDirectory{one.log}}, HashKey: make([]byte, 32),
			})
		}
	}
	names := []string{"a", "b", "c", "d", "e", "f"}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := &contest{intents: map[uuid.UUID]map[string]intent{}, answers: map[uuid.UUID]error{}, bulks: map[uuid.UUID][]commands.IdentityStatus{}}
	var writers sync.WaitGroup
	for n := range 8 {
		service := w.Service
		if n%2 == 1 {
			service = other.Service
		}
		rnd := rand.New(rand.NewPCG(seed, uint64(n)))
		writers.Go(func() {
			for i := range 12 {
				call := w.later(100*i + n)
				mark := map[string]string{fmt.Sprint("writer ", n): fmt.Sprint(i)}
				name := names[rnd.IntN(len(names))]
				switch rnd.IntN(5) {
				case 0:
					_, err := service.PutIdentity(t.Context(), call, name, mark)
					r.note(call.RequestID, map[string]intent{name: {put: mark, created: call.ReceivedAt}}, nil, err)
				case 1:
					patch := identity.Patch{Set: mark, Removed: []string{fmt.Sprint("writer ", rnd.IntN(8))}}
					if _, both := mark[patch.Removed[0]]; both {
						patch.Removed = nil
					}
					_, err := service.PatchIdentity(t.Context(), call, name, patch.Set, patch.Removed)
					r.note(call.RequestID, map[string]intent{name: {patch: &patch, created: call.ReceivedAt}}, nil, err)
				case 2:
					err := service.DeleteIdentity(t.Context(), call, name)
					r.note(call.RequestID, map[string]intent{name: {}}, nil, err)
				default:
					asked, list := map[string]intent{}, []identity.Row{}
					for _, at := range rnd.Perm(len(names))[:2+rnd.IntN(4)] {
						asked[names[at]] = intent{put: mark, created: call.ReceivedAt}
						list = append(list, identity.Row{Identity: names[at], Traits: mark})
					}
					statuses, err := service.BulkIdentities(t.Context(), call, list)
					r.note(call.RequestID, asked, statuses, err)
				}
			}
		})
	}
	writers.Wait()
	conflicts, committed := 0, 0
	for request, err := range r.answers {
		f, is := errors.AsType[*fault.Error](err)
		switch {
		case err == nil && r.bulks[request] != nil:
			committed++
		case err == nil:
		case is && f.Code == fault.CodeConflict && len(r.intents[request]) > 1:
			conflicts++
		case is && f.Code == fault.CodeNotFound:
		default:
			t.Errorf("answered %v", err)
		}
	}
	t.Logf("%d bulk writes, %d conflicts", committed, conflicts)
	if committed == 0 {
		t.Error("no bulk write came through")
	}
	if unseen {
		clear(r.bulks) // what was created is known only to who saw the writes before
	}
	wantSerial(t, w, r, names)
}

// effect is an intent that took effect on an identity.
type raceEffect struct {
	at      eventstore.Position
	request uuid.UUID
	row     *identity.BulkRowApplied
}

// wantSerial holds the records against the writes one after the other, and the answers against the streams.
func wantSerial(t *testing.T, w *world, r *contest, names []string) {
	t.Helper()
	ids := map[uuid.UUID]string{}
	for _, name := range names {
		ids[w.recordID(name)] = name
	}
	effects := map[string][]raceEffect{}
	err := logDirectory{w.log}.fold(t.Context(), func(f eventstore.Fact) {
		name, is := ids[stream.Owner(f.Stream)]
		if stream.Family(f.Stream) != stream.Identity || !is {
			return
		}
		e := raceEffect{at: f.Position, request: f.Details.RequestID}
		switch row := f.Event.(type) {
		case *identity.Cleared:
			return
		case *identity.BulkRowApplied:
			e.at, e.row = eventstore.Position(row.Commit), row
		}
		effects[name] = append(effects[name], e)
	})
	if err != nil {
		t.Fatal(err)
	}
	applied := map[uuid.UUID]int{}
	for _, name := range names {
		list := effects[name]
		slices.SortStableFunc(list, func(a, b raceEffect) int { return cmp.Compare(a.at, b.at) })
		var standing map[string]string
		var created time.Time
		for _, e := range list {
			asked, known := r.intents[e.request][name]
			if !known {
				t.Fatalf("%s was written by nobody's request", name)
			}
			if r.answers[e.request] != nil {
				t.Errorf("%s was written by a request that was answered %v", name, r.answers[e.request])
			}
			applied[e.request]++
			status := identity.Updated
			if standing == nil {
				status, created = identity.Created, asked.created
			}
			switch {
			case asked.put != nil:
				standing = asked.put
			case asked.patch != nil:
				standing = asked.patch.Apply(standing)
			default:
				standing = nil
			}
			for _, said := range r.bulks[e.request] {
				if said.Identity == name && said.Status != status {
					t.Errorf("%s was %s by a bulk write that says it was %s", name, status, said.Status)
				}
			}
		}
		record, traits := w.record(name)
		if (record == nil) != (standing == nil) || !maps.Equal(traits, standing) {
			t.Errorf("%s has %v, and one after the other the writes give %v", name, traits, standing)
		}
		if record != nil && !record.CreatedAt.Equal(created) {
			t.Errorf("%s was created at %v, not %v", name, record.CreatedAt, created)
		}
	}
	for request, err := range r.answers {
		if want := len(r.intents[request]); err == nil && applied[request] != want {
			t.Errorf("a request was applied to %d of its %d identities", applied[request], want)
		}
	}
}
