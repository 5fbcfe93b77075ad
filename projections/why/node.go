package why

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/trace"
)

// phaseDeleted is the phase of a node whose data point was deleted. The other phases are those of its
// send.
const phaseDeleted = "deleted"

// phaseIndexed is the phase of a send that is searchable.
const phaseIndexed = "indexed"

// Node is a node with everything that is known of it.
type Node struct {
	Brief
	// SourceID is the id that was sent.
	SourceID  string
	Revision  int
	Ingestion uuid.UUID
	Request   uuid.UUID
	Phase     string
	// OccurredAt is the event's time, CreatedAt when the revision was accepted or the memory derived,
	// ReadyAt since when its whole send was searchable, nil if it is not.
	OccurredAt, CreatedAt time.Time
	ReadyAt               *time.Time
	// A source, or a passage of it, is valid from its acceptance until that of the revision after it. Another memory is
	// valid from when it occurred until a later claim supersedes it, or a newer revision with memories is accepted.
	ValidFrom time.Time
	ValidTo   *time.Time
	Current   bool
	// Replaced is what the node replaced, ReplacedBy what replaced it.
	Replaced, ReplacedBy *uuid.UUID
	Inputs, Outputs      int
	// Content is that of a source, its first characters; More reports that there are more.
	Content string
	More    bool
	// Deleted is set if the data point was deleted. Only ID, Kind, Revision and Phase are set then.
	Deleted *Deleted
}

// Node returns a node of a project, current or not. Its fault is not-found.
func (s *Trace) Node(ctx context.Context, project auth.Project, id uuid.UUID) (Node, error) {
	g, at, err := s.find(ctx, project, id)
	if err != nil {
		return Node{}, err
	}
	if g == nil {
		return Node{Brief: at.brief(id), Revision: at.number, Phase: phaseDeleted, Deleted: at.deleted}, nil
	}
	n := g.byID[id]
	var near neighbours
	if _, err = s.again(ctx, func() (complete bool, err error) {
		near, err = s.neighbours(ctx, project, at)
		return !near.lags(at), err
	}); err != nil {
		return Node{}, err
	}
	node := g.node(n)
	send := near.sends[node.Ingestion]
	node.Phase, node.ReadyAt = send.phase, send.readyAt()
	if n == 0 && near.before != nil {
		node.Replaced = &near.before.node
	}
	if n == 0 || n == g.passage {
		err = s.replaceText(ctx, &node, near)
	} else {
		err = s.replaceMemory(ctx, project, &node, near)
	}
	if err == nil {
		err = showOne(ctx, reads.Node, g.nodeOf(id))
	}
	return node, err
}

// node describes node n of the graph by the events of its revision alone.
func (g *Graph) node(n int) Node {
	node := Node{
		Brief: g.brief(n), SourceID: g.Accepted.Effect.SourceID, Revision: g.Accepted.Effect.Revision,
		Ingestion: g.Accepted.IngestionID, Request: g.Accepted.RequestID,
		OccurredAt: g.occurredAt(n), CreatedAt: g.createdAt(n),
		Inputs: len(g.inputs[n]), Outputs: len(g.outputs[n]),
	}
	if node.ValidFrom = node.OccurredAt; n == 0 || n == g.passage {
		node.ValidFrom = node.CreatedAt
	}
	if n == 0 {
		node.Content, node.More = cut(g.Content, limit.TraceContent)
		node.More = node.More || !g.Whole
	}
	return node
}

// replaceText sets what replaced a revision, or a passage of it: recall shows passages of the newest one.
func (s *Trace) replaceText(ctx context.Context, node *Node, near neighbours) error {
	if near.after == nil {
		node.Current = true
		return nil
	}
	return s.replace(ctx, node, *near.after)
}

// replace ends the validity of a node by a newer revision.
func (s *Trace) replace(ctx context.Context, node *Node, by location) error {
	newer, err := replaySource(ctx, s.Journal, by)
	if errors.Is(err, errErased) {
		return nil // deleted since: the next call reports it
	}
	if err != nil {
		return err
	}
	at := newer.Accepted.AcceptedAt.UTC()
	node.ReplacedBy, node.ValidTo = &by.node, &at
	return nil
}

// replaceMemory sets what superseded a claim, and what it superseded, or the newer revision.
func (s *Trace) replaceMemory(ctx context.Context, project auth.Project, node *Node, near neighbours) error {
	if near.captured != nil {
		return s.replace(ctx, node, *near.captured)
	}
	claims, err := s.claims(ctx, project, []uuid.UUID{node.ID})
	if err != nil {
		return err
	}
	c := claims[node.ID]
	node.Replaced, node.ReplacedBy, node.ValidTo = c.earlier, c.later, c.at
	node.Current = c.later == nil
	return nil
}

