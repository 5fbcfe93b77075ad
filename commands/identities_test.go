package commands_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/work"
)

func (w *fixture) blobTraits(record *identity.Record) map[string]string {
	w.t.Helper()
	data, err := w.log.ReadBlob(w.t.Context(), *record.Traits.Blob)
	if err != nil {
		w.t.Fatal(err)
	}
	read := map[string]string{}
	if err := json.Unmarshal(data, &read); err != nil {
		w.t.Fatal(err)
	}
	return read
}

func TestPutIdentity_CreatesAndReplaces(t *testing.T) {
	w := newFixture(t)
	first := w.putIdentity(w.call, "ana", traits{"team": "red"})
	second := w.putIdentity(w.later(5), "ana", traits{"city": "Porto"})
	if first.ID != w.recordID("ana") || first.Origin != identity.OriginAPI || !maps.Equal(first.Traits, traits{"team": "red"}) ||
		!first.CreatedAt.Equal(w.call.ReceivedAt) || !first.UpdatedAt.Equal(first.CreatedAt) {
		t.Errorf("first %+v", first)
	}
	if !maps.Equal(second.Traits, traits{"city": "Porto"}) || !second.CreatedAt.Equal(first.CreatedAt) ||
		!second.UpdatedAt.Equal(w.later(5).ReceivedAt) {
		t.Errorf("second %+v", second)
	}
	w.wantTraits(t, "ana", traits{"city": "Porto"})
	if none := w.putIdentity(w.later(6), "ana", nil); none.Traits == nil || len(none.Traits) != 0 {
		t.Errorf("without traits %+v", none)
	}
	wantTypes(t, w.identityTypes("ana"), "identity.traits-replaced.v1", "identity.traits-replaced.v1",
		"identity.traits-replaced.v1")
}

