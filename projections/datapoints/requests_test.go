package datapoints_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/auth"
)

func TestSourceIDs_LiveOnesOfTheProject(t *testing.T) {
	w := newFixture(t)
	w.revised("s", "a", alone)
	w.revised("t", "b", alone)
	w.deleted("d", "b", true)
	w.apply()
	asked := []uuid.UUID{id("a"), id("b"), id("none")}
	got, err := w.Queries.SourceIDs(t.Context(), project, asked)
	if diff := cmp.Diff(map[uuid.UUID]string{id("a"): "a"}, got); err != nil || diff != "" {
		t.Errorf("source ids (-want +got): %v\n%s", err, diff)
	}
	if got, err := w.Queries.SourceIDs(t.Context(), auth.Project{ID: uuid.New()}, asked); err != nil || len(got) > 0 {
		t.Errorf("of another project: %v, %v", got, err)
	}
}
