package why

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/internal/auth"
)

// The sections of a timeline. A node is in the first that claims it, in this order.
const (
	sectionRevision  = "revision"
	sectionBuiltFrom = "built-from"
	sectionProduced  = "produced"
	sectionElsewhere = "elsewhere"
)

const (
	// maxWindow is the widest window, and the default one. It ends by default defaultAfter after the
	// root was searchable.
	maxWindow    = limit.TraceDays * 24 * time.Hour
	defaultAfter = 15 * 24 * time.Hour
)

// Moment is a node of a timeline. SearchableAt is nil if its send is not searchable.
type Moment struct {
	Brief
	Section               string
	OccurredAt, ArrivedAt time.Time
	SearchableAt          *time.Time
	Current               bool
	SourceID              string
	Revision              int
	Ingestion             uuid.UUID
}

// Send is a send of a timeline.
type Send struct {
	Ingestion, Request uuid.UUID
	AcceptedAt         time.Time
	SettledAt          *time.Time
	Phase              string
	Items              int
}

// Recall is a recall that returned a node.
type Recall struct {
	Request    uuid.UUID
	ReceivedAt time.Time
	Identity   string
	Node       uuid.UUID
	Rank       int
}

// Replacement records that one node was replaced by another at a time.
type Replacement struct {
	Replaced, By uuid.UUID
	At           time.Time
}

// Timeline is what happened around a root in a window, each list by time. Truncated reports that a list
// is incomplete.
type Timeline struct {
	Root         Brief
	From, To     time.Time
	Nodes        []Moment
	Sends        []Send
	Recalls      []Recall
	Replacements []Replacement
	Truncated    bool
	// Deleted is set if the data point of the root was deleted; the lists are empty then.
	Deleted *Deleted
}

// Timeline reads what happened around a root. Without from or to, the window is the root's recent
// history. Its faults are not-found, invalid-range and range-too-wide.
func (s *Trace) Timeline(
	ctx context.Context, project auth.Project, root uuid.UUID, from, to *instant.Written,
) (Timeline, error) {
	if err := checkWindow(from, to); err != nil {
		return Timeline{}, err
	}
	g, at, err := s.find(ctx, project, root)
	if err != nil {
		return Timeline{}, err
	}
	if g == nil {
		t := Timeline{Root: at.brief(root), Deleted: at.deleted}
		t.From, t.To = window(from, to, at.deleted.At, s.Now())
		return t, nil
	}
	b := &builder{service: s, project: project, graph: g, location: at, root: g.byID[root]}
	if err := b.collect(ctx); err != nil {
		return Timeline{}, err
	}
	ready := g.createdAt(b.root)
	if at := b.sends[g.Accepted.IngestionID].readyAt(); at != nil {
		ready = *at
	}
	b.from, b.to = window(from, to, ready, s.Now())
	t, err := b.build(ctx)
	if err == nil {
		err = showOne(ctx, reads.Timeline, g.nodeOf(root))
	}
	if err == nil {
		err = show(ctx, reads.Timeline, t.Nodes, func(m Moment) uuid.UUID { return g.nodeOf(m.ID) })
	}
	return t, err
}

// latest is the last instant that JSON can hold.
var latest = time.Date(9999, time.December, 31, 23, 59, 59, 999_999_000, time.UTC)

// window returns the window of a timeline of a root that was searchable at a time, inclusive. With one
// end or none it is maxWindow long, or as long as time lasts.
func window(from, to *instant.Written, ready, now time.Time) (start, end time.Time) {
	switch {
	case from != nil && to != nil:
		start, end = from.At, to.Last()
	case from != nil:
		start = from.At
		if end = start.Add(maxWindow); end.After(now) && start.Before(now) {
			end = now
		} else if end.After(latest) {
			end = latest
		}
	case to != nil:
		start, end = to.End().Add(-maxWindow), to.Last()
	default:
		if end = ready.Add(defaultAfter); end.After(now) {
			end = now
		}
		start = end.Add(-maxWindow)
	}
	return start.UTC().Truncate(time.Microsecond), end.UTC().Truncate(time.Microsecond)
}

