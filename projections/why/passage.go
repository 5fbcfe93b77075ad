package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/trace"
)

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
