package recallindex_test

import (
	"testing"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/recallindex"
)

func TestProjector_PageIsBoundedByItsText(t *testing.T) {
	text := func(bytes int64) eventstore.DecodedEvent {
		return eventstore.DecodedEvent{Event: &datapoint.RevisionAccepted{
			Body: datapoint.Body{Content: datapoint.Text{Blob: &blob.Ref{Size: bytes}}},
		}}
	}
	const half = 16 << 20
	none := eventstore.DecodedEvent{Event: &datapoint.Deleted{}}
	for name, c := range map[string]struct {
		events []eventstore.DecodedEvent
		want   int
	}{
		"at the bound":             {[]eventstore.DecodedEvent{text(half), none, text(half), none}, 4},
		"one byte more":            {[]eventstore.DecodedEvent{text(half), none, text(half + 1), none}, 2},
		"one event over the bound": {[]eventstore.DecodedEvent{text(3 * half), none}, 1},
		"without text":             {[]eventstore.DecodedEvent{none, none, none}, 3},
	} {
		if got := (*recallindex.Projector)(nil).Fit(c.events); got != c.want {
			t.Errorf("%s: a page takes %d events, want %d", name, got, c.want)
		}
	}
}
