package why

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/trace"
)

// recalls knows which recalls returned a node.
type recalls interface {
	// Hits returns at most limit recalls of a project that returned one of the nodes in a window,
	// newest first.
	Hits(ctx context.Context, project uuid.UUID, nodes []uuid.UUID, from, to time.Time, limit int) ([]Recall, error)
	// Of returns at most limit recalls of a project that returned a data point or a memory of it in a window, newest
	// first, without node and rank.
	Of(ctx context.Context, project, dataPoint uuid.UUID, from, to time.Time, limit int) ([]Recall, error)
}

// searcher searches the recall index.
type searcher interface {
	Search(ctx context.Context, q recallindex.Query) (recallindex.Found, error)
	Analysis() int
}

// TraceConfig is what a Service needs.
type TraceConfig struct {
	DB      *pgxpool.Pool
	Journal eventstore.Journal
	Head    projections.Head
	// Index and Analyzers find the roots of a search.
	Index     searcher
	Analyzers recall.Analyzers
	// Recalls is nil if no request log exists: no recall is known then.
	Recalls recalls
	Logger  *slog.Logger
	// Now is the clock, time.Now if nil.
	Now func() time.Time
}

// Trace answers the trace reads. It is safe for concurrent use.
type Trace struct{ TraceConfig }

// NewTrace makes a service.
func NewTrace(c TraceConfig) *Trace {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Trace{TraceConfig: c}
}

// location is where the events of a revision are.
type location struct {
	node, dataPoint uuid.UUID
	number          int
	// accepted, effect and derived are nil if erased; derived also if there are no memories.
	accepted, effect, derived *int64
	deleted                   *Deleted
	// head is the newest revision of the data point according to its stream.
	head int
	// passage is the number of a passage of the source, nil if the node is none.
	passage *int
}

// Deleted records when a data point was deleted. Request is nil if a version of the program that
// did not record it retained the facts.
type Deleted struct {
	At      time.Time
	Request *uuid.UUID
}

// undefinedTable is the code of Postgres for a table, or a schema of one, that is not there.
const undefinedTable = "42P01"

const selectLocation = `select r.node_id, r.data_point, r.number, r.accepted, r.effect, r.derived, d.deleted_at, d.request_id
	from (select $1::uuid as node_id union all select node_id from trace.memories where id = $1) c
	cross join lateral (select * from trace.revisions where node_id = c.node_id offset 0) r
	left join trace.deleted d on d.data_point = r.data_point
	where r.project_id = $2`

// selectPassage finds the revision that a passage belongs to by the bounds of the ids of its node.
const selectPassage = `select r.node_id, r.data_point, r.number, r.accepted, r.effect, r.derived, d.deleted_at, d.request_id
	from trace.revisions r
	left join trace.deleted d on d.data_point = r.data_point
	where r.node_id between $1 and $2 and r.project_id = $3
	order by r.node_id limit 1`

func scanLocation(row pgx.Row) (at location, err error) {
	var when *time.Time
	var request *uuid.UUID
	err = row.Scan(&at.node, &at.dataPoint, &at.number, &at.accepted, &at.effect, &at.derived, &when, &request)
	if when != nil {
		at.deleted = &Deleted{At: when.UTC(), Request: request}
	}
	return at, err
}

// locate finds the revision of a node, as the projection is now. ok is false if the project has no
// such node up to there.
func (s *Trace) locate(ctx context.Context, project auth.Project, node uuid.UUID) (at location, ok bool, err error) {
	low, high, isPassage := datapoint.NodesOfPassage(node)
	if isPassage {
		at, err = scanLocation(s.DB.QueryRow(ctx, selectPassage, low, high, project.ID))
		number := datapoint.PassageNumber(node, at.node)
		at.passage = &number
	} else {
		at, err = scanLocation(s.DB.QueryRow(ctx, selectLocation, node, project.ID))
	}
	// After an upgrade a service may be ready before the first build of this projection has created its tables.
	refused, is := errors.AsType[*pgconn.PgError](err)
	notBuilt := is && refused.Code == undefinedTable
	if errors.Is(err, pgx.ErrNoRows) || notBuilt {
		return location{}, false, nil
	}
	if err != nil {
		return location{}, false, fmt.Errorf("find a node: %w", err)
	}
	return at, true, nil
}

