package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections/memories"
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

const (
	// historyEvents and historyBytes are how much of a data point's stream a timeline reads on each side
	// of its root, a page of historyPage events at a time.
	historyEvents = 512
	historyBytes  = 8 << 20
	historyPage   = 32
	// subjectsRead is how many subjects a timeline looks for elsewhere, claimsRead how many claims on
	// each, and elsewhereNodes how many it shows.
	subjectsRead   = 20
	claimsRead     = 1000
	elsewhereNodes = 100
)

// revisionEvent is what a timeline shows of a revision.
type revisionEvent struct {
	node, ingestion        uuid.UUID
	number                 int
	effect                 uint64
	sourceID, headline     string
	occurredAt, acceptedAt time.Time
}

// history reads the revisions of a data point around one, in effect order, and the sends of all events
// that it read, also of those that changed nothing. more reports that the stream has others.
func (s *Trace) history(
	ctx context.Context, at location,
) (list []revisionEvent, sends []uuid.UUID, more bool, err error) {
	read := func(from eventstore.Revision, direction eventstore.Direction) error {
		found, left, err := s.readSide(ctx, at.dataPoint, from, direction)
		for _, e := range found {
			send, _, _ := datapoint.SendOf(e.Event)
			sends = append(sends, send.IngestionID)
			if r, is := e.Event.(*datapoint.RevisionAccepted); is {
				list = append(list, s.revisionEvent(ctx, at.dataPoint, r, e))
			}
		}
		more = more || left
		return err
	}
	own := eventstore.Revision(*at.accepted)
	err = read(own, eventstore.Forwards)
	if err == nil && own > 0 {
		err = read(own-1, eventstore.Backwards)
	}
	slices.SortFunc(list, func(x, y revisionEvent) int { return cmp.Compare(x.effect, y.effect) })
	return list, sends, more, err
}

// readSide reads the sends of a data point from an event on in one direction.
func (s *Trace) readSide(
	ctx context.Context, dataPoint uuid.UUID, from eventstore.Revision, direction eventstore.Direction,
) (found []eventstore.DecodedEvent, more bool, err error) {
	for events, bytes := 0, 0; ; {
		page, err := s.Journal.Read(ctx, stream.Name(stream.DataPoint, dataPoint), from, direction, historyPage)
		if errors.Is(err, eventstore.ErrDeleted) {
			return nil, false, nil // deleted since: the next call reports it
		}
		if err != nil {
			return nil, false, err
		}
		for _, e := range page {
			if _, _, is := datapoint.SendOf(e.Event); is {
				bytes += e.Size()
				found = append(found, e)
			}
		}
		events += len(page)
		if len(page) < historyPage {
			return found, false, nil
		}
		last := page[len(page)-1].Revision
		if events >= historyEvents || bytes >= historyBytes {
			return found, direction == eventstore.Forwards || last > 0, nil
		}
		if from = last + 1; direction == eventstore.Backwards {
			from = last - 1
		}
		if from < 0 {
			return found, false, nil
		}
	}
}

// revisionEvent describes a revision by its event. A content that is in a blob and has no label has no
// headline: a timeline reads no blobs of other revisions.
func (s *Trace) revisionEvent(
	_ context.Context, dataPoint uuid.UUID, e *datapoint.RevisionAccepted, recorded eventstore.DecodedEvent,
) revisionEvent {
	r := Revision{Accepted: e, Content: e.Content.Inline}
	effect := e.Commit
	if effect == 0 {
		effect = uint64(recorded.Position)
	}
	return revisionEvent{
		node: datapoint.NodeID(dataPoint, e.Effect.Revision), ingestion: e.IngestionID, number: e.Effect.Revision,
		effect: effect, sourceID: e.Effect.SourceID, headline: r.Headline(),
		occurredAt: e.Effect.OccurredAt.UTC(), acceptedAt: e.AcceptedAt.UTC(),
	}
}

