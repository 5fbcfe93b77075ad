package recallindex_test

import (
	"testing"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/recallindex"
)

func TestProjector_PageIsBoundedByItsText(t *testing.T) {
	text := func(bytes int64) eventstore.Fact {
		return eventstore.Fact{Event: &datapoint.RevisionAccepted{Body: datapoint.Body{Content: datapoint.Text{Blob: &blob.Ref{Size: bytes}}}}}
	}
	const half = 16 << 20
	none := eventstore.Fact{Event: &datapoint.Deleted{}}
	for name, c := range map[string]struct {
		facts []eventstore.Fact
		want  int
	}{
		"at the bound":             {[]eventstore.Fact{text(half), none, text(half), none}, 4},
		"one byte more":            {[]eventstore.Fact{text(half), none, text(half + 1), none}, 2},
		"one event over the bound": {[]eventstore.Fact{text(3 * half), none}, 1},
		"without text":             {[]eventstore.Fact{none, none, none}, 3},
	} {
		if got := (*recallindex.Projector)(nil).Fit(c.facts); got != c.want {
			t.Errorf("%s: a page takes %d events, want %d", name, got, c.want)
		}
	}
}