// neighbours are the revisions of a data point next to one, in effect order, and its send.
type neighbours struct {
	before, after *location
	// captured is the next one with memories.
	captured *location
	// newest is the newest revision with memories that recall knows, 0 for none.
	newest int
	sends  map[uuid.UUID]send
}

// lags reports whether a revision was replaced, and the projection has not applied by what.
func (near neighbours) lags(at location) bool {
	return near.after == nil && at.head != at.number || near.captured == nil && near.newest > at.number
}

const (
	locationColumns = `select node_id, data_point, number, accepted, effect, derived, null::timestamptz, null::uuid
		from trace.revisions where data_point = $1 and effect `
	selectBefore   = locationColumns + `< $2 order by effect desc limit 1`
	selectAfter    = locationColumns + `> $2 order by effect limit 1`
	selectCaptured = locationColumns + `> $2 and derived is not null order by effect limit 1`
)

func (s *Trace) neighbours(ctx context.Context, project auth.Project, at location) (near neighbours, err error) {
	b := new(pgx.Batch)
	read := func(into **location) func(pgx.Row) error {
		return func(row pgx.Row) error {
			found, err := scanLocation(row)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			*into = &found
			return err
		}
	}
	b.Queue(selectBefore, at.dataPoint, *at.effect).QueryRow(read(&near.before))
	b.Queue(selectAfter, at.dataPoint, *at.effect).QueryRow(read(&near.after))
	b.Queue(selectCaptured, at.dataPoint, *at.effect).QueryRow(read(&near.captured))
	b.Queue(`select revision from memories.captured where data_point = $1`, at.dataPoint).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(&near.newest); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	})
	b.Queue(selectSendOf, project.ID, at.dataPoint, at.number).Query(func(rows pgx.Rows) (err error) {
		near.sends, err = scanSends(rows)
		return err
	})
	if err := s.DB.SendBatch(ctx, b).Close(); err != nil {
		return near, fmt.Errorf("read what is next to a revision: %w", err)
	}
	return near, nil
}

// send is a send as the projection of sends shows it.
type send struct {
	id, request uuid.UUID
	acceptedAt  time.Time
	settledAt   *time.Time
	phase       string
	items       int
}

// readyAt is since when all of the send was searchable, nil if it is not.
func (s send) readyAt() *time.Time {
	if s.phase != phaseIndexed {
		return nil
	}
	return s.settledAt
}

const (
	sendColumns  = `select s.id, s.request_id, s.accepted_at, s.settled_at, s.phase, s.item_count from datapoints.sends s `
	selectSends  = sendColumns + `where s.project_id = $1 and s.id = any($2::uuid[])`
	selectSendOf = sendColumns + `join datapoints.revisions r on r.ingestion_id = s.id
		join datapoints.data_points d on d.id = r.data_point
		where s.project_id = $1 and r.data_point = $2 and r.number = $3`
)

func scanSends(rows pgx.Rows) (map[uuid.UUID]send, error) {
	found := map[uuid.UUID]send{}
	for rows.Next() {
		var s send
		if err := rows.Scan(&s.id, &s.request, &s.acceptedAt, &s.settledAt, &s.phase, &s.items); err != nil {
			return nil, err
		}
		s.acceptedAt = s.acceptedAt.UTC()
		if s.settledAt != nil {
			*s.settledAt = s.settledAt.UTC()
		}
		found[s.id] = s
	}
	return found, rows.Err()
}

// The sides of a node that a lineage can reveal.
const (
	Inputs  = "inputs"
	Outputs = "outputs"
)

// Side is the inputs or the outputs of a node.
type Side struct {
	Node uuid.UUID
	Of   string
}

// SidesOf reads the sides to reveal: the id of a node, a colon, inputs or outputs. Its fault is invalid-reveal.
func SidesOf(reveal []string) ([]Side, error) {
	var sides []Side
	for _, text := range reveal {
		node, of, _ := strings.Cut(text, ":")
		id, err := uuid.Parse(node)
		if err != nil || len(node) != 36 || of != Inputs && of != Outputs {
			return nil, fault.New(fault.Invalid, fault.CodeInvalidReveal, "reveal is %.80q: want <id>:%s or <id>:%s",
				text, Inputs, Outputs)
		}
		sides = append(sides, Side{Node: id, Of: of})
	}
	return sides, nil
}