func TestPatchIdentity_ChangesNamedTraits(t *testing.T) {
	w := newFixture(t)
	patch := func(second int, set traits, removed ...string) commands.IdentityReceipt {
		t.Helper()
		r, err := w.PatchIdentity(t.Context(), w.later(second), "bo", set, removed)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := patch(0, traits{"a": "1", "b": "2"}, "never"); !maps.Equal(r.Traits, traits{"a": "1", "b": "2"}) ||
		r.Origin != identity.OriginAPI {
		t.Errorf("creates %+v", r)
	}
	if r := patch(1, traits{"b": "3", "c": "4"}, "a"); !maps.Equal(r.Traits, traits{"b": "3", "c": "4"}) {
		t.Errorf("changes %+v", r)
	}
	if r := patch(2, nil); !maps.Equal(r.Traits, traits{"b": "3", "c": "4"}) {
		t.Errorf("names nothing %+v", r)
	}
	w.wantTraits(t, "bo", traits{"b": "3", "c": "4"})
}

// A put of traits does not change the origin of an author's record.
func TestPutIdentity_Author(t *testing.T) {
	w := newFixture(t)
	w.ingest(text("a", "one", by("ana")), "")
	if r := w.putIdentity(w.later(1), "ana", traits{"a": "1"}); r.Origin != identity.OriginIngest ||
		!r.CreatedAt.Equal(w.call.ReceivedAt) {
		t.Errorf("got %+v", r)
	}
	w.ingest(text("b", "two", by("ana")), "")
	wantTypes(t, w.identityTypes("ana"), "identity.appeared.v1", "identity.traits-replaced.v1")
}

// big returns traits whose JSON does not fit into an event.
func big(n int) map[string]string {
	many := make(map[string]string, n)
	for i := range n {
		many[fmt.Sprintf("key %d", i)] = strings.Repeat("x", limit.TraitValue)
	}
	return many
}

// Traits and patches of any size are stored, and each patch applies to the result of the one
// before.
func TestPatchIdentity_BigTraits(t *testing.T) {
	w := newFixture(t)
	many := big(200)
	w.putIdentity(w.call, "ana", many)
	record := w.wantTraits(t, "ana", many)
	if record.Traits.Blob == nil || stream.Owner(record.Traits.Blob.Stream) != w.recordID("ana") {
		t.Fatalf("traits %+v", record.Traits)
	}
	more := big(201)
	r, err := w.PatchIdentity(t.Context(), w.later(1), "ana", more, nil)
	if err != nil || !maps.Equal(r.Traits, more) {
		t.Fatalf("%d traits, %v", len(r.Traits), err)
	}
	if _, err := w.PatchIdentity(t.Context(), w.later(2), "ana", traits{"last": "one"}, []string{"key 0"}); err != nil {
		t.Fatal(err)
	}
	more["last"] = "one"
	delete(more, "key 0")
	w.wantTraits(t, "ana", more)
	merged := w.identityEvents("ana")[1].Event.(*identity.TraitsMerged)
	if merged.Patch.Blob == nil || merged.Patch.Set != nil {
		t.Errorf("the big patch is %d traits inline", len(merged.Patch.Set))
	}
}

func TestPatchIdentity_LimitsOfTheResult(t *testing.T) {
	w := newFixture(t)
	full := make(traits, limit.Traits)
	for i := range limit.Traits {
		full[fmt.Sprint("key ", i)] = "x"
	}
	w.putIdentity(w.call, "ana", full)
	_, err := w.PatchIdentity(t.Context(), w.later(1), "ana", traits{"one": "more"}, nil)
	wantFault(t, err, fault.CodeTraitsInvalid)
	w.wantTraits(t, "ana", full)
	if _, err := w.PatchIdentity(t.Context(), w.later(2), "ana", traits{"one": "more"}, []string{"key 0"}); err != nil {
		t.Error(err)
	}
	w.putIdentity(w.call, "bo", big(250))
	_, err = w.PatchIdentity(t.Context(), w.later(3), "bo", big(270), nil)
	wantFault(t, err, fault.CodeTraitsInvalid)
	if _, err := w.PutIdentity(t.Context(), w.later(4), "bo", big(270)); err == nil {
		t.Error("a put takes more than the limit")
	}
	w.wantTraits(t, "bo", big(250))
}

// A record that was stored before there were limits can be changed if it does not grow.
func TestPatchIdentity_RecordStoredBeyondTheLimits(t *testing.T) {
	w := newFixture(t)
	many := make(traits, 1500)
	for i := range 1500 {
		many[fmt.Sprint("key ", i)] = "x"
	}
	stored := identity.TraitsReplaced{
		ProjectID: w.call.Principal.Project.ID,
		Record:    identity.Record{Identity: "ana", Traits: identity.Traits{Inline: many}},
	}
	name, meta := stream.Name(stream.Identity, w.recordID("ana")), event.NewMeta("test", time.Now())
	if _, err := w.log.Append(t.Context(), name, eventstore.NoStream, meta, stored); err != nil {
		t.Fatal(err)
	}
	if r, err := w.PatchIdentity(t.Context(), w.later(1), "ana", traits{"key 1": "y"}, []string{"key 0"}); err != nil ||
		len(r.Traits) != 1499 {
		t.Errorf("%d traits, %v", len(r.Traits), err)
	}
	_, err := w.PatchIdentity(t.Context(), w.later(2), "ana", traits{"key 0": "y"}, nil)
	wantFault(t, err, fault.CodeTraitsInvalid)
}

func TestDeleteIdentity_Unknown(t *testing.T) {
	w := newFixture(t)
	wantFault(t, w.DeleteIdentity(t.Context(), w.call, "nobody"), fault.CodeNotFound)
	w.putIdentity(w.call, "ana", nil)
	if err := w.DeleteIdentity(t.Context(), w.later(1), "ana"); err != nil {
		t.Fatal(err)
	}
	wantFault(t, w.DeleteIdentity(t.Context(), w.later(2), "ana"), fault.CodeNotFound)
	neighbour := w.later(3)
	neighbour.Principal.Project.Namespace[0]++
	w.putIdentity(w.later(3), "bo", nil)
	wantFault(t, w.DeleteIdentity(t.Context(), neighbour, "bo"), fault.CodeNotFound)
	w.wantTraits(t, "bo", traits{})
}

// A removal erases the text of the record, blobs too. The record may be created again, in the same
// stream.
func TestDeleteIdentity_TruncatesTheStream(t *testing.T) {
	w := newRegistered(t)
	w.putIdentity(w.call, "ana", big(200))
	before, _ := w.record("ana")
	w.putIdentity(w.later(1), "ana", traits{"city": "Porto"})
	if err := w.DeleteIdentity(t.Context(), w.later(2), "ana"); err != nil {
		t.Fatal(err)
	}
	// The event that it is cleared follows only when its text is gone from the disk.
	wantTypes(t, w.identityTypes("ana"), "identity.removed.v1")
	if _, _, err := w.store.ReadLast(t.Context(), before.Traits.Blob.Stream); !errors.Is(err, eventstore.ErrDeleted) {
		t.Errorf("the blob of its traits: %v", err)
	}
	again := w.putIdentity(w.later(3), "ana", traits{"a": "1"})
	if !again.CreatedAt.Equal(w.later(3).ReceivedAt) {
		t.Errorf("made again: %+v", again)
	}
	r, err := w.PatchIdentity(t.Context(), w.later(4), "ana", traits{"b": "2"}, nil)
	if err != nil || !maps.Equal(r.Traits, traits{"a": "1", "b": "2"}) {
		t.Errorf("patched: %+v, %v", r, err)
	}
}

// A late event that an earlier record was erased does not end the current record.
func TestRecordCleared_LaterRecordExists(t *testing.T) {
	w := newRegistered(t)
	w.putIdentity(w.call, "ana", traits{"a": "1"})
	d := &dying{Store: w.store}
	d.left.Store(1)
	if err := fixtureOver(t, d).DeleteIdentity(t.Context(), w.later(1), "ana"); err != nil {
		t.Fatal(err) // the removal succeeds even if the erasure of its text fails
	}
	wantTypes(t, w.identityTypes("ana"), "identity.traits-replaced.v1", "identity.removed.v1")
	w.putIdentity(w.later(2), "ana", traits{"b": "2"})
	clear := func() {
		t.Helper()
		r := work.Removal{ProjectID: w.call.Principal.Project.ID, IdentityID: w.recordID("ana"), Revision: 1}
		if err := w.eraser().TruncateIdentity(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if cut, err := w.eraser().IsTruncated(t.Context(), r); !cut || err != nil {
			t.Fatalf("after the truncation, IsTruncated is %v, %v", cut, err)
		}
		if err := w.eraser().RecordCleared(t.Context(), r, w.later(3).ReceivedAt); err != nil {
			t.Fatal(err)
		}
	}
	clear()
	wantTypes(t, w.identityTypes("ana"), "identity.removed.v1", "identity.traits-replaced.v1", "identity.cleared.v1")
	clear() // does nothing
	w.ingest(text("a", "one", by("ana")), "")
	r, err := w.PatchIdentity(t.Context(), w.later(4), "ana", traits{"c": "3"}, nil)
	if err != nil || !maps.Equal(r.Traits, traits{"b": "2", "c": "3"}) {
		t.Errorf("patched: %+v, %v", r, err)
	}
	wantTypes(t, w.identityTypes("ana"), "identity.removed.v1", "identity.traits-replaced.v1", "identity.cleared.v1",
		"identity.traits-merged.v1")
}

// An author whose record was removed gets another one, no matter which process removes it.
func TestIngest_AuthorAfterRemoval(t *testing.T) {
	w := newRegistered(t)
	for name, change := range map[string]func(*commands.Config){
		"alone":                    func(c *commands.Config) { c.SoleWriter = true },
		"alone, with a directory":  func(c *commands.Config) { c.SoleWriter, c.Records = true, currentRecords{w} },
		"not alone":                func(*commands.Config) {},
		"not alone, the directory": func(c *commands.Config) { c.Records = currentRecords{w} },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := commands.Config{
				Journal: w.log, Waiter: noWait{}, Sends: w, Directory: logDirectory{w.log}, HashKey: make([]byte, 32),
			}
			change(&cfg)
			service := commands.New(cfg)
			remover := service
			if !cfg.SoleWriter {
				remover = fixtureOver(t, w.store).Service
			}
			for i := range 2 {
				if _, err := service.Ingest(t.Context(), w.call, text(fmt.Sprint(name, i), "one", by(name)), ""); err != nil {
					t.Fatal(err)
				}
			}
			wantTypes(t, w.identityTypes(name), "identity.appeared.v1")
			if err := remover.DeleteIdentity(t.Context(), w.call, name); err != nil {
				t.Fatal(err)
			}
			if _, err := service.Ingest(t.Context(), w.call, text(name+"3", "one", by(name)), ""); err != nil {
				t.Fatal(err)
			}
			wantTypes(t, w.identityTypes(name), "identity.removed.v1", "identity.appeared.v1")
		})
	}
}