// checkWindow checks the ends that were sent. The window is measured to the first moment of an end that
// is a date alone.
func checkWindow(from, to *instant.Written) error {
	switch {
	case from == nil || to == nil:
	case from.At.After(to.Last()):
		return fault.New(fault.Invalid, fault.CodeInvalidRange, "from is after to")
	case to.At.Sub(from.At) > maxWindow:
		return fault.New(fault.Invalid, fault.CodeRangeTooWide, "from and to are more than %d days apart", limit.TraceDays)
	}
	return nil
}

// builder collects a timeline.
type builder struct {
	service  *Trace
	project  auth.Project
	graph    *Graph
	location location
	root     int
	from, to time.Time

	history   []revisionEvent // of the data point around the root, in effect order
	sendIDs   []uuid.UUID     // the sends of the history
	sends     map[uuid.UUID]send
	claims    map[uuid.UUID]claim
	captured  int
	moments   []Moment
	truncated bool
}

// collect reads what does not depend on the window.
func (b *builder) collect(ctx context.Context) (err error) {
	if b.history, b.sendIDs, b.truncated, err = b.service.history(ctx, b.location); err != nil {
		return err
	}
	if b.sends, err = b.service.readSends(ctx, b.project, b.sendIDs); err != nil {
		return err
	}
	if b.captured, err = b.service.capturedRevision(ctx, b.location.dataPoint); err != nil {
		return err
	}
	b.claims, err = b.service.claims(ctx, b.project, b.graph.nodes[1:])
	return err
}

// build makes the timeline of the window.
func (b *builder) build(ctx context.Context) (Timeline, error) {
	for _, e := range b.history {
		if e.node != b.graph.ID {
			b.claim(b.revision(e))
		}
	}
	for _, n := range b.graph.reach(b.root, b.graph.inputs) {
		b.claim(b.moment(n, sectionBuiltFrom))
	}
	for _, n := range b.graph.reach(b.root, b.graph.outputs) {
		b.claim(b.moment(n, sectionProduced))
	}
	subjects := b.graph.subjects(b.root)
	elsewhere, more, err := b.service.elsewhere(ctx, b.project, b.location.dataPoint, subjects, b.from, b.to)
	if err != nil {
		return Timeline{}, err
	}
	b.truncated = b.truncated || more
	if err := b.addElsewhere(ctx, elsewhere); err != nil {
		return Timeline{}, err
	}
	t := Timeline{Root: b.graph.brief(b.root), From: b.from, To: b.to, Nodes: b.moments}
	if len(t.Nodes) > limit.TraceNodes {
		t.Nodes, b.truncated = t.Nodes[:limit.TraceNodes], true
	}
	slices.SortFunc(t.Nodes, func(x, y Moment) int {
		return cmp.Or(x.OccurredAt.Compare(y.OccurredAt), compareIDs(x.ID, y.ID))
	})
	t.Sends, t.Replacements = b.sendsIn(), b.replacements(t.Nodes)
	if t.Recalls, err = b.recalls(ctx, t.Nodes); err != nil {
		return Timeline{}, err
	}
	t.Truncated = b.truncated
	return t, nil
}

// claim adds a node if one of its times is in the window.
func (b *builder) claim(m Moment) {
	if b.inWindow(m.OccurredAt) || b.inWindow(m.ArrivedAt) || m.SearchableAt != nil && b.inWindow(*m.SearchableAt) {
		b.moments = append(b.moments, m)
	}
}

func (b *builder) inWindow(at time.Time) bool { return !at.Before(b.from) && !at.After(b.to) }

// revision describes another revision of the data point.
func (b *builder) revision(e revisionEvent) Moment {
	return Moment{
		Brief: Brief{ID: e.node, Kind: KindSource, Headline: e.headline}, Section: sectionRevision,
		OccurredAt: e.occurredAt, ArrivedAt: e.acceptedAt, SearchableAt: b.sends[e.ingestion].readyAt(),
		Current: e.number == b.location.head, SourceID: e.sourceID, Revision: e.number, Ingestion: e.ingestion,
	}
}

