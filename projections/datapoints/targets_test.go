package datapoints_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
)

func TestSent_DeletedAndErased(t *testing.T) {
	w := newFixture(t)
	w.revised("s1", "live", alone)
	w.revised("s2", "live", alone)
	w.revised("s3", "deleted", alone)
	w.deleted("d1", "deleted", true)
	w.revised("s4", "erased", alone)
	w.deleted("d2", "erased", true)
	w.kept("d2", "erased", deletion.RetainedFact{IngestionID: id("s4"), Outcome: ingestion.Created, Revision: 1, Items: 1})
	w.cleaned("d2")
	w.apply()
	// A replay after the erasure reads only the retained facts.
	w.kept("d3", "long erased",
		deletion.RetainedFact{IngestionID: id("s5"), Outcome: ingestion.Created, Revision: 1, Items: 1})
	w.cleaned("d3")
	w.apply()
	var ids []uuid.UUID
	for _, name := range []string{"never", "live", "deleted", "erased", "long erased"} {
		ids = append(ids, id(name))
	}
	got, err := w.Queries.Sent(t.Context(), append(ids, ids...))
	if err != nil {
		t.Fatal(err)
	}
	want := map[uuid.UUID]struct{}{id("live"): {}, id("deleted"): {}, id("erased"): {}, id("long erased"): {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
