package commands_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/seedtest"
)

func (w *fixture) bulk(call engine.Call, list []identity.Row) []identities.IdentityStatus {
	w.t.Helper()
	statuses, err := w.BulkIdentities(w.t.Context(), call, list)
	runtest.Must(w.t, err)
	return statuses
}

// bulks returns the ids of all bulk writes of the log, in the order of their commits.
func (w *fixture) bulks() []uuid.UUID {
	w.t.Helper()
	var ids []uuid.UUID
	err := logDirectory{w.log}.fold(w.t.Context(), func(f eventstore.DecodedEvent) {
		if _, is := f.Event.(*identity.BulkAccepted); is {
			ids = append(ids, stream.Owner(f.Stream))
		}
	})
	runtest.Must(w.t, err)
	return ids
}

// commitBulk makes a bulk write that is staged and committed by a process that dies then.
func (w *fixture) commitBulk(t *testing.T, call engine.Call, pairs ...any) {
	t.Helper()
	if _, err := w.dying(t, 2).BulkIdentities(t.Context(), call, rows(pairs...)); err == nil {
		t.Fatal("the write succeeded without the store")
	}
}

func (w *fixture) resume(id uuid.UUID) {
	w.t.Helper()
	err := identities.ResumeBulk(w.t.Context(), w.log, logDirectory{w.log}, noWait{}, id, w.call.ReceivedAt)
	runtest.Must(w.t, err)
}

