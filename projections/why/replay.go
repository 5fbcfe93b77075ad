package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/trace"
)

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

// replacePassage sets the revision that replaced that of a passage: recall shows passages of the newest one.
func (s *Trace) replacePassage(ctx context.Context, node *Node, near neighbours) error {
	if near.after == nil {
		node.Current = true
		return nil
	}
	return s.replace(ctx, node, *near.after)
}

// addPassage inserts the passage that a search names into a page of memories that is not cut yet, and returns the
// cursors of its nodes. A passage of a deleted data point is not a root.
func (s *Trace) addPassage(
	ctx context.Context, project auth.Project, q RootsQuery, page *RootPage, cursors []Cursor,
) ([]Cursor, error) {
	id, err := uuid.Parse(q.Search)
	if err != nil {
		return cursors, nil
	}
	if _, _, ok := datapoint.NodesOfPassage(id); !ok {
		return cursors, nil
	}
	n, err := s.Node(ctx, project, id)
	if f, is := errors.AsType[*fault.Error](err); is && f.Code == fault.CodeNotFound {
		return cursors, nil
	}
	own, from := Cursor{At: n.CreatedAt, ID: id}, after(q.AfterMemories)
	if err != nil || n.Deleted != nil || q.Ingestion != uuid.Nil && q.Ingestion != n.Ingestion || !isAfter(own, from) {
		return cursors, err
	}
	place := slices.IndexFunc(cursors, func(c Cursor) bool { return isAfter(c, own) })
	if place < 0 {
		place = len(cursors)
	}
	page.Nodes = slices.Insert(page.Nodes, place, Root{
		Brief: n.Brief, SourceID: n.SourceID, Revision: n.Revision, OccurredAt: n.OccurredAt, CreatedAt: n.CreatedAt,
		ReadyAt: n.ReadyAt, Current: n.Current, Phase: n.Phase,
	})
	return slices.Insert(cursors, place, own), nil
}

// isAfter reports whether a node comes after another one in a list: newest first.
func isAfter(c, other Cursor) bool {
	return cmp.Or(c.At.Compare(other.At), compareIDs(c.ID, other.ID)) < 0
}