// Edge records that Derived was built from Input.
type Edge struct{ Input, Derived uuid.UUID }

// Lineage is the nodes around a root. The root is the first of them. Hidden is how many nodes next to
// those are not among them.
type Lineage struct {
	Root  Brief
	Nodes []Brief
	Edges []Edge
	// Sides are, for each node, how many of its inputs and outputs are not shown.
	Sides []HiddenSides
	// Hidden is how many neighbours of the nodes are not shown.
	Hidden int
	// Deleted is set if the data point of the root was deleted; there are no nodes then.
	Deleted *Deleted
}

// HiddenSides counts what is next to a node and not shown.
type HiddenSides struct{ Inputs, Outputs int }

// Lineage walks from a root over the revealed sides of the nodes that it reaches: all of them, or
// without any the inputs of the root. Breadth first, at most limit nodes; the order is always the
// same. Sides of nodes that it does not reach reveal nothing.
func (g *Graph) Lineage(root uuid.UUID, all bool, reveal []Side, limit int) Lineage {
	if !all && len(reveal) == 0 {
		reveal = []Side{{root, Inputs}}
	}
	revealed := make(map[Side]struct{}, len(reveal))
	for _, side := range reveal {
		revealed[side] = struct{}{}
	}
	shows := func(n int, side string) bool {
		_, ok := revealed[Side{g.nodes[n], side}]
		return all || ok
	}
	order, shown := []int{g.byID[root]}, make([]bool, len(g.nodes))
	shown[order[0]] = true
	visit := func(neighbours []int) {
		for _, n := range neighbours {
			if !shown[n] && len(order) < limit {
				shown[n], order = true, append(order, n)
			}
		}
	}
	for at := 0; at < len(order); at++ {
		if n := order[at]; shows(n, Inputs) {
			visit(g.inputs[n])
		}
		if n := order[at]; shows(n, Outputs) {
			visit(g.outputs[n])
		}
	}
	l := Lineage{Root: g.brief(order[0]), Nodes: make([]Brief, len(order)), Edges: []Edge{}}
	l.Sides = make([]HiddenSides, len(order))
	hidden := map[int]struct{}{}
	for i, n := range order {
		l.Nodes[i] = g.brief(n)
		for _, input := range g.inputs[n] {
			if shown[input] {
				l.Edges = append(l.Edges, Edge{Input: g.nodes[input], Derived: g.nodes[n]})
			} else {
				hidden[input] = struct{}{}
				l.Sides[i].Inputs++
			}
		}
		for _, output := range g.outputs[n] {
			if !shown[output] {
				hidden[output] = struct{}{}
				l.Sides[i].Outputs++
			}
		}
	}
	l.Hidden = len(hidden)
	return l
}

// Kept is whether the log still has a text that was shown.
type Kept string

// The answers.
const (
	KeptAsStored Kept = "as-stored" // the event of the text has the leaf record of the read record
	KeptDiffers  Kept = "differs"   // it has another one: the log or the record was changed
	KeptUnproved Kept = "unproved"  // the read record has no leaf record
	KeptErased   Kept = "erased"
	KeptUnknown  Kept = "unknown" // the project has no such text
)

// ShownText is a text that a read record names, as the log has it.
type ShownText struct {
	Kept     Kept   `json:"kept"`
	SourceID string `json:"sourceId,omitempty"`
	Kind     string `json:"kind,omitempty"`
	// Text is the text, or its beginning if Cut is true.
	Text string `json:"text,omitempty"`
	Cut  bool   `json:"textCut,omitempty"`
	// Parts are those of the text of the source that were shown, or that a memory rests on, as many as there is room for.
	Parts []string `json:"parts,omitempty"`
	// Deleted is when the data point was deleted and by which request, nil if it is not, or not known yet.
	Deleted *Deleted `json:"deleted,omitempty"`
}

// selectPointDeleted finds the deletion of a data point of which no revision is known.
const selectPointDeleted = `select null::uuid, data_point, 0, null::bigint, null::bigint, null::bigint, deleted_at, request_id
	from trace.deleted where data_point = $1 and project_id = $2`

