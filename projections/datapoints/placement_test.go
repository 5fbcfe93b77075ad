package datapoints_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/datapoints"
)

func TestPlacement(t *testing.T) {
	w := newFixture(t)
	for _, source := range []string{"a", "b", "gone", "erased"} {
		w.revised("first "+source, source, location{})
	}
	w.revised("second", "a", location{})
	w.moved("third", "b", id("audience"), location{})
	w.derived("first a", "a", 0, 1)
	w.deleted("d", "gone", true)
	w.deleted("e", "erased", true)
	w.kept("e", "erased")
	w.cleaned("e")
	for name, c := range map[string]struct {
		project auth.Project
		sent    bool
		want    datapoints.Placement
	}{
		"a":      {project, true, datapoints.Placement{Revision: 2, Captured: 1}},
		"b":      {project, true, datapoints.Placement{Revision: 1, Audience: id("audience")}},
		"gone":   {project, true, datapoints.Placement{Deleted: true}},
		"erased": {project, true, datapoints.Placement{Deleted: true}},
		"never":  {project, false, datapoints.Placement{}},
	} {
		for _, of := range []auth.Project{c.project, neighbour} {
			sent, want := c.sent, c.want
			if of == neighbour {
				sent, want = false, datapoints.Placement{}
			}
			got, ok, err := w.Queries.Placement(t.Context(), of, id(name))
			if err != nil || ok != sent {
				t.Fatalf("%s in %s: %v, %v", name, of.Slug, ok, err)
			}
			if got.Deleted != want.Deleted || got.Revision != want.Revision || got.Captured != want.Captured ||
				got.Audience != want.Audience || ok && !got.Deleted && got.OccurredAt.IsZero() {
				t.Errorf("%s in %s: %+v, want %+v", name, of.Slug, got, want)
			}
		}
	}
	if _, ok, err := w.Queries.Placement(t.Context(), project, uuid.Nil); ok || err != nil {
		t.Errorf("no id: %v, %v", ok, err)
	}
}
