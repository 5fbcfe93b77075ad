package projectiontest

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/stream"
)

// endStep records which sends a step captured.
func (h *History) endStep() {
	at := h.Next() - 1
	h.ends = append(h.ends, at)
	for _, s := range h.sends {
		switch {
		case h.phaseOf(s) != "captured":
			s.capturedAt = 0
		case s.capturedAt == 0:
			s.capturedAt = at
		}
	}
}

// watermark declares everything searchable that was captured up to the end of some step.
func (h *History) watermark() {
	if len(h.ends) == 0 {
		return
	}
	h.searchable = len(h.ends) - 1 - h.pick("steps that are not searchable", len(h.ends)-h.searchable)
	e := &pipeline.Searchable{Position: uint64(h.ends[h.searchable]), SearchableAt: h.now()}
	h.Append(stream.Pipeline, e)
	for _, s := range h.sends {
		count := countOf(s)
		if s.capturedAt > 0 && uint64(s.capturedAt) <= e.Position && count["failed"]+count["deleted"] == 0 {
			s.searchableAt = e.SearchableAt
		}
	}
}

// late stores memories that one worker derived while another recorded the failure of the revision.
func (h *History) late() {
	p, ok := some(h, "late", h.dataPoints, func(p *point) bool { return !p.closed && len(p.work) > 0 })
	if !ok {
		return
	}
	w, ok := some(h, "given up", p.work, func(w *work) bool { return w.phase == "failed" })
	if !ok {
		return
	}
	if live(p) {
		w.phase = "captured"
		w.send.capturedAt = 0 // the whole send must be searchable again
	}
	h.Append(stream.Name(stream.Memory, p.id), h.derived(w))
}

// overtaken stores the failure of a send that another process had found searchable.
func (h *History) overtaken() {
	s, ok := some(h, "overtaken", h.sends, func(s *send) bool { return !s.searchableAt.IsZero() && !s.stale })
	if !ok {
		return
	}
	s.stale, s.verdict, s.unindexed = true, "failed", true
	h.Append(stream.Name(stream.Ingestion, s.id), &ingestion.Failed{
		ProjectID: s.project, Code: ingestion.IndexUnavailable, Message: "it came too late", FailedAt: h.now(),
	})
}

func (h *History) sendByID(id uuid.UUID) *send {
	for _, s := range h.sends {
		if s.id == id {
			return s
		}
	}
	return nil
}