func TestBulkIdentities_CreatesAndReplaces(t *testing.T) {
	w := newFixture(t)
	w.putIdentity(w.call, "bo", traits{"old": "yes"})
	got := w.bulk(w.later(1), rows("ana", traits{"a": "1"}, "bo", traits{"b": "2"}, "ana", traits{"a": "last"}, "cy", nil,
		"bo", traits{"b": "last"}))
	want := []identities.IdentityStatus{
		{Identity: "ana", Status: "created"},
		{Identity: "bo", Status: "updated"},
		{Identity: "cy", Status: "created"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("answered %v", got)
	}
	w.wantTraits(t, "ana", traits{"a": "last"})
	if bo := w.wantTraits(t, "bo", traits{"b": "last"}); !bo.CreatedAt.Equal(w.call.ReceivedAt) ||
		!bo.UpdatedAt.Equal(w.later(1).ReceivedAt) {
		t.Errorf("bo %+v", bo)
	}
	w.wantTraits(t, "cy", traits{})
	// The rows hold text, so they are erased.
	facts, err := w.log.ReadFrom(t.Context(), stream.Name(stream.Bulk, w.bulks()[0]), 0)
	if err != nil || len(facts) != 2 {
		t.Fatalf("%d events, %v", len(facts), err)
	}
	if _, _, err := w.store.ReadLast(t.Context(), facts[0].Event.(*identity.BulkAccepted).Rows.Stream); !errors.Is(
		err, eventstore.ErrDeleted,
	) {
		t.Errorf("the rows: %v", err)
	}
	if done := facts[1].Event.(*identity.BulkFannedOut); !slices.Equal(
		done.Statuses, []string{"created", "updated", "created"},
	) {
		t.Errorf("statuses %v", done.Statuses)
	}
}

func TestBulkIdentities_BigTraitsAndManyRows(t *testing.T) {
	w := newRegistered(t)
	list := rows("big", big(150))
	for i := range limit.BulkRows - 1 {
		list = append(list, identity.Row{Identity: fmt.Sprint("n", i), Traits: traits{"n": fmt.Sprint(i)}})
	}
	if got := w.bulk(w.call, list); len(got) != limit.BulkRows {
		t.Fatalf("%d statuses", len(got))
	}
	w.wantTraits(t, "big", big(150))
	w.wantTraits(t, "n998", traits{"n": "998"})
	runtest.Must(t, w.DeleteIdentity(t.Context(), w.later(1), "big"))
	wantTypes(t, w.identityTypes("big"), "identity.removed.v1")
}

// A bulk write creates removed records again.
func TestBulkIdentities_RemovedRecords(t *testing.T) {
	w := newFixture(t)
	w.putIdentity(w.call, "ana", traits{"old": "yes"})
	runtest.Must(t, w.DeleteIdentity(t.Context(), w.later(1), "ana"))
	if got := w.bulk(w.later(2), rows("ana", traits{"a": "1"})); got[0].Status != "created" {
		t.Errorf("answered %v", got)
	}
	if ana := w.wantTraits(t, "ana", traits{"a": "1"}); !ana.CreatedAt.Equal(w.later(2).ReceivedAt) {
		t.Errorf("ana %+v", ana)
	}
}

// moving is a directory that calls a function between two reads.
type moving struct {
	logDirectory
	between func()
	looks   int
}

func (m *moving) OpenBulks(ctx context.Context, project auth.Project, ids []uuid.UUID) ([]uuid.UUID, error) {
	if m.looks++; m.looks == 2 {
		m.between()
	}
	return m.logDirectory.OpenBulks(ctx, project, ids)
}

// A record changes before the commit. The bulk write is refused and applies nothing.
func TestBulkIdentities_RecordChangesBeforeCommit(t *testing.T) {
	w := newFixture(t)
	w.putIdentity(w.call, "bo", traits{"old": "yes"})
	for name, between := range map[string]func(){
		"put":    func() { w.putIdentity(w.later(1), "bo", traits{"b": "1"}) },
		"create": func() { w.putIdentity(w.later(1), "ana", traits{"b": "1"}) },
		"bulk that is not fanned out": func() {
			w.commitBulk(t, w.later(1), "bo", traits{"b": "1"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(w.bulks())
			directory := &moving{logDirectory: logDirectory{w.log}, between: func() { between(); before = len(w.bulks()) }}
			racing := commands.New(
				commands.Config{Journal: w.log, Waiter: noWait{}, Sends: w, Directory: directory, HashKey: make([]byte, 32)},
			)
			_, err := racing.BulkIdentities(t.Context(), w.later(2),
				rows("ana", traits{"raced": "yes"}, "bo", traits{"raced": "yes"}))
			wantFault(t, err, fault.CodeConflict)
			if len(w.bulks()) != before {
				t.Error("it is committed")
			}
			for _, name := range []string{"ana", "bo"} {
				if _, traits := w.record(name); traits["raced"] != "" {
					t.Errorf("%s was written", name)
				}
			}
		})
		for _, id := range w.bulks() {
			w.resume(id)
		}
	}
}

// The process dies after each append in turn. The bulk write is then either not stored at all or
// complete, also if others change its records meanwhile: a write that sees the bulk write is
// applied after it, and another write is kept as the newer one.
func TestBulkIdentities_CrashAfterEachAppend(t *testing.T) {
	for _, knows := range []bool{false, true} {
		for survived := range int64(9) {
			t.Run(fmt.Sprintf("after %d writes, known %t", survived, knows), func(t *testing.T) {
				w := newFixture(t)
				for _, name := range []string{"put", "patched", "gone", "again", "left"} {
					w.putIdentity(w.call, name, traits{"old": name, "kept": "no"})
				}
				victim := w.dying(t, survived)
				var list []identity.Row
				names := []string{"put", "patched", "gone", "again", "left", "new", "new patched"}
				for _, name := range names {
					list = append(list, identity.Row{Identity: name, Traits: traits{"bulk": name}})
				}
				_, err := victim.BulkIdentities(t.Context(), w.later(1), list)
				if survived < 2+7+1 && err == nil {
					t.Fatalf("answered after %d writes", survived)
				}
				ids := w.bulks()
				if committed := survived >= 2; committed != (len(ids) == 1) {
					t.Fatalf("%d bulk writes", len(ids))
				}
				var directory identities.Directory = logDirectory{w.log}
				if !knows {
					directory = blind{logDirectory{w.log}}
				}
				other := commands.New(
					commands.Config{Journal: w.log, Waiter: noWait{}, Sends: w, Directory: directory, HashKey: make([]byte, 32)},
				)
				must := func(err error) {
					t.Helper()
					runtest.Must(t, err)
				}
				_, err = other.PutIdentity(t.Context(), w.later(2), "put", traits{"put": "1"})
				must(err)
				for _, name := range []string{"patched", "new patched"} {
					_, err = other.PatchIdentity(t.Context(), w.later(2), name, traits{"patch": "1"}, []string{"kept"})
					must(err)
				}
				must(other.DeleteIdentity(t.Context(), w.later(2), "gone"))
				must(other.DeleteIdentity(t.Context(), w.later(2), "again"))
				_, err = other.PutIdentity(t.Context(), w.later(3), "again", traits{"again": "1"})
				must(err)
				for _, id := range ids {
					w.resume(id)
					w.resume(id)
				}
				bulked := func(name string, more traits) traits {
					all := traits{"old": name}
					if len(ids) > 0 {
						all = traits{"bulk": name}
					}
					maps.Copy(all, more)
					return all
				}
				w.wantTraits(t, "put", traits{"put": "1"})
				w.wantTraits(t, "patched", bulked("patched", traits{"patch": "1"}))
				w.wantTraits(t, "gone", nil)
				if again := w.wantTraits(t, "again", traits{"again": "1"}); !again.CreatedAt.Equal(w.later(3).ReceivedAt) {
					t.Errorf("again %+v", again)
				}
				if len(ids) == 0 {
					w.wantTraits(t, "left", traits{"old": "left", "kept": "no"})
					w.wantTraits(t, "new", nil)
					w.wantTraits(t, "new patched", traits{"patch": "1"})
					return
				}
				w.wantTraits(t, "left", traits{"bulk": "left"})
				w.wantTraits(t, "new", traits{"bulk": "new"})
				if record := w.wantTraits(t, "new patched", traits{"bulk": "new patched", "patch": "1"}); !record.CreatedAt.Equal(
					w.later(1).ReceivedAt,
				) ||
					!record.UpdatedAt.Equal(w.later(2).ReceivedAt) {
					t.Errorf("new patched %+v", record)
				}
				facts, err := w.log.ReadFrom(t.Context(), stream.Name(stream.Bulk, ids[0]), 0)
				must(err)
				if len(facts) != 2 ||
					!slices.Equal(
						facts[1].Event.(*identity.BulkFannedOut).Statuses,
						[]string{"updated", "updated", "updated", "updated", "updated", "created", "created"},
					) {
					t.Errorf("ends with %+v", facts[len(facts)-1].Event)
				}
			})
		}
	}
}

// blind is a directory that has applied no bulk write.
type blind struct{ logDirectory }

func (blind) OpenBulks(context.Context, auth.Project, []uuid.UUID) ([]uuid.UUID, error) {
	return nil, nil
}

// If its rows are lost, a bulk write ends with the rows that are stored, and blocks no other write.
func TestBulkIdentities_RowsAreLost(t *testing.T) {
	w := newFixture(t)
	w.commitBulk(t, w.call, "ana", nil, "bo", nil)
	id := w.bulks()[0]
	facts, err := w.log.ReadFrom(t.Context(), stream.Name(stream.Bulk, id), 0)
	runtest.Must(t, err)
	stage := facts[0].Event.(*identity.BulkAccepted).Rows.Stream
	last, _, err := w.store.ReadLast(t.Context(), stage)
	if err == nil {
		_, err = w.store.Tombstone(t.Context(), stage, last.Revision)
	}
	runtest.Must(t, err)
	w.putIdentity(w.later(1), "ana", traits{"a": "1"}) // does not wait
	w.resume(id)
	bo := []uuid.UUID{w.identityID("bo")}
	open, err := (logDirectory{w.log}).OpenBulks(t.Context(), w.call.Principal.Project, bo)
	if err != nil || len(open) > 0 {
		t.Errorf("open %v, %v", open, err)
	}
	w.wantTraits(t, "ana", traits{"a": "1"})
	w.wantTraits(t, "bo", nil)
}

// intent is the change of one request to one identity.
type intent struct {
	put     map[string]string // of a put or a row of a bulk write
	patch   *identity.Patch
	created time.Time
}

// contest has the intents of requests and their answers.
type contest struct {
	mu      sync.Mutex
	intents map[uuid.UUID]map[string]intent // by request and identity
	answers map[uuid.UUID]error
	bulks   map[uuid.UUID][]identities.IdentityStatus
}

func (r *contest) note(request uuid.UUID, intents map[string]intent, statuses []identities.IdentityStatus, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.intents[request], r.answers[request] = intents, err
	if statuses != nil {
		r.bulks[request] = statuses
	}
}

// uncut is a store that ignores truncation, so that the test can read all events.
type uncut struct{ eventstore.Store }

func (uncut) Truncate(context.Context, string, eventstore.Revision) error { return nil }

// yielding is a store between whose calls other callers get their turn, as over a network.
type yielding struct{ eventstore.Store }

func (s yielding) Append(
	ctx context.Context, name string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	runtime.Gosched()
	return s.Store.Append(ctx, name, expected, events)
}

func (s yielding) Read(
	ctx context.Context, name string, from eventstore.Revision, direction eventstore.Direction, limit int,
) ([]eventstore.Recorded, error) {
	runtime.Gosched()
	return s.Store.Read(ctx, name, from, direction, limit)
}

// Two processes write the same records concurrently, in bulk and one by one. A bulk write succeeds,
// or it is refused as a conflict and stores nothing. The final state is that of the successful
// writes in the order of their commits.
func TestBulkIdentities_ConcurrentWrites(t *testing.T) {
	memory := func(*testing.T) eventstore.Store { return eventstoretest.NewMemory() }
	t.Run("seen", func(t *testing.T) { raceWrites(t, memory, false) })
	// The directory sees no bulk write before its end, so every fan-out has to restore the order of
	// the commits.
	t.Run("unseen", func(t *testing.T) { raceWrites(t, memory, true) })
	t.Run("on a node", func(t *testing.T) {
		raceWrites(t, func(t *testing.T) eventstore.Store { return nodetest.Store(t, node.Config{}) }, false)
	})
}

func raceWrites(t *testing.T, store func(*testing.T) eventstore.Store, unseen bool) {
	whole := uncut{yielding{store(t)}}
	w, other := fixtureOver(t, whole), fixtureOver(t, whole)
	if unseen {
		for _, one := range []*fixture{w, other} {
			one.Service = commands.New(commands.Config{
				Journal: one.log, Waiter: noWait{}, Sends: one, Directory: blind{logDirectory{one.log}}, HashKey: make([]byte, 32),
			})
		}
	}
	names := []string{"a", "b", "c", "d", "e", "f"}
	seed := seedtest.Of(t)
	r := &contest{
		intents: map[uuid.UUID]map[string]intent{},
		answers: map[uuid.UUID]error{},
		bulks:   map[uuid.UUID][]identities.IdentityStatus{},
	}
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
	// Once nobody else writes, nothing is refused.
	call, mark := w.later(10_000), map[string]string{"writer": "last"}
	statuses, err := w.BulkIdentities(t.Context(), call,
		[]identity.Row{{Identity: "a", Traits: mark}, {Identity: "b", Traits: mark}})
	last := intent{put: mark, created: call.ReceivedAt}
	r.note(call.RequestID, map[string]intent{"a": last, "b": last}, statuses, err)
	if err != nil {
		t.Errorf("the last write is answered %v", err)
	}
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
	if unseen {
		clear(r.bulks) // the statuses are exact only if the directory has seen the earlier writes
	}
	wantSerial(t, w, r, names)
}

// effect is an intent that took effect on an identity.
type raceEffect struct {
	at      eventstore.Position
	request uuid.UUID
	row     *identity.BulkRowApplied
}

// wantSerial compares the records with a serial run of the writes, and the answers with the
// streams.
func wantSerial(t *testing.T, w *fixture, r *contest, names []string) {
	t.Helper()
	ids := map[uuid.UUID]string{}
	for _, name := range names {
		ids[w.identityID(name)] = name
	}
	effects := map[string][]raceEffect{}
	err := logDirectory{w.log}.fold(t.Context(), func(f eventstore.DecodedEvent) {
		name, is := ids[stream.Owner(f.Stream)]
		if stream.Category(f.Stream) != stream.Identity || !is {
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
	runtest.Must(t, err)
	applied := map[uuid.UUID]int{}
	for _, name := range names {
		list := effects[name]
		slices.SortStableFunc(list, func(a, b raceEffect) int { return cmp.Compare(a.at, b.at) })
		var current map[string]string
		var created time.Time
		for _, e := range list {
			asked, known := r.intents[e.request][name]
			if !known {
				t.Fatalf("%s was written by an unknown request", name)
			}
			if r.answers[e.request] != nil {
				t.Errorf("%s was written by a request that failed: %v", name, r.answers[e.request])
			}
			applied[e.request]++
			status := identity.Updated
			if current == nil {
				status, created = identity.Created, asked.created
			}
			switch {
			case asked.put != nil:
				current = asked.put
			case asked.patch != nil:
				current = asked.patch.Apply(current)
			default:
				current = nil
			}
			for _, answer := range r.bulks[e.request] {
				if answer.Identity == name && answer.Status != status {
					t.Errorf("%s was %s, but the answer of its bulk write is %s", name, status, answer.Status)
				}
			}
		}
		record, traits := w.record(name)
		if (record == nil) != (current == nil) || !maps.Equal(traits, current) {
			t.Errorf("%s has %v, and one after the other the writes give %v", name, traits, current)
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

// A bulk write is committed before a record is created, and fanned out after another bulk write was
// decided on that record: it is the first that created the record.
func TestBulkIdentities_FannedOutAfterALaterDecision(t *testing.T) {
	for _, removed := range []bool{false, true} {
		t.Run(fmt.Sprintf("removed %t", removed), func(t *testing.T) {
			w := newFixture(t)
			w.commitBulk(t, w.later(1), "ana", traits{"n": "1"}, "bo", nil)
			first, created := w.bulks()[0], w.later(1).ReceivedAt
			over := func(store eventstore.Store) *commands.Service {
				one := fixtureOver(t, store)
				one.configure(func(c *commands.Config) { c.Directory = blind{logDirectory{one.log}} })
				return one.Service
			}
			runtest.Must(t, errorOf(over(w.store).PutIdentity(t.Context(), w.later(2), "ana", traits{"n": "2"})))
			if removed {
				runtest.Must(t, over(w.store).DeleteIdentity(t.Context(), w.later(3), "ana"))
				created = w.later(4).ReceivedAt
			}
			resumes := between{w.store, stream.Identity, new(sync.Once), func() { w.resume(first) }}
			runtest.Must(t, errorOf(over(resumes).BulkIdentities(t.Context(), w.later(4), rows("ana", traits{"n": "4"}, "cy", nil))))
			if ana := w.wantTraits(t, "ana", traits{"n": "4"}); !ana.CreatedAt.Equal(created) {
				t.Errorf("created at %v, want %v", ana.CreatedAt, created)
			}
		})
	}
}
