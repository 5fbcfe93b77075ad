package indextest

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
)

// damaged: a damaged part is lost alone. The others answer as before, all take changes, and the lost
// part answers once it is refilled, also if the process restarts meanwhile.
func damaged(t *testing.T, in Storage) {
	d := newDamaged(t, in)
	generation := d.x.Generation()
	equal(t, "losses before", len(d.x.Losses()), 0)
	d.damage()
	equal(t, "generation", d.x.Generation(), generation)
	lost := d.loss()
	if others := d.check(lost, 1); others == 0 {
		t.Fatal("all is lost")
	}
	// All parts take changes.
	page := make([]recallindex.Change, len(d.projects))
	for i, project := range d.projects {
		page[i] = recallindex.Change{
			Project: project, Analysis: Analysis, Upserts: []recallindex.Document{passage(uuid.New(), 1, 0, "helix", "")},
		}
	}
	if err := d.x.Apply(t.Context(), page); err != nil {
		t.Fatal(err)
	}
	d.check(lost, 2)
	if _, err := d.x.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	reached := recallindex.Cursor{Project: d.projects[0], DataPoint: uuid.New()}
	if err := d.x.Refilled(t.Context(), lost, &reached); err != nil {
		t.Fatal(err)
	}
	d.reopen()
	equal(t, "reached", d.loss().Reached, reached)
	equal(t, "id", d.loss().ID, lost.ID)
	d.check(lost, 2)
	other := recallindex.Loss{ID: uuid.New(), Part: lost.Part}
	if err := d.x.Refilled(t.Context(), other, nil); !errors.Is(err, recallindex.ErrDamaged) {
		t.Errorf("another loss of the part is over: %v", err)
	}
	d.check(lost, 2)
	if err := d.x.Refilled(t.Context(), d.loss(), nil); err != nil {
		t.Fatal(err)
	}
	d.reopen()
	equal(t, "losses", len(d.x.Losses()), 0)
	equal(t, "what came since", len(search(t, d.x, query(d.projects[0], "helix")).Hits), 1)
	// A new generation has lost nothing.
	d.damage()
	d.loss()
	if err := d.x.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.reopen()
	equal(t, "losses of a new generation", len(d.x.Losses()), 0)
	d.close()
}

// damagedIndex is an index with a document of each of some projects.
type damagedIndex struct {
	t        *testing.T
	in       Storage
	x        recallindex.Index
	projects []uuid.UUID
}

func newDamaged(t *testing.T, in Storage) *damagedIndex {
	t.Helper()
	d := &damagedIndex{t: t, in: in, x: in.Open(t), projects: make([]uuid.UUID, 40)}
	for i := range d.projects {
		d.projects[i] = uuid.New()
		document := passage(uuid.New(), 1, 0, "helix", "")
		apply(t, d.x, d.projects[i], recallindex.Change{
			Upserts: []recallindex.Document{document},
			Moves:   []recallindex.Move{{DataPoint: document.DataPoint, Audience: uuid.New()}, {DataPoint: document.DataPoint}},
		})
	}
	return d
}

func (d *damagedIndex) close() {
	d.t.Helper()
	if err := d.x.Close(); err != nil {
		d.t.Fatal(err)
	}
}

func (d *damagedIndex) reopen() {
	d.t.Helper()
	d.close()
	d.x = d.in.Open(d.t)
}

// damage damages the part of the first project.
func (d *damagedIndex) damage() {
	d.t.Helper()
	d.close()
	d.in.Damage(d.t, d.projects[0])
	d.x = d.in.Open(d.t)
}

// loss returns the one loss, which is of the first project.
func (d *damagedIndex) loss() recallindex.Loss {
	d.t.Helper()
	losses := d.x.Losses()
	if len(losses) != 1 || !losses[0].Holds(d.projects[0]) || losses[0].Part == "" {
		d.t.Fatalf("losses %+v", losses)
	}
	return losses[0]
}

// check searches all projects. It returns how many are not in the lost part.
func (d *damagedIndex) check(lost recallindex.Loss, documents int) (others int) {
	d.t.Helper()
	for _, project := range d.projects {
		found, err := d.x.Search(d.t.Context(), query(project, "helix"))
		switch {
		case lost.Holds(project) && !errors.Is(err, recallindex.ErrIncomplete):
			d.t.Fatalf("a search in the lost part: %v", err)
		case lost.Holds(project):
		case err != nil || len(found.Sources.Hits) != documents:
			d.t.Fatalf("a search in another part: %d hits, %v", len(found.Sources.Hits), err)
		default:
			others++
		}
	}
	return others
}
