package projectiontest

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// History is a log as the write side could have written it: sends and batches of few data points,
// in two projects, with their derivations, ends and retries, and deletions of every kind
// that the draws produce.
type History struct {
	Log
	// Erased are the data points whose facts are kept: their streams may be gone.
	Erased map[uuid.UUID]bool
	// Deleted are the data points whose deletion is in the log, erased or not.
	Deleted map[uuid.UUID]bool
	// Ended are the blobs whose streams are ended.
	Ended map[string]bool
	// Blobs has the content of the blobs by stream, ended or not. It is nil if all text is in the
	// events.
	Blobs map[string][]byte

	t          *rapid.T
	ids        int
	dataPoints []*point
	sends      []*send
	wipes      []*wipe
	blobs      []string
	// ends are the positions at which steps ended. searchable is the index in ends of the last
	// watermark.
	ends       []eventstore.Position
	searchable int
}

// point is a data point as the writers know it.
type point struct {
	project  uuid.UUID
	id       uuid.UUID
	name     string
	exists   bool
	state    datapoint.State
	newest   eventstore.Position // of its newest effect
	work     []*work             // its revisions to derive, in order
	events   []deletion.RetainedFact
	derived  []deletion.MemoryCount // of each event of memories, in order
	deletion *wipe
	deleted  time.Time
	single   bool // it was deleted by its id alone
	kept     bool
	closed   bool // the memory stream is tombstoned
	blobs    []string
}

// work is an item with a revision to derive.
type work struct {
	send     *send
	ordinal  int
	point    *point
	revision int
	phase    string // queued, processing, captured, failed
	attempt  int
	memories int // that were derived last
}

type send struct {
	project    uuid.UUID
	id         uuid.UUID
	request    uuid.UUID
	at         time.Time
	commit     eventstore.Position // 0 for a single send
	stage      string
	dataPoints []*point
	fannedOut  []*ingestion.Outcome // outcome of each item, nil before its fan-out
	recorded   []ingestion.Outcome  // their outcomes in the end of the fan-out
	// unpriced are the items that looked unchanged at the commit.
	unpriced map[int]bool
	fanned   bool
	work     []*work
	verdict  string
	// searchableAt is the time of the watermark that ended the send, zero if none did. stale
	// reports that a failure was stored after it.
	searchableAt time.Time
	stale        bool
	// capturedAt is the position up to which a captured send must be searchable.
	capturedAt eventstore.Position
	// unindexed reports that the index failed.
	unindexed bool
	round     int
	gone      bool // deleted as a send
}

// wipe is a deletion.
type wipe struct {
	project uuid.UUID
	id      uuid.UUID
	request uuid.UUID
	send    *send
	at      time.Time
	targets []*point
	next    int // of the targets
	taken   []*point
	kept    []uuid.UUID
	fanned  bool
	cleaned bool
}

// DrawHistory draws a history whose text lies in the events.
func DrawHistory(t *rapid.T) *History { return drawHistory(t, nil) }

// DrawBlobHistory draws a history in which some texts of revisions, and some memories, lie in
// blobs.
func DrawBlobHistory(t *rapid.T) *History { return drawHistory(t, map[string][]byte{}) }

func drawHistory(t *rapid.T, blobs map[string][]byte) *History {
	h := &History{
		t:       t,
		Erased:  map[uuid.UUID]bool{},
		Deleted: map[uuid.UUID]bool{},
		Ended:   map[string]bool{},
		Blobs:   blobs,
	}
	for p := range 2 {
		project := h.id()
		// Few of them, so that much happens to each.
		for n := range rapid.IntRange(1, 3).Draw(t, "data points") {
			name := fmt.Sprintf("source %d/%d", p, n)
			h.dataPoints = append(h.dataPoints, &point{project: project, id: h.id(), name: name})
		}
	}
	steps := []func(){
		h.single, h.single, h.batch, h.fanOut, h.fanOut, h.fanOut, h.start, h.start,
		h.finish, h.finish, h.finish, h.confirm, h.confirm,
		h.watermark, h.watermark, h.watermark, h.late, h.overtaken,
		h.retry, h.deleteOne, h.deleteSome, h.deleteSend, h.wipeNext, h.wipeNext,
		h.keepFacts, h.keepFacts, h.clean, h.rederive, h.giveUp, h.loose, h.sweep,
	}
	// Counted down from the most, since small numbers are drawn more often than large ones.
	for range 80 - rapid.IntRange(0, 75).Draw(t, "steps left out") {
		steps[h.pick("step", len(steps))]()
		h.endStep()
	}
	return h
}