// find replays the revision of a node. If its data point was deleted, the graph is nil and the
// location records when. The fault is not-found if the project has no such node at the head of the
// log.
func (s *Trace) find(ctx context.Context, project auth.Project, node uuid.UUID) (g *Graph, at location, err error) {
	var erased error
	known, err := s.again(ctx, func() (known bool, err error) {
		erased = nil
		if at, known, err = s.locate(ctx, project, node); err != nil || !known {
			return false, err
		}
		g, err = s.graph(ctx, &at)
		if errors.Is(err, errErased) {
			erased = err
			return false, nil
		}
		if g != nil { // else the data point is deleted
			_, known = g.byID[node]
		}
		return known, err
	})
	switch {
	case err != nil || known:
		return g, at, err
	case erased != nil:
		return nil, at, erased
	default:
		return nil, at, fault.New(fault.NotFound, fault.CodeNotFound, "the project has no node %s", node)
	}
}

// graph replays a revision. If the data point was deleted, it returns nil and sets at.deleted. The
// error is errErased if its streams are gone and the projection does not know the deletion yet.
func (s *Trace) graph(ctx context.Context, at *location) (*Graph, error) {
	if at.deleted != nil {
		return nil, nil //nolint:nilnil // at.deleted is the answer
	}
	last, ok, err := s.Journal.Last(ctx, stream.Name(stream.DataPoint, at.dataPoint))
	if err != nil || !ok {
		return nil, erasedOr(err)
	}
	if e, is := last.Event.(*datapoint.Deleted); is {
		at.deleted = &Deleted{At: e.DeletedAt.UTC(), Request: &e.RequestID}
		return nil, nil //nolint:nilnil // at.deleted is the answer
	}
	_, states, _ := datapoint.SendOf(last.Event)
	at.head = states.Head().Revision
	if at.derived == nil {
		if err := s.findDerived(ctx, at); err != nil {
			return nil, err
		}
	}
	r, err := replay(ctx, s.Journal, *at)
	if err != nil {
		return nil, err
	}
	if at.passage == nil {
		return NewGraph(r), nil
	}
	return withPassage(ctx, s.Journal, r, *at.passage)
}

// tail is how many of the last events of a stream of memories are read for memories that the
// projection has not applied yet.
const tail = 32

// findDerived looks for the memories of a revision at the end of their stream.
func (s *Trace) findDerived(ctx context.Context, at *location) error {
	name := stream.Name(stream.Memory, at.dataPoint)
	events, err := s.Journal.Read(ctx, name, eventstore.EndOfStream, eventstore.Backwards, tail)
	if err != nil {
		return erasedOr(err)
	}
	for _, e := range events {
		if derived, is := e.Event.(*memory.Derived); is && derived.Revision == at.number {
			revision := int64(e.Revision)
			at.derived = &revision
			return nil
		}
	}
	return nil
}

// Lineage walks from a root. Its fault is not-found.
func (s *Trace) Lineage(
	ctx context.Context, project auth.Project, root uuid.UUID, all bool, reveal []Side, limit int,
) (Lineage, error) {
	g, at, err := s.find(ctx, project, root)
	if err != nil {
		return Lineage{}, err
	}
	if g == nil {
		return Lineage{Root: at.brief(root), Nodes: []Brief{}, Edges: []Edge{}, Deleted: at.deleted}, nil
	}
	found := g.Lineage(root, all, reveal, limit)
	return found, show(ctx, reads.Lineage, found.Nodes, func(b Brief) uuid.UUID { return g.nodeOf(b.ID) })
}

// brief describes a node of a deleted data point.
func (p location) brief(node uuid.UUID) Brief {
	if node == p.node {
		return Brief{ID: node, Kind: KindSource}
	}
	return Brief{ID: node, Kind: KindMemory}
}

// nodeOf returns the node that holds the text of a node of the graph: of a passage, that of its source.
func (g *Graph) nodeOf(id uuid.UUID) uuid.UUID {
	if g.passage != 0 && g.byID[id] == g.passage {
		return g.ID
	}
	return id
}

// The kinds of nodes.
const (
	KindSource = "source"
	KindMemory = "memory"
)

// headlineChars is the longest headline, in code points.
const headlineChars = 200

