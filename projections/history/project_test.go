package history_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
	"github.com/annals-project/annals/projections/history"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func rowsAfter(t *rapid.T, tt *testing.T, db *pgxpool.Pool, pages [][]eventstore.DecodedEvent) map[string][]string {
	tt.Helper()
	return projectiontest.RowsAfter(t, tt, db, history.New(), pages)
}

// byPeople makes people of some of the callers of a history. Each data point is deleted by a person, as its facts
// retain.
func byPeople(t *rapid.T, facts []eventstore.DecodedEvent) {
	for i := range facts {
		switch e := facts[i].Event.(type) {
		case *datapoint.Deleted:
			facts[i].Details.Principal = "person:" + stream.Owner(facts[i].Stream).String()
		case *deletion.FactsKept:
			e.Principal = "person:" + e.DataPoint.String()
		default:
			facts[i].Details.Principal = rapid.SampledFrom([]string{"person:" + uuid.Nil.String(), "key:x"}).Draw(t, "by")
		}
	}
}

// Pages of any size, and pages that come twice, give the same rows.
func TestProjector_PageSizes(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, history.New())
	rapid.Check(tt, func(t *rapid.T) {
		h := projectiontest.DrawBlobHistory(t)
		byPeople(t, h.Facts)
		pages := projectiontest.Cut(t, h.Facts)
		var single, twice [][]eventstore.DecodedEvent
		for _, f := range h.Facts {
			single = append(single, []eventstore.DecodedEvent{f})
		}
		for _, page := range pages {
			twice = append(twice, page, page)
		}
		want := rowsAfter(t, tt, db, single)
		if diff := cmp.Diff(want, rowsAfter(t, tt, db, pages)); diff != "" {
			t.Fatalf("rows of pages differ from those of single events (-single +pages):\n%s", diff)
		}
		if diff := cmp.Diff(want, rowsAfter(t, tt, db, twice)); diff != "" {
			t.Fatalf("pages that come twice change rows (-once +twice):\n%s", diff)
		}
	})
}

// The rows after an erasure are those of a log that never had the erased events: who deleted a text is known from its
// retained facts.
func TestProjector_ErasedStreams(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, history.New())
	rapid.Check(tt, func(t *rapid.T) {
		h := projectiontest.DrawBlobHistory(t)
		byPeople(t, h.Facts)
		left := h.WithoutErased(t)
		want := rowsAfter(t, tt, db, projectiontest.Cut(t, h.Facts))
		if diff := cmp.Diff(want, rowsAfter(t, tt, db, projectiontest.Cut(t, left))); diff != "" {
			t.Fatalf("%d of %d events left: rows differ (-whole +erased):\n%s", len(left), len(h.Facts), diff)
		}
	})
}

// A removal of an identity takes the rows of what was before it, and of its traits nothing is kept.
func TestProjector_RemovedIdentity(t *testing.T) {
	db := pgtest.Database(t)
	p := history.New()
	projectiontest.Make(t, db, p)
	project, name := uuid.New(), stream.Name(stream.Identity, uuid.New())
	traits := func(value string) *identity.TraitsReplaced {
		return &identity.TraitsReplaced{ProjectID: project, Record: identity.Record{
			Identity: "ana", Traits: identity.Traits{Inline: map[string]string{"team": value}},
		}}
	}
	var log projectiontest.Log
	log.Append(name, &identity.Appeared{ProjectID: project, Identity: "ana"})
	log.Append(name, traits("a"))
	log.Append(name, &identity.Removed{ProjectID: project})
	log.Append(name, traits("a"))
	log.Append(name, traits("b"))
	rows := func(facts []eventstore.DecodedEvent) map[string][]string {
		projectiontest.Empty(t, db, p)
		projectiontest.Apply(t, db, p, facts...)
		dump, err := projectiontest.Dump(t.Context(), db, p)
		if err != nil {
			t.Fatal(err)
		}
		return dump
	}
	whole := rows(log.Facts)
	if diff := cmp.Diff(whole, rows(log.Facts[2:])); diff != "" {
		t.Errorf("rows differ without what the removal took (-whole +left):\n%s", diff)
	}
	if n := len(whole["entries"]); n != 3 {
		t.Errorf("%d entries, want the removal and two traits: %v", n, whole["entries"])
	}
	if dump := rows(log.Facts[:3]); len(dump["settings"]) != 0 || len(dump["entries"]) != 1 {
		t.Errorf("after a removal: %v", dump)
	}
}

// A setting that is written again unchanged has no row, and one that changed knows where the value before is.
func TestProjector_UnchangedSetting(t *testing.T) {
	db := pgtest.Database(t)
	p := history.New()
	projectiontest.Make(t, db, p)
	project, id := uuid.New(), uuid.New()
	put := func(trait string) *audience.Put {
		return &audience.Put{ProjectID: project, AudienceID: id, Slug: "team", Kind: audience.KindRule, Rule: &audience.Rule{
			Match: audience.MatchAll, Conditions: []audience.Condition{{Trait: trait, Operator: audience.Exists}},
		}}
	}
	var log projectiontest.Log
	name := stream.Name(stream.Audiences, project)
	for _, trait := range []string{"a", "a", "b", "b", "a"} {
		log.Append(name, put(trait))
	}
	projectiontest.Apply(t, db, p, log.Facts[:2]...)
	projectiontest.Apply(t, db, p, log.Facts[2:]...)
	rows, err := db.Query(t.Context(), `select revision, former_revision from history.entries order by revision`)
	if err != nil {
		t.Fatal(err)
	}
	var got [][2]int64
	for rows.Next() {
		var revision int64
		var former *int64
		if err := rows.Scan(&revision, &former); err != nil {
			t.Fatal(err)
		}
		if former == nil {
			former = new(int64(-1))
		}
		got = append(got, [2]int64{revision, *former})
	}
	if diff := cmp.Diff([][2]int64{{0, -1}, {2, 0}, {4, 2}}, got); rows.Err() != nil || diff != "" {
		t.Errorf("revisions and those before (-want +got):\n%s %v", diff, rows.Err())
	}
}