// id returns a new ID without a draw: IDs only need to differ.
func (h *History) id() uuid.UUID {
	h.ids++
	return uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%d", h.ids))
}

func (h *History) pick(label string, n int) int { return rapid.IntRange(0, n-1).Draw(h.t, label) }

func (h *History) chance(label string) bool { return rapid.Bool().Draw(h.t, label) }

// now rises with the log, mostly: clocks of machines differ.
func (h *History) now() time.Time {
	skew := time.Duration(rapid.IntRange(-3, 3).Draw(h.t, "skew")) * time.Second
	return time.Date(2026, 11, 21, 12, 0, 0, 123456000, time.UTC).Add(time.Duration(h.Next())*time.Second/10 + skew)
}

func some[V any](h *History, label string, list []V, ok func(V) bool) (v V, found bool) {
	var fit []V
	for _, v := range list {
		if ok(v) {
			fit = append(fit, v)
		}
	}
	if len(fit) == 0 {
		return v, false
	}
	return fit[h.pick(label, len(fit))], true
}

func live(p *point) bool { return p.deletion == nil }

// sendOf makes the part of an event that names its send.
func (h *History) sendOf(s *send, ordinal int) datapoint.Send {
	return datapoint.Send{
		ProjectID: s.project, IngestionID: s.id, Ordinal: ordinal, Items: len(s.dataPoints),
		AcceptedAt: s.at, RequestID: s.request,
		Commit: uint64(s.commit), Bytes: size(ordinal), CreditTenths: price(ordinal), Month: s.month(),
	}
}

// land stores the effect of an item on its data point: a revision, a move or a re-send. The effect
// is history if the data point has later effects.
func (h *History) land(s *send, ordinal int, p *point) {
	historic := s.commit != 0 && p.exists && p.newest > s.commit
	kind := 0
	if p.exists {
		kind = h.pick("kind", 3)
	}
	effect, from := p.state, h.sendOf(s, ordinal)
	if kind != 0 {
		from.CreditTenths = 0
	}
	var standing datapoint.States
	var e event.Event
	switch kind {
	case 0:
		effect.SourceID, effect.Revision, effect.OccurredAt, effect.IngestionID = p.name, p.state.LastNumber+1, s.at, s.id
		effect.LastNumber = effect.Revision
		if standing = h.standing(p, effect, historic); !historic {
			w := &work{send: s, ordinal: ordinal, point: p, revision: effect.Revision, phase: "queued"}
			p.work, s.work = append(p.work, w), append(s.work, w)
		}
		body := datapoint.Body{Content: h.text(p, fmt.Sprintf("%s, revision %d\x00", p.name, effect.Revision))}
		if h.Blobs != nil && h.chance("metadata") {
			metadata := h.text(p, `{"a":1}`)
			body.Metadata = &metadata
		}
		e = &datapoint.RevisionAccepted{Send: from, States: standing, Body: body}
	case 1:
		if effect.Audience = uuid.Nil; !h.chance("to the project") {
			effect.Audience = h.id()
		}
		standing = h.standing(p, effect, historic)
		e = &datapoint.Moved{Send: from, States: standing}
	default:
		standing = h.standing(p, effect, historic)
		e = &datapoint.Resent{Send: from, States: standing}
	}
	at := h.Append(stream.Name(stream.DataPoint, p.id), e)
	p.state, p.exists = standing.Head(), true
	if s.commit != 0 {
		at = s.commit
	}
	p.newest = max(p.newest, at)
	outcome, _ := datapoint.OutcomeOf(e)
	s.fannedOut[ordinal] = &outcome
	p.events = append(p.events, deletion.RetainedFact{
		IngestionID: s.id, Ordinal: ordinal, Items: from.Items, RequestID: s.request, AcceptedAt: s.at, Bytes: from.Bytes,
		CreditTenths: from.CreditTenths, Month: from.Month,
		Outcome: outcome.Outcome, Revision: outcome.Revision, Historic: historic,
	})
}