// journal reads the streams.
type journal interface {
	eventstore.BlobReader
	// Last, At and Read are those of eventstore.Journal.
	Last(ctx context.Context, stream string) (eventstore.DecodedEvent, bool, error)
	At(ctx context.Context, stream string, revision eventstore.Revision) (eventstore.DecodedEvent, bool, error)
	Read(ctx context.Context, stream string, from eventstore.Revision, direction eventstore.Direction, limit int) (
		[]eventstore.DecodedEvent, error)
	// ReadBlobStart reads the first bytes of a blob, as many as its first chunk has.
	ReadBlobStart(ctx context.Context, ref blob.Ref) ([]byte, error)
}

// Revision is a revision of a data point, folded from its events.
type Revision struct {
	ID        uuid.UUID
	DataPoint uuid.UUID
	Accepted  *datapoint.RevisionAccepted
	// Content is the beginning of the content, in full characters. Whole reports that it is all.
	Content string
	Whole   bool
	// Derived is nil until memories are derived.
	Derived  *memory.Derived
	Memories []memory.Memory
}

// errErased reports that the streams of a data point were deleted while they were read.
var errErased = errors.New("the data point was deleted")

// replay reads the events of a revision and folds them.
func replay(ctx context.Context, j journal, at location) (*Revision, error) {
	r, err := replaySource(ctx, j, at)
	if err != nil || at.derived == nil {
		return r, err
	}
	e, ok, err := j.At(ctx, stream.Name(stream.Memory, at.dataPoint), eventstore.Revision(*at.derived))
	if err != nil || !ok {
		return nil, erasedOr(err)
	}
	derived, is := e.Event.(*memory.Derived)
	if !is || derived.Revision != at.number {
		return nil, fmt.Errorf("event %d of %s has no memories of revision %d", e.Revision, e.Stream, at.number)
	}
	r.Derived = derived
	if r.Memories, err = trace.MemoriesOf(ctx, j, derived); err != nil && !trace.IsLost(err) {
		return nil, err
	}
	return r, nil
}

// replaySource reads the event of a revision, without its memories.
func replaySource(ctx context.Context, j journal, at location) (*Revision, error) {
	if at.accepted == nil {
		return nil, errErased
	}
	e, ok, err := j.At(ctx, stream.Name(stream.DataPoint, at.dataPoint), eventstore.Revision(*at.accepted))
	if err != nil || !ok {
		return nil, erasedOr(err)
	}
	accepted, is := e.Event.(*datapoint.RevisionAccepted)
	if !is || accepted.Effect.Revision != at.number {
		return nil, fmt.Errorf("event %d of %s is not revision %d", e.Revision, e.Stream, at.number)
	}
	return foldSource(ctx, j, at.dataPoint, accepted)
}

// foldSource folds the event of a revision. A content whose blob is lost is empty.
func foldSource(
	ctx context.Context, j journal, dataPoint uuid.UUID, accepted *datapoint.RevisionAccepted,
) (*Revision, error) {
	r := &Revision{
		ID: datapoint.NodeID(dataPoint, accepted.Effect.Revision), DataPoint: dataPoint, Accepted: accepted,
		Content: accepted.Content.Inline, Whole: true,
	}
	if ref := accepted.Content.Blob; ref != nil {
		start, err := j.ReadBlobStart(ctx, *ref)
		if err != nil && !trace.IsLost(err) {
			return nil, err
		}
		r.Content, r.Whole = wholeCharacters(start), int64(len(start)) == ref.Size
	}
	return r, nil
}

// erasedOr returns errErased for an event that no longer exists, else the error.
func erasedOr(err error) error {
	if err == nil || errors.Is(err, eventstore.ErrDeleted) {
		return errErased
	}
	return err
}

// wholeCharacters drops the bytes of an incomplete last character.
func wholeCharacters(text []byte) string {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if c := text[len(text)-n]; utf8.RuneStart(c) {
			if !utf8.FullRune(text[len(text)-n:]) {
				text = text[:len(text)-n]
			}
			break
		}
	}
	return string(text)
}

// cut returns the first code points of a text, and whether there are more.
func cut(text string, most int) (start string, more bool) {
	n := 0
	for at := range text {
		if n == most {
			return text[:at], true
		}
		n++
	}
	return text, false
}

// headline returns a line for people: the first one with letters, shortened.
func headline(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.Join(strings.Fields(line), " "); line == "" {
			continue
		}
		if start, more := cut(line, headlineChars-1); more {
			return start + "…"
		}
		return line
	}
	return ""
}

// Headline returns the label of a source, or the first line of its content if it has none.
func (r *Revision) Headline() string {
	if label := r.Accepted.Effect.Label; label != nil && headline(*label) != "" {
		return headline(*label)
	}
	return headline(r.Content)
}

