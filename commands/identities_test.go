package commands_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

func (w *fixture) blobTraits(record *identity.Record) map[string]string {
	w.t.Helper()
	data, err := w.log.ReadBlob(w.t.Context(), *record.Traits.Blob)
	runtest.Must(w.t, err)
	read := map[string]string{}
	runtest.Must(w.t, json.Unmarshal(data, &read))
	return read
}

func TestPutIdentity_CreatesAndReplaces(t *testing.T) {
	w := newFixture(t)
	first := w.putIdentity(w.call, "ana", traits{"team": "red"})
	second := w.putIdentity(w.later(5), "ana", traits{"city": "Porto"})
	if first.ID != w.identityID("ana") || first.Origin != identity.OriginAPI || !maps.Equal(first.Traits, traits{"team": "red"}) ||
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
	patch := func(second int, set traits, removed ...string) identities.IdentityReceipt {
		t.Helper()
		r, err := w.PatchIdentity(t.Context(), w.later(second), "bo", set, removed)
		runtest.Must(t, err)
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
	if record.Traits.Blob == nil || stream.Owner(record.Traits.Blob.Stream) != w.identityID("ana") {
		t.Fatalf("traits %+v", record.Traits)
	}
	more := big(201)
	r, err := w.PatchIdentity(t.Context(), w.later(1), "ana", more, nil)
	if err != nil || !maps.Equal(r.Traits, more) {
		t.Fatalf("%d traits, %v", len(r.Traits), err)
	}
	runtest.Must(t, errorOf(w.PatchIdentity(t.Context(), w.later(2), "ana", traits{"last": "one"}, []string{"key 0"})))
	more["last"] = "one"
	delete(more, "key 0")
	w.wantTraits(t, "ana", more)
	merged := w.records("ana")[1].Event.(*identity.TraitsMerged)
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
	wantFault(t, errorOf(w.PatchIdentity(t.Context(), w.later(3), "bo", big(270), nil)), fault.CodeTraitsInvalid)
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
	name, meta := stream.Name(stream.Identity, w.identityID("ana")), event.NewMeta("test", time.Now())
	runtest.Must(t, errorOf(w.log.Append(t.Context(), name, eventstore.NoStream, meta, stored)))
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
	runtest.Must(t, w.DeleteIdentity(t.Context(), w.later(1), "ana"))
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
	runtest.Must(t, w.DeleteIdentity(t.Context(), w.later(2), "ana"))
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
	if err := w.dying(t, 1).DeleteIdentity(t.Context(), w.later(1), "ana"); err != nil {
		t.Fatal(err) // the removal succeeds even if the erasure of its text fails
	}
	wantTypes(t, w.identityTypes("ana"), "identity.traits-replaced.v1", "identity.removed.v1")
	w.putIdentity(w.later(2), "ana", traits{"b": "2"})
	clear := func() {
		t.Helper()
		r := work.Removal{ProjectID: w.call.Principal.Project.ID, IdentityID: w.identityID("ana"), Revision: 1}
		runtest.Must(t, w.eraser().TruncateIdentity(t.Context(), r))
		if cut, err := w.eraser().IsTruncated(t.Context(), r); !cut || err != nil {
			t.Fatalf("after the truncation, IsTruncated is %v, %v", cut, err)
		}
		runtest.Must(t, w.eraser().RecordCleared(t.Context(), r, w.later(3).ReceivedAt))
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
				runtest.Must(t, errorOf(service.Ingest(t.Context(), w.call, text(fmt.Sprint(name, i), "one", by(name)), "")))
			}
			wantTypes(t, w.identityTypes(name), "identity.appeared.v1")
			runtest.Must(t, remover.DeleteIdentity(t.Context(), w.call, name))
			runtest.Must(t, errorOf(service.Ingest(t.Context(), w.call, text(name+"3", "one", by(name)), "")))
			wantTypes(t, w.identityTypes(name), "identity.removed.v1", "identity.appeared.v1")
		})
	}
}

// logDirectory implements identities.Directory by a fold of the log, up to its head.
type logDirectory struct{ log *engine.Journal }

func (d logDirectory) fold(ctx context.Context, see func(eventstore.DecodedEvent)) error {
	records, err := d.log.Store.ReadAll(ctx, 0, 1<<20)
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.System() {
			continue
		}
		f := d.log.Codec.DecodeRecorded(r)
		if f.Err != nil {
			return f.Err
		}
		see(f)
	}
	return nil
}

