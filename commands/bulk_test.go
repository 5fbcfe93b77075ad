package commands_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
)

func (w *fixture) bulk(call commands.Call, list []identity.Row) []commands.IdentityStatus {
	w.t.Helper()
	statuses, err := w.BulkIdentities(w.t.Context(), call, list)
	if err != nil {
		w.t.Fatal(err)
	}
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
	if err != nil {
		w.t.Fatal(err)
	}
	return ids
}

func (w *fixture) resume(id uuid.UUID) {
	w.t.Helper()
	if err := w.log.ResumeBulk(w.t.Context(), logDirectory{w.log}, noWait{}, id, w.call.ReceivedAt); err != nil {
		w.t.Fatal(err)
	}
}

func TestBulkIdentities_CreatesAndReplaces(t *testing.T) {
	w := newFixture(t)
	w.putIdentity(w.call, "bo", traits{"old": "yes"})
	got := w.bulk(w.later(1), rows("ana", traits{"a": "1"}, "bo", traits{"b": "2"}, "ana", traits{"a": "last"}, "cy", nil,
		"bo", traits{"b": "last"}))
	want := []commands.IdentityStatus{
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
	if err := w.DeleteIdentity(t.Context(), w.later(1), "big"); err != nil {
		t.Fatal(err)
	}
	wantTypes(t, w.identityTypes("big"), "identity.removed.v1")
}

// A bulk write creates removed records again.
func TestBulkIdentities_RemovedRecords(t *testing.T) {
	w := newFixture(t)
	w.putIdentity(w.call, "ana", traits{"old": "yes"})
	if err := w.DeleteIdentity(t.Context(), w.later(1), "ana"); err != nil {
		t.Fatal(err)
	}
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
	dead := func(left int64) *fixture {
		d := &dying{Store: w.store}
		d.left.Store(left)
		return fixtureOver(t, d)
	}
	for name, between := range map[string]func(){
		"put":    func() { w.putIdentity(w.later(1), "bo", traits{"b": "1"}) },
		"create": func() { w.putIdentity(w.later(1), "ana", traits{"b": "1"}) },
		"bulk that is not fanned out": func() {
			if _, err := dead(2).BulkIdentities(t.Context(), w.later(1), rows("bo", traits{"b": "1"})); err == nil {
				t.Fatal("the write succeeded without the store")
			}
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
				d := &dying{Store: w.store}
				d.left.Store(survived)
				victim := fixtureOver(t, d)
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
				var directory commands.Directory = logDirectory{w.log}
				if !knows {
					directory = blind{logDirectory{w.log}}
				}
				other := commands.New(
					commands.Config{Journal: w.log, Waiter: noWait{}, Sends: w, Directory: directory, HashKey: make([]byte, 32)},
				)
				must := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
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
	d := &dying{Store: w.store}
	d.left.Store(2)
	if _, err := fixtureOver(t, d).BulkIdentities(t.Context(), w.call, rows("ana", nil, "bo", nil)); err == nil {
		t.Fatal("the write succeeded without the store")
	}
	id := w.bulks()[0]
	facts, err := w.log.ReadFrom(t.Context(), stream.Name(stream.Bulk, id), 0)
	if err != nil {
		t.Fatal(err)
	}
	stage := facts[0].Event.(*identity.BulkAccepted).Rows.Stream
	last, _, err := w.store.ReadLast(t.Context(), stage)
	if err == nil {
		_, err = w.store.Tombstone(t.Context(), stage, last.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.putIdentity(w.later(1), "ana", traits{"a": "1"}) // does not wait
	w.resume(id)
	bo := []uuid.UUID{w.recordID("bo")}
	open, err := (logDirectory{w.log}).OpenBulks(t.Context(), w.call.Principal.Project, bo)
	if err != nil || len(open) > 0 {
		t.Errorf("open %v, %v", open, err)
	}
	w.wantTraits(t, "ana", traits{"a": "1"})
	w.wantTraits(t, "bo", nil)
}