// Graph is the nodes of one revision: its source, then its memories in their order. The built-in rule
// that an extractor reads one revision and nothing else makes it all of the lineage of each of them.
type Graph struct {
	*Revision
	// nodes lists the ids: of the source, then of the memories. passage is the index of a passage among these, 0 for none.
	nodes   []uuid.UUID
	passage int
	// byID is the index of each node in nodes.
	byID map[uuid.UUID]int
	// inputs and outputs are the indices of the neighbours of each node, in order.
	inputs, outputs [][]int
}

// NewGraph links the memories of a revision with their inputs. An input that is not part of the
// revision is ignored, so is a second memory with the same id.
func NewGraph(r *Revision) *Graph {
	g := &Graph{Revision: r, byID: map[uuid.UUID]int{r.ID: 0}, nodes: []uuid.UUID{r.ID}}
	var list []memory.Memory
	for _, m := range r.Memories {
		if _, twice := g.byID[m.ID]; twice {
			continue
		}
		g.byID[m.ID] = len(g.nodes)
		g.nodes, list = append(g.nodes, m.ID), append(list, m)
	}
	r.Memories = list
	g.inputs, g.outputs = make([][]int, len(g.nodes)), make([][]int, len(g.nodes))
	for n, m := range list {
		for _, id := range m.Inputs {
			input, known := g.byID[id]
			if !known || input == n+1 || slices.Contains(g.inputs[n+1], input) {
				continue
			}
			g.inputs[n+1] = append(g.inputs[n+1], input)
			g.outputs[input] = append(g.outputs[input], n+1)
		}
	}
	return g
}

// Brief is what every list shows of a node.
type Brief struct {
	ID   uuid.UUID
	Kind string
	// MemoryKind is "" for a source.
	MemoryKind string
	Headline   string
}

// brief describes node n of the graph.
func (g *Graph) brief(n int) Brief {
	if n == 0 {
		return Brief{ID: g.ID, Kind: KindSource, Headline: g.Headline()}
	}
	m := g.Memories[n-1]
	return Brief{ID: m.ID, Kind: KindMemory, MemoryKind: m.Kind, Headline: headline(m.Content)}
}

// occurredAt and createdAt return the times of node n of the graph. A passage has those of its source.
func (g *Graph) occurredAt(n int) time.Time {
	if n == 0 || n == g.passage {
		return g.Accepted.Effect.OccurredAt.UTC()
	}
	return g.Derived.OccurredAt.UTC()
}

func (g *Graph) createdAt(n int) time.Time {
	if n == 0 || n == g.passage {
		return g.Accepted.AcceptedAt.UTC()
	}
	return g.Derived.DerivedAt.UTC()
}

// withPassage makes the graph of a revision and of a passage of its source, which recall shows as an observation. No
// event records it: it is what the text has. A passage that the text does not have is not in the graph.
func withPassage(ctx context.Context, j journal, r *Revision, n int) (*Graph, error) {
	text, err := wholeContent(ctx, j, r)
	if err != nil {
		return nil, err
	}
	content, ok := passageOf(text, n)
	if !ok {
		return NewGraph(r), nil
	}
	id := datapoint.PassageID(r.ID, n)
	r.Memories = append(r.Memories, memory.Memory{
		ID: id, Kind: memory.Observation, Content: content, Inputs: []uuid.UUID{r.ID},
	})
	g := NewGraph(r)
	g.passage = g.byID[id]
	return g, nil
}

// wholeContent returns the content of a revision, "" if its blob is lost. It reserves the bytes of a blob.
func wholeContent(ctx context.Context, j journal, r *Revision) (string, error) {
	ref := r.Accepted.Content.Blob
	if ref == nil || r.Whole {
		return r.Content, nil
	}
	if err := allowance.Reserve(ctx, ref.Size); err != nil {
		return "", err
	}
	data, err := j.ReadBlob(ctx, *ref)
	if trace.IsLost(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the text of a passage: %w", err)
	}
	return string(data), nil
}

// passageOf returns a passage of a text by its number. A text of one passage has none: its node is its source.
func passageOf(text string, number int) (content string, ok bool) {
	if recall.IsOnePassage(text) {
		return "", false
	}
	for n, span := range recall.Numbered(text) {
		if n == number {
			return text[span.Start:span.End], true
		}
	}
	return "", false
}