// ShownText reads a text that a read record of a project names from the log, at most so many bytes of it, and compares
// the record of its event.
func (s *Trace) ShownText(
	ctx context.Context, organization uuid.UUID, project auth.Project, of reads.Shown, most int,
) (t ShownText, err error) {
	at, known, err := s.locate(ctx, project, of.Node)
	switch {
	case err != nil:
		return t, err
	case !known && of.DataPoint != uuid.Nil:
		at, err = scanLocation(s.DB.QueryRow(ctx, selectPointDeleted, of.DataPoint, project.ID))
		if t.Kept = KeptUnknown; errors.Is(err, pgx.ErrNoRows) { // the read record names no text of it
			return t, nil
		}
		if err != nil {
			return t, fmt.Errorf("look for a deleted data point: %w", err)
		}
	case !known:
		t.Kept = KeptUnknown
		return t, nil
	}
	if at.deleted != nil {
		return ShownText{Kept: KeptErased, Deleted: at.deleted}, nil
	}
	t, err = s.shownText(ctx, organization, at, of, most)
	if errors.Is(err, errErased) { // the projection does not know the deletion yet
		return ShownText{Kept: KeptErased}, nil
	}
	return t, err
}

func (s *Trace) shownText(
	ctx context.Context, organization uuid.UUID, at location, of reads.Shown, most int,
) (t ShownText, err error) {
	r, err := replaySource(ctx, s.Journal, at)
	if err != nil {
		return t, err
	}
	source, err := wholeContent(ctx, s.Journal, r)
	if err != nil {
		return t, err
	}
	t.SourceID, t.Kind, t.Kept = r.Accepted.Effect.SourceID, KindSource, KeptUnproved
	if of.Node == at.node {
		t.Text = source
		if len(of.Leaf) > 0 {
			t.Kept, err = s.compareSource(ctx, organization, at, of.Leaf)
		}
	} else {
		t.Kind = KindMemory
		t.Text, t.Kept, err = s.shownMemory(ctx, organization, at, of)
	}
	if err != nil {
		return t, err
	}
	left := most
	for _, span := range of.Spans {
		if left > 0 && span[0] >= 0 && span[0] <= span[1] && span[1] <= len(source) {
			part, _ := cutBytes(source[span[0]:span[1]], left)
			t.Parts, left = append(t.Parts, part), left-len(part)
		}
	}
	t.Text, t.Cut = cutBytes(t.Text, most)
	return t, nil
}

// shownMemory finds the memories of a revision with a leaf record, else the newest ones: they may have been derived
// again since.
func (s *Trace) shownMemory(
	ctx context.Context, organization uuid.UUID, at location, of reads.Shown,
) (text string, kept Kept, err error) {
	kept = KeptUnproved
	if len(of.Leaf) > 0 {
		kept = KeptDiffers
	}
	var newest, found *memory.Derived
	err = s.Journal.Scan(ctx, stream.Name(stream.Memory, at.dataPoint), 0, func(e eventstore.DecodedEvent) (bool, error) {
		derived, is := e.Event.(*memory.Derived)
		if !is || derived.Revision != at.number {
			return true, nil
		}
		newest = derived
		was, err := compare(e, organization, of.Leaf)
		if was == KeptAsStored {
			found, kept = derived, was
		}
		return found == nil, err
	})
	if found == nil {
		found = newest
	}
	if err != nil || found == nil {
		return "", kept, erasedOr(err)
	}
	list, err := trace.MemoriesOf(ctx, s.Journal, found)
	if err != nil && !trace.IsLost(err) {
		return "", kept, err
	}
	for _, m := range list {
		if m.ID == of.Node {
			return m.Content, kept, nil
		}
	}
	return "", kept, nil
}

// compareSource compares the record of the event that accepted a revision.
func (s *Trace) compareSource(ctx context.Context, organization uuid.UUID, at location, leaf []byte) (Kept, error) {
	e, ok, err := s.Journal.At(ctx, stream.Name(stream.DataPoint, at.dataPoint), eventstore.Revision(*at.accepted))
	if err != nil || !ok {
		return "", erasedOr(err)
	}
	return compare(e, organization, leaf)
}

// compare compares the record of an event with the one that a read record has.
func compare(e eventstore.DecodedEvent, organization uuid.UUID, leaf []byte) (Kept, error) {
	is, err := e.Kept(organization)
	if err != nil {
		return "", fmt.Errorf("compare the record of a text: %w", err)
	}
	if bytes.Equal(is.Record[:], leaf) {
		return KeptAsStored, nil
	}
	return KeptDiffers, nil
}

// cutBytes returns at most so many bytes of a text, in full characters, and whether there are more.
func cutBytes(text string, most int) (start string, more bool) {
	if len(text) <= most {
		return text, false
	}
	return wholeCharacters([]byte(text[:most])), true
}
