package indextest

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
)

// damaged: a part that is damaged is lost alone. The others answer as before, all take changes, and the part answers once it
// is filled again, also where the process ends meanwhile.
func damaged(t *testing.T, in Storage) {
	x := in.Open(t)
	projects := make([]uuid.UUID, 40)
	document := recallindex.Document{}
	for i := range projects {
		projects[i] = uuid.New()
		document = passage(uuid.New(), 1, 0, "helix", "")
		apply(t, x, projects[i], recallindex.Change{
			Upserts: []recallindex.Document{document}, Moves: []recallindex.Move{{DataPoint: document.DataPoint, Audience: uuid.New()}, {DataPoint: document.DataPoint}},
		})
	}
	again := func() {
		t.Helper()
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		x = in.Open(t)
	}
	generation := x.Generation()
	equal(t, "losses before", len(x.Losses()), 0)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	in.Damage(t, projects[0])
	x = in.Open(t)
	equal(t, "generation", x.Generation(), generation)
	loss := func() recallindex.Loss {
		t.Helper()
		losses := x.Losses()
		if len(losses) != 1 || !losses[0].Holds(projects[0]) || losses[0].Part == "" {
			t.Fatalf("losses %+v", losses)
		}
		return losses[0]
	}
	lost, others := loss(), 0
	check := func(documents int) {
		t.Helper()
		others = 0
		for _, project := range projects {
			found, err := x.Search(t.Context(), query(project, "helix"))
			switch {
			case lost.Holds(project) && !errors.Is(err, recallindex.ErrIncomplete):
				t.Fatalf("a search in the lost part: %v", err)
			case lost.Holds(project):
			case err != nil || len(found.Hits) != documents:
				t.Fatalf("a search in another part: %d hits, %v", len(found.Hits), err)
			default:
				others++
			}
		}
	}
	check(1)
	if others == 0 {
		t.Fatal("all is lost")
	}
	// Changes go on in all parts.
	page := make([]recallindex.Change, len(projects))
	for i, project := range projects {
		page[i] = recallindex.Change{Project: project, Upserts: []recallindex.Document{passage(uuid.New(), 1, 0, "helix", "")}}
	}
	if err := x.Apply(t.Context(), page); err != nil {
		t.Fatal(err)
	}
	check(2)
	if _, err := x.Expunge(t.Context()); err != nil {
		t.Fatal(err)
	}
	reached := recallindex.Mark{Project: projects[0], DataPoint: uuid.New()}
	if err := x.Refilled(t.Context(), lost, &reached); err != nil {
		t.Fatal(err)
	}
	again()
	equal(t, "reached", loss().Reached, reached)
	equal(t, "id", loss().ID, lost.ID)
	check(2)
	if err := x.Refilled(t.Context(), recallindex.Loss{ID: uuid.New(), Part: lost.Part}, nil); !errors.Is(err, recallindex.ErrDamaged) {
		t.Errorf("another loss of the part is over: %v", err)
	}
	check(2)
	if err := x.Refilled(t.Context(), loss(), nil); err != nil {
		t.Fatal(err)
	}
	again()
	equal(t, "losses", len(x.Losses()), 0)
	equal(t, "what came since", len(search(t, x, query(projects[0], "helix")).Hits), 1)
	// A new generation has lost nothing.
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	in.Damage(t, projects[0])
	x = in.Open(t)
	loss()
	if err := x.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	again()
	equal(t, "losses of a new generation", len(x.Losses()), 0)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}
