package indextest

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// projectsAmongOthers: a page of many projects is applied as one. Each project is counted and found
// by itself, also after some of it is deleted and another project is dropped. Data points of two
// projects may share an id.
func projectsAmongOthers(t *testing.T, open Open) {
	x, same := opened(t, open), uuid.New()
	const many = 40
	ids := make([]uuid.UUID, many)
	page := make([]recallindex.Change, many)
	for i := range ids {
		ids[i] = uuid.New()
		page[i] = recallindex.Change{Project: ids[i], Analysis: Analysis, Upserts: []recallindex.Document{
			passage(same, 1, 0, fmt.Sprintf("helix own%d", i), "editor"), passage(uuid.New(), 1, 0, "helix helix", ""),
			memoryOf(same, uuid.New(), "helix line"),
		}}
		for n := range i {
			page[i].Upserts = append(page[i].Upserts, passage(same, 1, n+1, "vim", ""))
		}
	}
	if err := x.Apply(t.Context(), page); err != nil {
		t.Fatal(err)
	}
	check := func(from int) {
		t.Helper()
		for i := from; i < many; i++ {
			found := search(t, x, query(ids[i], fmt.Sprintf("helix vim editor own%d own%d", i, (i+1)%many)))
			equal(t, "statistics", found.Statistics,
				recall.Statistics{Docs: 2 + i, Frequencies: []recall.Count{{Text: 2}, {Text: i}, {Label: 1}, {Text: 1}, {}}})
			equal(t, "hits", len(found.Hits), 2+i)
			equal(t, "count", count(t, x, ids[i]), 3+i)
		}
	}
	check(0)
	if err := x.DropProject(t.Context(), ids[0]); err != nil {
		t.Fatal(err)
	}
	apply(t, x, ids[1], recallindex.Change{Deletes: []recallindex.Scope{sources(same, 1)}})
	equal(t, "dropped", count(t, x, ids[0]), 0)
	equal(t, "deleted", count(t, x, ids[1]), 2)
	check(2)
}

// moves: a moved data point is found by its new audience at once and by no other, with all its
// documents, and after a restart.
func moves(t *testing.T, open Open) {
	x, project, team, board := open(t), uuid.New(), uuid.New(), uuid.New()
	long, short, still := uuid.New(), uuid.New(), uuid.New()
	change := recallindex.Change{Upserts: []recallindex.Document{
		passage(short, 1, 0, "plan", ""), passage(still, 1, 0, "plan", ""), memoryOf(short, uuid.New(), "plan"),
	}}
	for n := range 50 {
		change.Upserts = append(change.Upserts, passage(long, 1, n, "plan", ""))
	}
	apply(t, x, project, change)
	hits := func(part recallindex.Part, audience uuid.UUID) int {
		t.Helper()
		q := query(project, "plan")
		q.Audiences = []uuid.UUID{audience}
		found := searchBoth(t, x, q)
		return len(found.Of(part).Hits)
	}
	want := func(visible, ofTeam, ofBoard, memory int) {
		t.Helper()
		equal(t, "project-visible", hits(recallindex.Sources, uuid.Nil), visible)
		equal(t, "team", hits(recallindex.Sources, team), ofTeam)
		equal(t, "board", hits(recallindex.Sources, board), ofBoard)
		equal(t, "memory of the team", hits(recallindex.Memories, team), memory)
		equal(t, "statistics", search(t, x, query(project, "plan")).Statistics,
			recall.Statistics{Docs: visible + ofTeam + ofBoard, Frequencies: []recall.Count{{Text: visible + ofTeam + ofBoard}}})
	}
	want(52, 0, 0, 0)
	apply(t, x, project, recallindex.Change{Moves: []recallindex.Move{
		{DataPoint: long, Audience: board},
		{DataPoint: short, Audience: team},
		{DataPoint: uuid.New(), Audience: team},
	}})
	want(1, 1, 50, 1)
	// New documents of other data points do not change that.
	apply(t, x, project, recallindex.Change{Upserts: []recallindex.Document{passage(uuid.New(), 1, 0, "plan", "")}})
	want(2, 1, 50, 1)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	x = opened(t, open)
	want(2, 1, 50, 1)
	apply(t, x, project, recallindex.Change{Moves: []recallindex.Move{{DataPoint: long, Audience: team}}})
	want(2, 51, 0, 1)
	if _, err := x.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(t, x, project, recallindex.Change{Moves: []recallindex.Move{{DataPoint: long}, {DataPoint: short}}})
	want(53, 0, 0, 0)
	apply(t, x, project, recallindex.Change{Deletes: []recallindex.Scope{sources(long, 1)}})
	want(3, 0, 0, 0)
}

// movesAndRevisions: what is indexed after a move has the audience that it is given, also after a
// deletion.
func movesAndRevisions(t *testing.T, open Open) {
	x, project, team, a := opened(t, open), uuid.New(), uuid.New(), uuid.New()
	hits := func(audience uuid.UUID) int {
		t.Helper()
		q := query(project, "plan")
		q.Audiences = []uuid.UUID{audience}
		return len(search(t, x, q).Hits)
	}
	apply(t, x, project,
		recallindex.Change{Upserts: []recallindex.Document{passage(a, 1, 0, "plan", ""), memoryOf(a, uuid.New(), "plan")}})
	apply(t, x, project, recallindex.Change{Moves: []recallindex.Move{{DataPoint: a, Audience: team}}})
	equal(t, "moved", hits(team), 1)
	// The next revision returns to the first audience; the memory follows.
	apply(t, x, project, recallindex.Change{
		Deletes: []recallindex.Scope{sources(a, 1)}, Upserts: []recallindex.Document{passage(a, 2, 0, "plan again", "")},
		Moves: []recallindex.Move{{DataPoint: a}},
	})
	equal(t, "back", []int{hits(team), hits(uuid.Nil)}, []int{0, 1})
	// This revision has an audience but no move.
	apply(t, x, project, recallindex.Change{Deletes: []recallindex.Scope{sources(a, 2), memories(a, 1)}})
	third := passage(a, 3, 0, "plan", "")
	third.Audience = team
	apply(t, x, project, recallindex.Change{Upserts: []recallindex.Document{third}})
	equal(t, "third", []int{hits(team), hits(uuid.Nil)}, []int{1, 0})
	apply(t, x, project, recallindex.Change{Moves: []recallindex.Move{{DataPoint: a}}})
	apply(t, x, project, recallindex.Change{
		Deletes: []recallindex.Scope{sources(a, 3)},
		Upserts: []recallindex.Document{passage(a, 4, 0, "plan", "")},
	})
	equal(t, "fourth", []int{hits(team), hits(uuid.Nil)}, []int{0, 1})
}
