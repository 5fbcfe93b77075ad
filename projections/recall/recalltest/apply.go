package recalltest

import (
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections"
)

// CatchUp applies the log to the named projections, or to all of them.
func (h *Harness) CatchUp(names ...string) {
	h.t.Helper()
	if h.semantic {
		h.embed()
	}
	for _, p := range h.projectors {
		wanted := len(names) == 0
		for _, name := range names {
			wanted = wanted || name == p.Name()
		}
		if !wanted {
			continue
		}
		for h.ApplyPage(p, h.PageSize, true) {
		}
	}
}

// ApplyPage applies the next page to a projector; without commit it rolls back. It returns false at
// the head.
func (h *Harness) ApplyPage(p projections.Projector, size int, commit bool) bool {
	h.t.Helper()
	recorded, err := h.Store.ReadAll(h.t.Context(), h.applied[p.Name()], size)
	if err != nil {
		h.t.Fatal(err)
	}
	if len(recorded) == 0 {
		return false
	}
	var events []eventstore.DecodedEvent
	for _, r := range recorded {
		if r.System() { // no projector of this harness applies the end of a stream
			continue
		}
		for _, category := range p.Categories() {
			if stream.Category(r.Stream) == category {
				events = append(events, h.Codec.DecodeRecorded(r))
			}
		}
	}
	tx, err := h.DB.Begin(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	if len(events) > 0 {
		if err := projectiontest.Enter(h.t.Context(), tx, p); err != nil {
			h.t.Fatal(err)
		}
		if err := p.Apply(h.t.Context(), tx, events); err != nil {
			h.t.Fatalf("%s: %v", p.Name(), err)
		}
	}
	if !commit {
		if err := tx.Rollback(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
		return true
	}
	if err := tx.Commit(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	h.applied[p.Name()] = recorded[len(recorded)-1].Position
	return true
}
