package projectiontest

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
)

// take deletes a data point.
func (h *History) take(p *point, w *wipe, single bool) {
	p.deletion, p.deleted, p.single = w, w.at, single
	h.Deleted[p.id] = true
	w.taken = append(w.taken, p)
	h.Append(stream.Name(stream.DataPoint, p.id), &datapoint.Deleted{
		ProjectID: p.project, DeletionID: w.id, RequestID: w.request, DeletedAt: w.at,
		IngestionID: p.state.IngestionID, Single: single,
	})
}

func countsItem(p *point) bool { return live(p) && p.exists }

// deletable reports whether a data point can be deleted by its id: it exists, or a batch that is
// not fanned out brings it.
func (h *History) deletable(p *point) bool {
	return countsItem(p) || live(p) && slices.ContainsFunc(h.sends, func(s *send) bool {
		return !s.fanned && s.verdict == "" && slices.Contains(s.dataPoints, p)
	})
}

func (h *History) deleteOne() {
	p, ok := some(h, "delete", h.dataPoints, h.deletable)
	if !ok {
		return
	}
	w := &wipe{project: p.project, id: h.id(), request: h.id(), at: h.now(), fanned: true}
	h.wipes = append(h.wipes, w)
	h.take(p, w, true)
}

func (h *History) deleteSome() {
	project := h.dataPoints[h.pick("project", len(h.dataPoints))].project
	w := &wipe{project: project, id: h.id(), request: h.id(), at: h.now()}
	for _, p := range h.dataPoints {
		if p.project == w.project && h.deletable(p) && h.chance("target") {
			w.targets = append(w.targets, p)
		}
	}
	h.accept(w)
}

func (h *History) deleteSend() {
	s, ok := some(h, "delete send", h.sends, func(s *send) bool { return s.fanned && !s.gone })
	if !ok {
		return
	}
	w := &wipe{project: s.project, id: h.id(), request: h.id(), at: h.now(), send: s}
	for _, p := range s.dataPoints {
		if countsItem(p) && p.state.IngestionID == s.id {
			w.targets = append(w.targets, p)
		}
	}
	h.accept(w)
}

func (h *History) accept(w *wipe) {
	if len(w.targets) == 0 {
		return
	}
	accepted := &deletion.Accepted{ProjectID: w.project, RequestID: w.request, AcceptedAt: w.at}
	if w.send != nil {
		accepted.IngestionID = w.send.id
		w.send.gone = true
	}
	for _, p := range w.targets {
		accepted.Targets = append(accepted.Targets, deletion.Target{DataPoint: p.id})
	}
	h.Append(stream.Name(stream.Deletion, w.id), accepted)
	h.wipes = append(h.wipes, w)
}

// wipeNext does the next piece of a deletion's fan-out: a target, or its end.
func (h *History) wipeNext() {
	w, ok := some(h, "wipe", h.wipes, func(w *wipe) bool { return !w.fanned })
	if !ok {
		return
	}
	for w.next < len(w.targets) {
		p := w.targets[w.next]
		w.next++
		if live(p) && w.send != nil && p.state.IngestionID != w.send.id {
			w.kept = append(w.kept, p.id)
			continue
		}
		if live(p) {
			h.take(p, w, false)
			return
		}
	}
	done := &deletion.FannedOut{ProjectID: w.project, Kept: w.kept}
	for _, p := range w.targets {
		if !live(p) {
			done.Deleted = append(done.Deleted, p.id)
		}
	}
	h.Append(stream.Name(stream.Deletion, w.id), done)
	w.fanned = true
}

func (h *History) keepFacts() {
	unretained := func(p *point) bool { return p.deletion != nil && p.deletion.fanned && !p.kept }
	p, ok := some(h, "keep", h.dataPoints, unretained)
	if !ok {
		return
	}
	for _, e := range h.factsOf(p) {
		h.Append(stream.Name(stream.Deletion, p.deletion.id), e)
	}
	p.kept = true
	h.Erased[p.id] = true
}

func (h *History) clean() {
	w, ok := some(h, "clean", h.wipes, func(w *wipe) bool {
		for _, p := range w.taken {
			if !p.kept {
				return false
			}
		}
		return w.fanned && !w.cleaned
	})
	if !ok {
		return
	}
	for _, p := range w.taken {
		p.closed = true
		for _, name := range p.blobs {
			h.end(name)
		}
	}
	w.cleaned = true
	h.Append(stream.Name(stream.Deletion, w.id), &deletion.Cleaned{ProjectID: w.project, CleanedAt: h.now()})
}

// factsOf returns the retained facts of a data point, in one part or two.
func (h *History) factsOf(p *point) []*deletion.FactsKept {
	all := deletion.FactsKept{
		ProjectID: p.project, DataPoint: p.id, Facts: slices.Clone(p.events), DeletedAt: p.deleted,
		RequestID: p.deletion.request, Memories: slices.Clone(p.derived), Single: p.single,
	}
	for n, fact := range all.Facts {
		if fact.CreatedRevision() {
			all.Facts[n].SearchableAt = h.sendByID(fact.IngestionID).searchableAt
		}
	}
	for _, fact := range all.Facts {
		if fact.CreatedRevision() && !fact.Historic {
			all.Newest = max(all.Newest, fact.Revision)
		}
	}
	all.To, all.Complete = int64(len(all.Facts)), true
	if len(all.Facts) < 2 || !h.chance("in two parts") {
		all.Blobs = slices.Clone(p.blobs)
		return []*deletion.FactsKept{&all}
	}
	first, second := all, all
	cut := 1 + h.pick("facts in the first part", len(all.Facts)-1)
	first.Facts, first.Memories, first.To, first.Complete = all.Facts[:cut], nil, int64(cut), false
	second.Facts, second.From, second.Blobs = all.Facts[cut:], int64(cut), slices.Clone(p.blobs)
	return []*deletion.FactsKept{&first, &second}
}

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