// moment describes a node of the root's own revision.
func (b *builder) moment(n int, section string) Moment {
	accepted := b.graph.Accepted
	current := accepted.Effect.Revision == b.location.head
	if n > 0 {
		current = accepted.Effect.Revision == b.captured && b.claims[b.graph.nodes[n]].later == nil
	}
	return Moment{
		Brief: b.graph.brief(n), Section: section,
		OccurredAt: b.graph.occurredAt(n), ArrivedAt: b.graph.createdAt(n),
		SearchableAt: b.sends[accepted.IngestionID].readyAt(),
		Current:      current, SourceID: accepted.Effect.SourceID, Revision: accepted.Effect.Revision,
		Ingestion: accepted.IngestionID,
	}
}

// addElsewhere adds claims of other data points, with their sends and what supersedes them.
func (b *builder) addElsewhere(ctx context.Context, list []Moment) error {
	if len(list) == 0 {
		return nil
	}
	var ids, sends []uuid.UUID
	for _, m := range list {
		ids, sends = append(ids, m.ID), append(sends, m.Ingestion)
	}
	claims, err := b.service.claims(ctx, b.project, ids)
	if err != nil {
		return err
	}
	more, err := b.service.readSends(ctx, b.project, sends)
	if err != nil {
		return err
	}
	for id, c := range claims {
		b.claims[id] = c
	}
	for id, s := range more {
		b.sends[id] = s
	}
	for _, m := range list {
		m.SearchableAt, m.Current = b.sends[m.Ingestion].readyAt(), claims[m.ID].later == nil
		b.claim(m)
	}
	return nil
}

// sendsIn returns the sends of the nodes and of the data point that were accepted in the window.
func (b *builder) sendsIn() []Send {
	list := []Send{}
	for _, s := range b.sends {
		if b.inWindow(s.acceptedAt) {
			list = append(list, Send{
				Ingestion: s.id, Request: s.request, AcceptedAt: s.acceptedAt, SettledAt: s.settledAt,
				Phase: s.phase, Items: s.items,
			})
		}
	}
	slices.SortFunc(list, func(x, y Send) int {
		return cmp.Or(x.AcceptedAt.Compare(y.AcceptedAt), compareIDs(x.Ingestion, y.Ingestion))
	})
	if len(list) > limit.TraceNodes {
		list, b.truncated = list[len(list)-limit.TraceNodes:], true
	}
	return list
}

// replacements returns which revision and which claim was replaced in the window.
func (b *builder) replacements(shown []Moment) []Replacement {
	list := []Replacement{}
	add := func(replaced, by uuid.UUID, at time.Time) {
		if b.inWindow(at) {
			list = append(list, Replacement{replaced, by, at})
		}
	}
	for n := 1; n < len(b.history); n++ {
		add(b.history[n-1].node, b.history[n].node, b.history[n].acceptedAt)
	}
	for _, id := range append([]uuid.UUID{b.graph.nodes[b.root]}, idsOf(shown)...) {
		if c := b.claims[id]; c.later != nil {
			add(id, *c.later, *c.at)
		}
	}
	slices.SortFunc(list, func(x, y Replacement) int {
		return cmp.Or(x.At.Compare(y.At), compareIDs(x.Replaced, y.Replaced))
	})
	if len(list) > limit.TraceNodes {
		list, b.truncated = list[len(list)-limit.TraceNodes:], true
	}
	return list
}

// recalls returns the recalls that returned the root or a node that is shown.
func (b *builder) recalls(ctx context.Context, shown []Moment) ([]Recall, error) {
	if b.service.Recalls == nil {
		return []Recall{}, nil
	}
	nodes := append([]uuid.UUID{b.graph.nodes[b.root]}, idsOf(shown)...)
	list, err := b.service.Recalls.Hits(ctx, b.project.ID, nodes, b.from, b.to, limit.TraceNodes+1)
	if err != nil {
		return nil, err
	}
	if len(list) > limit.TraceNodes {
		list, b.truncated = list[:limit.TraceNodes], true
	}
	slices.SortStableFunc(list, func(x, y Recall) int {
		return cmp.Or(x.ReceivedAt.Compare(y.ReceivedAt), compareIDs(x.Request, y.Request), cmp.Compare(x.Rank, y.Rank))
	})
	return list, nil
}

func idsOf(list []Moment) []uuid.UUID {
	ids := make([]uuid.UUID, len(list))
	for i, m := range list {
		ids[i] = m.ID
	}
	return ids
}

func compareIDs(x, y uuid.UUID) int { return slices.Compare(x[:], y[:]) }