// readSends reads sends of a project.
func (s *Trace) readSends(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]send, error) {
	rows, err := s.DB.Query(ctx, selectSends, project.ID, ids)
	if err != nil {
		return nil, fmt.Errorf("read sends: %w", err)
	}
	defer rows.Close()
	found, err := scanSends(rows)
	if err != nil {
		return nil, fmt.Errorf("read sends: %w", err)
	}
	return found, nil
}

// capturedRevision reads the newest revision with memories, 0 for none.
func (s *Trace) capturedRevision(ctx context.Context, dataPoint uuid.UUID) (number int, err error) {
	err = s.DB.QueryRow(ctx, `select revision from memories.captured where data_point = $1`, dataPoint).Scan(&number)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("read the captured revision: %w", err)
	}
	return number, nil
}

// reach returns the nodes that a walk over one side reaches from a node, without it, nearest first.
func (g *Graph) reach(from int, side [][]int) []int {
	seen, order := map[int]struct{}{from: {}}, []int{from}
	for at := 0; at < len(order); at++ {
		for _, n := range side[order[at]] {
			if _, twice := seen[n]; !twice {
				seen[n] = struct{}{}
				order = append(order, n)
			}
		}
	}
	return order[1:]
}

// subjects returns what a node is about, as claims compare it: the subject and the names of a memory,
// or those of all memories of a source. The first few, in the order of the text.
func (g *Graph) subjects(n int) []string {
	list := g.Memories
	if n > 0 {
		list = g.Memories[n-1 : n]
	}
	var found []string
	add := func(subject string) {
		if subject != "" && len(found) < subjectsRead && !slices.Contains(found, subject) {
			found = append(found, subject)
		}
	}
	for _, m := range list {
		add(m.Subject)
		for _, name := range m.Entities {
			add(comprehend.Subject(name))
		}
	}
	return found
}

const selectElsewhere = `select m.id, m.kind, m.content, m.occurred_at, m.derived_at, m.revision, d.source_id, r.ingestion_id
	from unnest($3::uuid[]) c (subject)
	cross join lateral (
		select * from memories.memories where project_id = $1 and subject = c.subject and kind = 'claim' and subject is not null
			and occurred_at between $4 and $5 order by attribute, occurred_at, id limit $6
	) m
	cross join lateral (select from memories.captured where data_point = m.data_point and revision = m.revision offset 0) k
	cross join lateral (select * from datapoints.data_points where id = m.data_point offset 0) d
	cross join lateral (select * from datapoints.revisions where data_point = m.data_point and number = m.revision offset 0) r
	where d.project_id = $1 and m.data_point <> $2
	order by m.occurred_at, m.id limit $7`

// elsewhere finds claims of other data points on some subjects that occurred in a window, oldest
// first. It finds them by the tables of the memories, as recall does.
func (s *Trace) elsewhere(
	ctx context.Context, project auth.Project, dataPoint uuid.UUID, subjects []string, from, to time.Time,
) (list []Moment, more bool, err error) {
	if len(subjects) == 0 {
		return nil, false, nil
	}
	keys := pgarray.IDs(subjects, func(subject string) uuid.UUID { return memories.TextKey(project.ID, subject) })
	rows, err := s.DB.Query(ctx, selectElsewhere, project.ID, dataPoint, keys, from, to, claimsRead, elsewhereNodes+1)
	if err != nil {
		return nil, false, fmt.Errorf("read claims elsewhere: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		m := Moment{Brief: Brief{Kind: KindMemory}, Section: sectionElsewhere}
		var content []byte
		if err := rows.Scan(&m.ID, &m.MemoryKind, &content, &m.OccurredAt, &m.ArrivedAt, &m.Revision, &m.SourceID,
			&m.Ingestion); err != nil {
			return nil, false, fmt.Errorf("read claims elsewhere: %w", err)
		}
		m.Headline = headline(string(content))
		m.OccurredAt, m.ArrivedAt = m.OccurredAt.UTC(), m.ArrivedAt.UTC()
		list = append(list, m)
	}
	if len(list) > elsewhereNodes {
		list, more = list[:elsewhereNodes], true
	}
	return list, more, rows.Err()
}
