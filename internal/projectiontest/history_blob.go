package projectiontest

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// begin begins a blob.
func (h *History) begin(project, owner uuid.UUID) string {
	name := stream.BlobName(owner, h.id())
	h.Append(name, &blob.Opened{ProjectID: project, Owner: owner, Deadline: h.now()})
	return name
}

// put stores a text of a data point in a separate blob, if drawn, before an event refers to it.
func (h *History) put(p *point, data []byte) *blob.Ref {
	if h.Blobs == nil || !h.chance("blob") {
		return nil
	}
	name := h.begin(p.project, p.id)
	h.Blobs[name] = data
	p.blobs = append(p.blobs, name)
	return &blob.Ref{Stream: name, Size: int64(len(data))}
}

func (h *History) text(p *point, content string) datapoint.Text {
	if ref := h.put(p, []byte(content)); ref != nil {
		return datapoint.Text{Blob: ref}
	}
	return datapoint.Text{Inline: content}
}

// holds reports whether a data point has blobs that are not ended.
func (h *History) holds(id uuid.UUID) bool {
	for _, p := range h.dataPoints {
		for _, name := range p.blobs {
			if p.id == id && !h.Ended[name] {
				return true
			}
		}
	}
	return false
}

// LeftBlobs returns the content of the blobs that are not ended: a replay of the log can read it.
func (h *History) LeftBlobs() map[string][]byte {
	left := map[string][]byte{}
	for name, data := range h.Blobs {
		if !h.Ended[name] {
			left[name] = data
		}
	}
	return left
}

// end ends a blob: its content may be gone from the log.
func (h *History) end(name string) {
	h.Append(eventstore.SystemStream, &eventstore.Tombstoned{Stream: name})
	h.Ended[name] = true
}

// giveUp ends a batch whose stage is lost.
func (h *History) giveUp() {
	s, ok := some(h, "give up", h.sends, func(s *send) bool { return !s.fanned && s.verdict == "" })
	if !ok {
		return
	}
	s.verdict = "failed"
	h.Append(stream.Name(stream.Ingestion, s.id),
		&ingestion.Failed{ProjectID: s.project, Code: ingestion.Internal, Message: "it was lost", FailedAt: h.now()})
}

// loose begins a blob that no event refers to.
func (h *History) loose() {
	p := h.dataPoints[h.pick("loose", len(h.dataPoints))]
	h.blobs = append(h.blobs, h.begin(p.project, p.id))
}

// sweep ends a blob that no event refers to.
func (h *History) sweep() {
	if name, ok := some(h, "sweep", h.blobs, func(name string) bool { return !h.Ended[name] }); ok {
		h.end(name)
	}
}
