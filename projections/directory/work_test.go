package directory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/directory"
)

func TestBulk_VisibleAtCommit(t *testing.T) {
	w := newFixture(t)
	w.put("ana", traits{"team": "red"})
	w.rule("a", audience.MatchAll, is("team", "blue"))
	w.apply()
	commit := w.bulk("write", map[string]traits{"ana": {"team": "blue"}, "ben": {"team": "blue"}, "cid": nil})
	w.apply()
	check := func(when, team string) {
		t.Helper()
		w.want("identities "+when, w.names(here, directory.Listing{Limit: 10, Key: "team", Value: &team}),
			[]string{"ben", "ana"})
		for _, name := range []string{"ana", "ben"} {
			if got := w.reach(name); got != "[a]" {
				t.Errorf("%s, %s reaches %s", when, name, got)
			}
		}
		if got := w.reach("cid"); got != "[]" {
			t.Errorf("%s, cid reaches %s", when, got)
		}
		if a, _, err := w.queries.Audience(t.Context(), here, "a"); err != nil || a.MemberCount != 2 {
			t.Errorf("%s, the rule counts %d members, %v", when, a.MemberCount, err)
		}
	}
	check("at the commit", "blue")
	w.lists("at the commit", []uuid.UUID{id("write")}, "write")
	w.want("created at the commit", w.names(here, directory.Listing{Limit: 1}),
		w.names(here, directory.Listing{Limit: 10}))
	created := w.show("ben").CreatedAt

	for n, name := range []string{"ana", "ben", "cid"} {
		i := w.show(name)
		w.bulkRow("write", name, commit, &identity.Record{
			Identity: name, Traits: identity.Traits{Inline: decode[traits](i.Traits)}, Origin: identity.OriginAPI,
			CreatedAt: i.CreatedAt, UpdatedAt: i.UpdatedAt,
		})
		w.apply()
		check(fmt.Sprint("behind row ", n), "blue")
		if open, err := w.queries.OpenBulks(t.Context(), here, whos(name)); err != nil || len(open) != 0 {
			t.Errorf("open of %s: %v, %v", name, open, err)
		}
	}
	w.lists("behind the rows", nil, "write")
	w.fannedOut("write")
	w.apply()
	w.lists("behind the fan-out", nil)
	if got := w.show("ben").CreatedAt; !got.Equal(created) {
		t.Errorf("created at %v, then at %v", created, got)
	}
}

// lists checks the open bulk writes of the identities, and the bulk writes that are not fanned out.
func (w *fixture) lists(when string, open []uuid.UUID, unfanned ...string) {
	w.Helper()
	got, err := w.queries.OpenBulks(w.Context(), here, whos("ana", "ben", "cid", "dee"))
	if err != nil || len(got) != len(open) || len(open) > 0 && !slices.Equal(got, open) {
		w.Errorf("%s, open are %v, %v, want %v", when, got, err, open)
	}
	if got, err := w.queries.OpenBulks(
		w.Context(), project("nowhere"), whos("ana", "ben", "cid"),
	); err != nil || len(got) != 0 {
		w.Errorf("%s, open of a neighbour are %v, %v", when, got, err)
	}
	bulks, err := w.queries.PendingBulks(w.Context(), 10)
	var names []uuid.UUID
	for _, b := range bulks {
		names = append(names, b.ID)
		if b.ProjectID != here.ID || b.AcceptedAt.IsZero() || b.Position == 0 {
			w.Errorf("%s, unfanned is %+v", when, b)
		}
	}
	var want []uuid.UUID
	for _, name := range unfanned {
		want = append(want, id(name))
	}
	if err != nil || !slices.Equal(names, want) {
		w.Errorf("%s, unfanned are %v, %v, want %v", when, names, err, want)
	}
}