func (d logDirectory) RecordHeads(
	ctx context.Context, _ auth.Project, ids []uuid.UUID,
) (map[uuid.UUID]work.RecordHead, error) {
	all := map[uuid.UUID]work.RecordHead{}
	err := d.fold(ctx, func(f eventstore.DecodedEvent) {
		if stream.Category(f.Stream) == stream.Identity {
			id := stream.Owner(f.Stream)
			all[id] = work.RecordHead{Revision: f.Revision, Record: identity.Evolve(all[id].Record, f.Event)}
		}
	})
	known := map[uuid.UUID]work.RecordHead{}
	for _, id := range ids {
		if at, ok := all[id]; ok {
			known[id] = at
		}
	}
	return known, err
}

func (d logDirectory) OpenBulks(ctx context.Context, project auth.Project, ids []uuid.UUID) ([]uuid.UUID, error) {
	asked, open := map[uuid.UUID]bool{}, map[uuid.UUID]bool{}
	for _, id := range ids {
		asked[id] = true
	}
	err := d.fold(ctx, func(f eventstore.DecodedEvent) {
		switch e := f.Event.(type) {
		case *identity.BulkAccepted:
			for _, target := range e.Targets {
				if asked[target.IdentityID] && e.ProjectID == project.ID {
					open[stream.Owner(f.Stream)] = true
				}
			}
		case *identity.BulkFannedOut:
			delete(open, stream.Owner(f.Stream))
		}
	})
	list := make([]uuid.UUID, 0, len(open))
	for id := range open {
		list = append(list, id)
	}
	return list, err
}

// later returns the call of the same caller some seconds later.
func (w *fixture) later(seconds int) engine.Call {
	call := w.call
	call.RequestID, call.ReceivedAt = uuid.New(), w.call.ReceivedAt.Add(time.Duration(seconds)*time.Second)
	return call
}

// record returns the directory record of an identity, folded from its stream, with all traits. It
// is nil if there is none.
func (w *fixture) record(name string) (*identity.Record, map[string]string) {
	w.t.Helper()
	var record *identity.Record
	for _, f := range w.records(name) {
		record = identity.Evolve(record, f.Event)
	}
	if record == nil {
		return nil, nil
	}
	if record.Traits.Blob == nil {
		return record, record.Traits.Inline
	}
	return record, w.blobTraits(record)
}

func (w *fixture) identityTypes(name string) []string { return typesOf(w.records(name)) }

func (w *fixture) putIdentity(call engine.Call, name string, traits map[string]string) identities.IdentityReceipt {
	w.t.Helper()
	r, err := w.PutIdentity(w.t.Context(), call, name, traits)
	runtest.Must(w.t, err)
	return r
}

func (w *fixture) wantTraits(t *testing.T, name string, want map[string]string) *identity.Record {
	t.Helper()
	record, traits := w.record(name)
	if (record == nil) != (want == nil) || !maps.Equal(traits, want) {
		t.Errorf("%s has traits %v, want %v", name, traits, want)
	}
	return record
}

func rows(pairs ...any) []identity.Row {
	var list []identity.Row
	for i := 0; i < len(pairs); i += 2 {
		traits, _ := pairs[i+1].(map[string]string)
		list = append(list, identity.Row{Identity: pairs[i].(string), Traits: traits})
	}
	return list
}

type traits = map[string]string