func (h *History) standing(p *point, effect datapoint.State, historic bool) datapoint.States {
	if !historic {
		return datapoint.States{Effect: effect}
	}
	current := p.state
	current.LastNumber = max(current.LastNumber, effect.LastNumber)
	return datapoint.States{Effect: effect, Current: &current}
}

func (h *History) single() {
	p, ok := some(h, "point", h.dataPoints, live)
	if !ok {
		return
	}
	s := &send{
		project:    p.project,
		id:         h.id(),
		request:    h.id(),
		at:         h.now(),
		dataPoints: []*point{p},
		fannedOut:  make([]*ingestion.Outcome, 1),
		fanned:     true,
	}
	if h.chance("keyed") {
		h.Append(stream.Name(stream.Ingestion, s.id),
			&ingestion.Claimed{ProjectID: s.project, DataPoint: p.id, ClaimedAt: s.at})
	}
	h.sends = append(h.sends, s)
	h.land(s, 0, p)
}

func (h *History) batch() {
	project := h.dataPoints[h.pick("project", len(h.dataPoints))].project
	s := &send{project: project, id: h.id(), request: h.id(), at: h.now(), unpriced: map[int]bool{}}
	accepted := &ingestion.Accepted{ProjectID: project, RequestID: s.request, AcceptedAt: s.at, Month: s.month()}
	for _, p := range h.dataPoints {
		if p.project == project && live(p) && (len(s.dataPoints) == 0 || h.chance("in batch")) {
			item := ingestion.Item{DataPoint: p.id, Bytes: size(len(s.dataPoints)), CreditTenths: price(len(s.dataPoints))}
			if p.exists && h.chance("looks unchanged") {
				s.unpriced[len(s.dataPoints)], item.CreditTenths = true, 0
			}
			accepted.Items, s.dataPoints = append(accepted.Items, item), append(s.dataPoints, p)
		}
	}
	if len(s.dataPoints) == 0 {
		return
	}
	s.fannedOut = make([]*ingestion.Outcome, len(s.dataPoints))
	accepted.Stage.Stream = h.begin(project, s.id)
	s.stage = accepted.Stage.Stream
	s.commit = h.Append(stream.Name(stream.Ingestion, s.id), accepted)
	h.sends = append(h.sends, s)
}

// fanOut does the next piece of a fan-out: an item, or its end.
func (h *History) fanOut() {
	s, ok := some(h, "batch", h.sends, func(s *send) bool { return !s.fanned })
	if !ok {
		return
	}
	for ordinal, p := range s.dataPoints {
		if s.fannedOut[ordinal] != nil {
			continue
		}
		if !live(p) {
			s.fannedOut[ordinal] = &ingestion.Outcome{Outcome: ingestion.Deleted}
			continue
		}
		h.land(s, ordinal, p)
		return
	}
	done := &ingestion.FannedOut{ProjectID: s.project}
	for ordinal, o := range s.fannedOut {
		if s.dataPoints[ordinal].closed && h.chance("another run found the stream gone") {
			o = &ingestion.Outcome{Outcome: ingestion.Deleted}
		}
		done.Outcomes = append(done.Outcomes, *o)
	}
	h.Append(stream.Name(stream.Ingestion, s.id), done)
	s.fanned, s.recorded = true, done.Outcomes
	if s.verdict == "failed" {
		s.verdict = "" // it was given up while another run continued
	}
	if h.chance("stage dropped") {
		h.end(s.stage)
	}
}

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