// A single write is decided on its stream, while a row committed before it is not written to the
// stream.
func TestBulk_PatchBeforeRow(t *testing.T) {
	w := newFixture(t)
	w.put("ana", traits{"team": "red", "role": "x"})
	w.bulk("write", map[string]traits{"ana": {"team": "blue"}})
	later := w.bulk("later", map[string]traits{"ben": {"team": "green"}})
	record := w.record("ana", traits{"team": "red", "role": "x", "level": "1"})
	w.Append(stream.Name(stream.Identity, who("ana")),
		&identity.TraitsMerged{ProjectID: here.ID, Patch: identity.Patch{Set: traits{"level": "1"}}, Record: record})
	w.apply()
	if got := decode[traits](w.show("ana").Traits); !cmp.Equal(got, traits{"team": "blue", "level": "1"}) {
		t.Errorf("a patch over the row: %v", got)
	}
	// A late row of an earlier commit does not replace that of the later commit.
	w.bulkRow("earlier", "ben", later-5, &identity.Record{
		Identity: "ben", Traits: identity.Traits{Inline: traits{"team": "old"}}, Origin: identity.OriginCSV,
		CreatedAt: noon,
	})
	w.apply()
	if ben := w.show("ben"); !cmp.Equal(
		decode[traits](ben.Traits), traits{"team": "green"},
	) || ben.Origin != "csv" || !ben.CreatedAt.Equal(noon) {
		t.Errorf("a late row over a later commit: %+v", ben)
	}
}

func TestRecordHeads_OpenRemovals(t *testing.T) {
	w := newFixture(t)
	w.put("ana", nil)
	w.put("ana", traits{"team": "red"})
	ana := w.Facts[len(w.Facts)-1].Event.(*identity.TraitsReplaced).Record
	ana.Traits = identity.Traits{}
	w.put("ben", nil)
	w.remove("ben")
	removal := w.Facts[len(w.Facts)-1]
	w.bulk("write", map[string]traits{"cid": nil})
	w.apply()
	check := func(p auth.Project, want map[uuid.UUID]work.RecordHead) {
		t.Helper()
		got, err := w.queries.RecordHeads(t.Context(), p, whos("ana", "ben", "cid", "dee"))
		runtest.Must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("standing (-want +got):\n%s", diff)
		}
	}
	check(here, map[uuid.UUID]work.RecordHead{who("ana"): {Revision: 1, Record: &ana}, who("ben"): {Revision: 1}})
	check(project("nowhere"), map[uuid.UUID]work.RecordHead{})
	open := func(list ...work.Removal) {
		t.Helper()
		want := append([]work.Removal{}, list...)
		got, err := w.queries.OpenRemovals(t.Context(), nil, 10)
		runtest.Must(t, err)
		if diff := cmp.Diff(
			want, got, cmp.Transformer("at", func(at time.Time) string { return at.UTC().String() }),
		); diff != "" {
			t.Errorf("open removals (-want +got):\n%s", diff)
		}
		if bulks, removals, err := w.queries.Open(t.Context()); err != nil || bulks != 1 || removals != len(list) {
			t.Errorf("%d bulk writes and %d removals are open, %v", bulks, removals, err)
		}
		for n := range list {
			if rest, err := w.queries.OpenRemovals(t.Context(), &list[n], 10); err != nil || len(rest) != len(list)-n-1 {
				t.Errorf("after removal %d: %v, %v", n, rest, err)
			}
		}
	}
	first := work.Removal{
		ProjectID: here.ID, IdentityID: who("ben"), Revision: 1,
		RemovedAt: removal.Event.(*identity.Removed).RemovedAt, Position: removal.Position,
	}
	open(first)
	// It is removed again before the first removal is cleared: that leaves the second removal open.
	w.put("ben", nil)
	w.remove("ben")
	again := w.Facts[len(w.Facts)-1]
	w.apply()
	second := first
	second.Revision, second.RemovedAt, second.Position = 3, again.Event.(*identity.Removed).RemovedAt, again.Position
	open(second)
	cleared := func(removal eventstore.Revision) {
		w.Append(stream.Name(stream.Identity, who("ben")), &identity.Cleared{ProjectID: here.ID, Removal: int64(removal)})
		w.apply()
	}
	cleared(1)
	open(second)
	cleared(3)
	open()
	check(here, map[uuid.UUID]work.RecordHead{who("ana"): {Revision: 1, Record: &ana}, who("ben"): {Revision: 5}})
}