func TestReadIdentityFile(t *testing.T) {
	ana := identity.Row{Identity: "ana", Traits: traits{"team": "red", "site": "Oslo"}}
	ben := identity.Row{Identity: "ben", Traits: traits{"site": "Rome"}}
	for name, c := range map[string]struct {
		file string
		want identities.IdentityFile
	}{
		"with commas":     {"identity,team,site\nana,red,Oslo\nben,,Rome\n", identities.IdentityFile{Rows: []identity.Row{ana, ben}}},
		"of a table":      {"\ufeffIdentity;team;site\r\nana;red;Oslo\r\nben;;Rome", identities.IdentityFile{Rows: []identity.Row{ana, ben}}},
		"with tabs":       {"team\tidentity\tsite\nred\tana\tOslo\n", identities.IdentityFile{Rows: []identity.Row{ana}}},
		"with empty rows": {"identity, team ,site\n\nana,red,Oslo\n\n", identities.IdentityFile{Rows: []identity.Row{ana}}},
		"without rows":    {"identity,team,site\n", identities.IdentityFile{}},
		"with quotes": {"identity,team,site\n\"a,\"\"b\"\"\nc\",x,\n", identities.IdentityFile{Rows: []identity.Row{
			{Identity: "a,\"b\"\nc", Traits: traits{"team": "x"}},
		}}},
		"with problems": {
			"identity,team,site\nana,red\n\"x\ny\",\"red\"z,\n,red,\nana,red,Oslo\nana,blue,\nben,,Rome\n" +
				strings.Repeat("x", 201) + ",,\ncid," + strings.Repeat("y", 2001) + ",\n",
			identities.IdentityFile{Rows: []identity.Row{ana, ben}, Bad: 6, Problems: []identities.RowProblem{
				{Line: 2, Message: "has 2 cells: the header has 3"},
				{Line: 3, Message: `extraneous or missing " in quoted-field`},
				{Line: 5, Column: "identity", Message: "is empty"},
				{Line: 7, Column: "identity", Message: "line 6 has the same identity: remove one of the two"},
				{Line: 9, Column: "identity", Message: "has 201 characters: want 1 to 200"},
				{Line: 10, Column: "team", Message: "has 2001 characters: want 1 to 2000"},
			}},
		},
	} {
		got, err := identities.ReadIdentityFile([]byte(c.file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c.want.Keys = []string{"team", "site"}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestReadIdentityFile_Unreadable(t *testing.T) {
	for name, file := range map[string]string{
		"is empty":               "",
		"no column \"identity\"": "name,team\nana,red\n",
		"names \"team\" twice":   "identity,team,team\n",
		"column 2":               "identity,,team\n",
		"not UTF-8":              "identity,team\n\xff,red\n",
		"more than 20000 rows":   "identity\n" + strings.Repeat("a\n", limit.IdentityFileRows+1),
		"more than 1048576":      "identity\n" + strings.Repeat("a", limit.IdentityFile),
		"1001 traits":            "identity" + manyColumns(limit.Traits+1) + "\n",
	} {
		_, err := identities.ReadIdentityFile([]byte(file))
		f, is := errors.AsType[*fault.Error](err)
		if !is || f.Kind != fault.Invalid || !strings.Contains(f.Msg, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := "identity,team\n" + strings.Repeat("x\n", 500)
	got, err := identities.ReadIdentityFile([]byte(many))
	if err != nil || got.Bad != 500 || len(got.Problems) != 100 {
		t.Errorf("many problems: %d of %d, %v", len(got.Problems), got.Bad, err)
	}
}

func manyColumns(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprint(&b, ",t", i)
	}
	return b.String()
}

func FuzzReadIdentityFile(f *testing.F) {
	f.Add([]byte("identity,team\nana,red\nben,\n"))
	f.Add([]byte("\ufeffidentity;\"a\nb\"\n;;\n\"x"))
	f.Fuzz(func(t *testing.T, file []byte) {
		got, err := identities.ReadIdentityFile(file)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, row := range got.Rows {
			if row.Identity == "" || seen[row.Identity] || len(row.Traits) > len(got.Keys) {
				t.Fatalf("row %v of %q", row, file)
			}
			seen[row.Identity] = true
		}
		if len(got.Problems) > got.Bad || got.Bad > 0 && len(got.Problems) == 0 {
			t.Fatalf("%d problems of %d rows", len(got.Problems), got.Bad)
		}
	})
}

func TestImportIdentities_InParts(t *testing.T) {
	w := newFixture(t)
	w.putIdentity(w.call, "person 7", traits{"old": "yes"})
	rows := make([]identity.Row, limit.BulkRows+3)
	for n := range rows {
		rows[n] = identity.Row{Identity: fmt.Sprint("person ", n), Traits: traits{"team": "red"}}
	}
	created, updated, err := w.ImportIdentities(t.Context(), w.later(1), rows)
	if err != nil || created != limit.BulkRows+2 || updated != 1 {
		t.Fatalf("created %d, updated %d, %v", created, updated, err)
	}
	if bulks := len(w.bulks()); bulks != 2 {
		t.Errorf("%d bulk writes, want 2", bulks)
	}
	for name, want := range map[string]identity.Origin{"person 7": identity.OriginAPI, "person 1001": identity.OriginCSV} {
		if got := w.wantTraits(t, name, traits{"team": "red"}); got.Origin != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestPutIdentity_OriginOfThePerson(t *testing.T) {
	w := newFixture(t)
	call := w.call
	call.Principal.Kind = auth.Person
	w.putIdentity(call, "ana", traits{"team": "red"})
	w.putIdentity(w.later(1), "ana", traits{"team": "blue"})
	if got, _ := w.record("ana"); got.Origin != identity.OriginConsole {
		t.Errorf("the origin is %s", got.Origin)
	}
}
