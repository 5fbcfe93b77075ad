package projectiontest

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
)

// next returns the lowest open revision of a data point. A worker without news of a deletion
// continues until the stream ends.
func next(p *point) *work {
	for _, w := range p.work {
		if !p.closed && (w.phase == "queued" || w.phase == "processing") {
			return w
		}
	}
	return nil
}

func (h *History) start() {
	p, ok := some(h, "start", h.dataPoints, func(p *point) bool { return next(p) != nil })
	if !ok {
		return
	}
	w := next(p)
	w.phase, w.attempt = "processing", w.attempt+1
	h.Append(stream.Name(stream.Memory, p.id), &memory.DerivationStarted{
		ProjectID: p.project, IngestionID: w.send.id, Ordinal: w.ordinal, Revision: w.revision,
		Attempt: w.attempt, Round: w.send.round, StartedAt: h.now(),
	})
}

func (h *History) finish() {
	processing := func(p *point) bool { return next(p) != nil && next(p).phase == "processing" }
	p, ok := some(h, "finish", h.dataPoints, processing)
	if !ok {
		return
	}
	w := next(p)
	if outcome := h.pick("outcome", 4); outcome > 1 {
		w.phase = "captured"
		h.Append(stream.Name(stream.Memory, p.id), h.derived(w))
	} else {
		final := outcome == 1
		if w.phase = "queued"; final {
			w.phase = "failed"
		}
		h.Append(stream.Name(stream.Memory, p.id), &memory.Failed{
			ProjectID: p.project, IngestionID: w.send.id, Ordinal: w.ordinal, Revision: w.revision,
			Attempt: w.attempt, Round: w.send.round,
			Code: ingestion.ModelUnavailable, Message: fmt.Sprintf("attempt %d", w.attempt), FailedAt: h.now(), Final: final,
		})
	}
}

func (h *History) derived(w *work) *memory.Derived {
	e := &memory.Derived{
		ProjectID: w.point.project, IngestionID: w.send.id, Ordinal: w.ordinal, Revision: w.revision, Extractor: "builtin/1",
		DerivedAt: h.now(), OccurredAt: w.send.at,
	}
	node := datapoint.NodeID(w.point.id, w.revision)
	for n := range h.pick("memories", 4) {
		m := memory.Memory{
			ID: memory.ID(
				w.point.id, w.revision, n,
			), Kind: memory.Claim, Content: fmt.Sprintf("line %d\x00", h.ids), Excerpt: "line",
			Subject: "ana", Attribute: "editor\x00", Inputs: []uuid.UUID{node, node},
		}
		if n > 0 {
			m.Inputs = []uuid.UUID{memory.ID(w.point.id, w.revision, n-1)}
		}
		e.Memories = append(e.Memories, m)
	}
	w.memories = len(e.Memories)
	w.point.derived = append(w.point.derived, deletion.MemoryCount{Revision: w.revision, Count: w.memories})
	if h.Blobs == nil {
		return e
	}
	data, err := memory.Encode(e.Memories)
	if err != nil {
		h.t.Fatal(err)
	}
	if e.Blob = h.put(w.point, data); e.Blob != nil {
		e.Memories = nil
	}
	return e
}

// rederive derives a captured revision again.
func (h *History) rederive() {
	p, ok := some(h, "rederive", h.dataPoints, func(p *point) bool { return !p.closed && len(p.work) > 0 })
	if !ok {
		return
	}
	w, ok := some(h, "revision", p.work, func(w *work) bool { return w.phase == "captured" })
	if ok {
		h.Append(stream.Name(stream.Memory, p.id), h.derived(w))
	}
}

// ended reports whether every item of a send came to an end, as the confirmer sees it.
func (s *send) ended() (ended, failed, captured bool) {
	if !s.fanned {
		return false, false, false
	}
	for _, w := range s.work {
		switch {
		case !live(w.point):
		case w.phase == "failed":
			failed = true
		case w.phase == "captured":
			captured = true
		default:
			return false, false, false
		}
	}
	return true, failed, captured
}

// confirm ends a send. A deletion may come between its check and its append.
func (h *History) confirm() {
	s, ok := some(h, "confirm", h.sends, func(s *send) bool {
		ended, _, _ := s.ended()
		return ended && s.verdict == "" && s.searchableAt.IsZero() && len(s.work) > 0
	})
	if !ok {
		return
	}
	_, stopped, captured := s.ended()
	name := stream.Name(stream.Ingestion, s.id)
	if stopped || (captured && h.pick("index", 3) == 0) {
		code := ingestion.ModelUnavailable
		if s.unindexed = !stopped; s.unindexed {
			code = ingestion.IndexUnavailable
		}
		s.verdict = "failed"
		h.Append(name, &ingestion.Failed{ProjectID: s.project, Code: code, Message: "it failed", FailedAt: h.now()})
		return
	}
	s.verdict = "indexed"
	h.Append(name, &ingestion.Indexed{ProjectID: s.project, IndexedAt: h.now()})
}

func (h *History) retry() {
	s, ok := some(h, "retry", h.sends, func(s *send) bool { return s.verdict == "failed" })
	if !ok {
		return
	}
	s.verdict, s.unindexed, s.stale = "", false, false
	s.round++
	for _, w := range s.work {
		if w.phase == "failed" {
			w.phase, w.attempt = "queued", 0
		}
	}
	h.Append(stream.Name(stream.Ingestion, s.id),
		&ingestion.Retried{ProjectID: s.project, Round: s.round, RequestID: h.id(), RetriedAt: h.now()})
}
