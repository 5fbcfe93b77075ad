package projectiontest

import (
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

// WithoutErased draws a log that lacks events of erased streams: some of them, or all. The blobs of
// a data point end after its own streams, and a log in which only some of them are ended lacks none
// of it.
func (h *History) WithoutErased(t *rapid.T) []eventstore.DecodedEvent {
	all := rapid.Bool().Draw(t, "all erased")
	var left []eventstore.DecodedEvent
	for _, f := range h.Facts {
		family := stream.Category(f.Stream)
		owner := stream.Owner(f.Stream)
		erasable := (family == stream.DataPoint || family == stream.Memory) && h.Erased[owner] && !h.holds(owner) ||
			h.Ended[f.Stream]
		if erasable && (all || rapid.Bool().Draw(t, "erased")) {
			continue
		}
		left = append(left, f)
	}
	return left
}

// Cut draws pages of a log.
func Cut(t *rapid.T, events []eventstore.DecodedEvent) [][]eventstore.DecodedEvent {
	var pages [][]eventstore.DecodedEvent
	for len(events) > 0 {
		n := rapid.IntRange(1, min(len(events), 25)).Draw(t, "page")
		pages, events = append(pages, events[:n]), events[n:]
	}
	return pages
}
