package why_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/memory"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/recall/recalltest"
	"github.com/annals-project/annals/projections/trace"
	"github.com/annals-project/annals/projections/why"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// harness is a project with a trace service.
type harness struct {
	*recalltest.Harness
	t       testing.TB
	service *why.Trace
	recalls []why.Recall
}

func newHarness(t testing.TB) *harness {
	t.Helper()
	h := &harness{Harness: recalltest.New(t, nil), t: t}
	h.AddProjector(trace.NewProjector(h.Journal))
	h.MakeSchema(directory.New(h.Journal, stream.Namespaces{}, slog.New(slog.DiscardHandler)))
	h.service = why.NewTrace(why.TraceConfig{
		DB: h.DB, Journal: h.Journal, Head: projections.Head{Log: h.Journal.Store, Waiter: h}, Index: h.Index, Analyzers: domainrecall.NewAnalyzers(), Recalls: h,
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return h.Now },
	})
	return h
}

// Wait implements the waiter of the service: it applies what the log holds.
func (h *harness) Wait(context.Context, eventstore.Position, ...string) error {
	h.CatchUp()
	return nil
}

// Hits implements the recalls of the service.
func (h *harness) Hits(
	_ context.Context, _ uuid.UUID, nodes []uuid.UUID, from, to time.Time, limit int,
) ([]why.Recall, error) {
	var found []why.Recall
	for _, r := range h.recalls {
		for _, id := range nodes {
			if r.Node == id && !r.ReceivedAt.Before(from) && !r.ReceivedAt.After(to) && len(found) < limit {
				found = append(found, r)
			}
		}
	}
	return found, nil
}

// Of implements the recalls of the service.
func (h *harness) Of(
	_ context.Context, _, dataPoint uuid.UUID, from, to time.Time, limit int,
) (found []why.Recall, err error) {
	for _, r := range h.recalls {
		if r.Node == dataPoint && !r.ReceivedAt.Before(from) && !r.ReceivedAt.After(to) && len(found) < limit {
			found = append(found, r)
		}
	}
	return found, nil
}

func (h *harness) node(id uuid.UUID) why.Node {
	h.t.Helper()
	n, err := h.service.Node(h.t.Context(), h.Project, id)
	if err != nil {
		h.t.Fatalf("node %s: %v", id, err)
	}
	return n
}

func (h *harness) source(sourceID string, revision int) uuid.UUID {
	return datapoint.NodeID(h.DataPoint(sourceID), revision)
}

func wantFault(t *testing.T, err error, code string) {
	t.Helper()
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != code {
		t.Errorf("error %v, want %s", err, code)
	}
}

func claimOf(content string) recalltest.Line {
	return recalltest.Line{Kind: memory.Claim, Content: content, Excerpt: content, Subject: "ana", Attribute: "editor"}
}

// Every revision is a node with what it derived, what replaced it and what it replaced.
func TestNode_Revisions(t *testing.T) {
	h := newHarness(t)
	h.Send(recalltest.DataPoint{ID: "a", Content: "Ana uses Vim.\nShe said so."})
	first := h.Derive("a", 1, h.Now, false, claimOf("Ana's editor is Vim."))
	accepted := h.Now
	h.CatchUp()
	n := h.node(h.source("a", 1))
	if !n.Current || n.SourceID != "a" || n.Revision != 1 || n.Kind != why.KindSource || n.MemoryKind != "" ||
		n.Headline != "Ana uses Vim." || n.Content != "Ana uses Vim.\nShe said so." || n.More || n.Inputs != 0 || n.Outputs != 1 ||
		n.Phase != "captured" || n.ReadyAt != nil || n.ReplacedBy != nil || n.Replaced != nil || n.ValidTo != nil ||
		!n.ValidFrom.Equal(accepted) {
		t.Errorf("the only revision: %+v", n)
	}
	h.Now = h.Now.Add(time.Hour)
	h.Send(recalltest.DataPoint{ID: "a", Content: "Ana uses Helix.", Big: true})
	// The projection has applied nothing of this: the streams say it.
	if n := h.node(h.source("a", 1)); n.Current || n.ReplacedBy == nil || *n.ReplacedBy != h.source("a", 2) ||
		n.ValidTo == nil || !n.ValidTo.Equal(h.Now) || n.Content != "Ana uses Vim.\nShe said so." || n.Outputs != 1 {
		t.Errorf("the replaced revision: %+v", n)
	}
	if n := h.node(h.source("a", 2)); !n.Current || n.Replaced == nil || *n.Replaced != h.source("a", 1) ||
		n.Content != "Ana uses Helix." || n.More || n.Outputs != 0 {
		t.Errorf("the new revision: %+v", n)
	}
	// The memories of the first revision are recalled until the second has its own.
	if n := h.node(first[0]); !n.Current || n.Kind != why.KindMemory || n.MemoryKind != memory.Claim || n.Inputs != 1 ||
		n.Headline != "Ana's editor is Vim." || n.Revision != 1 {
		t.Errorf("a memory of the replaced revision: %+v", n)
	}
	second := h.Derive("a", 2, h.Now, true, claimOf("Ana's editor is Helix."))
	h.CatchUp()
	if n := h.node(first[0]); n.Current || n.ReplacedBy == nil || *n.ReplacedBy != h.source("a", 2) {
		t.Errorf("a memory of the replaced revision, once the next is captured: %+v", n)
	}
	if n := h.node(second[0]); !n.Current || n.Headline != "Ana's editor is Helix." {
		t.Errorf("a memory in a blob: %+v", n)
	}
}

// builtLater is a projection whose tables are there only once somebody has waited for it.
type builtLater struct{ *harness }

func (b builtLater) Wait(ctx context.Context, _ eventstore.Position, _ ...string) error {
	_, err := b.DB.Exec(ctx, "alter schema being_built rename to trace")
	return err
}

func TestNode_BeforeTheFirstBuild(t *testing.T) {
	h := newHarness(t)
	h.Send(recalltest.DataPoint{ID: "a", Content: "Ana uses Vim."})
	h.CatchUp()
	h.service.Head.Waiter = builtLater{h}
	for _, id := range []uuid.UUID{h.source("a", 1), uuid.New()} {
		if _, err := h.DB.Exec(t.Context(), "alter schema trace rename to being_built"); err != nil {
			t.Fatal(err)
		}
		n, err := h.service.Node(t.Context(), h.Project, id)
		if id == h.source("a", 1) {
			if err != nil || n.Content != "Ana uses Vim." {
				t.Errorf("a node: %+v, %v", n, err)
			}
			continue
		}
		wantFault(t, err, fault.CodeNotFound)
	}
}

// A claim that a later one supersedes names it, and the other way round.
func TestNode_SupersededClaim(t *testing.T) {
	h := newHarness(t)
	h.Send(recalltest.DataPoint{ID: "a", Content: "Ana uses Vim."})
	earlier := h.Derive("a", 1, h.Now.Add(-2*time.Hour), false, claimOf("Ana's editor is Vim."))[0]
	h.Send(recalltest.DataPoint{ID: "b", Content: "Ana uses Helix.", Audience: uuid.New()})
	at := h.Now.Add(-time.Hour)
	later := h.Derive("b", 1, at, false, claimOf("Ana's editor is Helix."))[0]
	h.CatchUp()
	if n := h.node(earlier); n.Current || n.ReplacedBy == nil || *n.ReplacedBy != later ||
		n.ValidTo == nil || !n.ValidTo.Equal(at) {
		t.Errorf("the superseded claim: %+v", n)
	}
	if n := h.node(later); !n.Current || n.Replaced == nil || *n.Replaced != earlier || n.ReplacedBy != nil {
		t.Errorf("the later claim: %+v", n)
	}
	h.Delete("b")
	h.CatchUp()
	if n := h.node(earlier); !n.Current || n.ReplacedBy != nil || n.ValidTo != nil {
		t.Errorf("the claim after the later one was deleted: %+v", n)
	}
}

func TestNode_LongContent(t *testing.T) {
	for _, big := range []bool{false, true} {
		for _, c := range []struct {
			chars int
			more  bool
		}{{4000, false}, {4001, true}, {700_000, true}} {
			h := newHarness(t)
			h.Send(recalltest.DataPoint{ID: "a", Content: strings.Repeat("é", c.chars), Big: big || c.chars > 100_000})
			n := h.node(h.source("a", 1))
			if want := min(c.chars, 4000); n.Content != strings.Repeat("é", want) || n.More != c.more {
				t.Errorf("%d characters (blob %v): %d bytes, more %v", c.chars, big, len(n.Content), n.More)
			}
			if len([]rune(n.Headline)) != 200 {
				t.Errorf("headline of %d characters", len([]rune(n.Headline)))
			}
		}
	}
}

// A node of another project is not found, on any read.
func TestService_Neighbour(t *testing.T) {
	h := newHarness(t)
	h.Send(recalltest.DataPoint{ID: "a", Content: "Ana uses Vim."})
	ids := append(h.Derive("a", 1, h.Now, false, claimOf("Ana's editor is Vim.")), h.source("a", 1), uuid.New())
	h.CatchUp()
	neighbour := auth.Project{ID: uuid.New(), Number: 2, Slug: "other", Namespace: uuid.New()}
	for _, id := range ids {
		_, err := h.service.Node(t.Context(), neighbour, id)
		wantFault(t, err, fault.CodeNotFound)
		_, err = h.service.Lineage(t.Context(), neighbour, id, true, nil, 400)
		wantFault(t, err, fault.CodeNotFound)
		_, err = h.service.Timeline(t.Context(), neighbour, id, nil, nil)
		wantFault(t, err, fault.CodeNotFound)
		for _, search := range []string{"", "a", "vim", id.String()} {
			roots, err := h.service.Roots(t.Context(), neighbour, why.RootsQuery{Search: search, First: 25})
			if err != nil || len(roots.Memories.Nodes)+len(roots.Sources.Nodes) != 0 {
				t.Errorf("roots of %q: %+v, %v", search, roots, err)
			}
		}
	}
}

// From the call of the deletion on, an id answers that it was deleted, and nothing of the text is
// left in any answer: before and after the projections, once the facts are retained, once the streams
// are gone, and after a rebuild.
func TestService_DeletedAtEveryStage(t *testing.T) {
	h := newHarness(t)
	h.Send(recalltest.DataPoint{ID: "secret-id", Content: strings.Repeat("Ana uses Vim. ", 300)})
	ids := h.Derive("secret-id", 1, h.Now, false, claimOf("Ana's editor is Vim."))
	h.Send(recalltest.DataPoint{ID: "secret-id", Content: "Ana uses Helix.", Big: true})
	ids = append(ids, h.Derive("secret-id", 2, h.Now, true, claimOf("Ana's editor is Helix."))...)
	ids = append(ids, h.source("secret-id", 1), h.source("secret-id", 2), datapoint.PassageID(h.source("secret-id", 1), 1))
	h.CatchUp()
	point, request, at := h.DataPoint("secret-id"), uuid.New(), h.Now.Add(time.Minute)
	deletionID := uuid.New()
	check := func(stage string) {
		t.Helper()
		for _, id := range ids {
			n := h.node(id)
			want := why.Node{
				Brief: why.Brief{ID: id, Kind: n.Kind}, Revision: n.Revision, Phase: "deleted",
				Deleted: &why.Deleted{At: at, Request: &request},
			}
			if diff := cmp.Diff(want, n); diff != "" {
				t.Errorf("%s: %s", stage, diff)
			}
			l, err := h.service.Lineage(t.Context(), h.Project, id, true, nil, 400)
			if err != nil || len(l.Nodes)+len(l.Edges) != 0 || l.Root.Headline != "" || l.Deleted == nil {
				t.Errorf("%s: lineage %+v, %v", stage, l, err)
			}
			line, err := h.service.Timeline(t.Context(), h.Project, id, nil, nil)
			if err != nil || len(line.Nodes)+len(line.Sends)+len(line.Replacements) != 0 || line.Deleted == nil {
				t.Errorf("%s: timeline %+v, %v", stage, line, err)
			}
		}
	}
	h.Append(stream.Name(stream.DataPoint, point), datapoint.Deleted{
		ProjectID: h.Project.ID, DeletionID: deletionID, RequestID: request, DeletedAt: at, Single: true,
	})
	check("before the projections applied it")
	h.CatchUp()
	check("deleted")
	roots, err := h.service.Roots(t.Context(), h.Project, why.RootsQuery{First: 25})
	if err != nil || len(roots.Memories.Nodes)+len(roots.Sources.Nodes) != 0 {
		t.Errorf("roots %+v, %v", roots, err)
	}
	facts := deletion.FactsKept{
		ProjectID: h.Project.ID, DataPoint: point, DeletedAt: at, RequestID: request, To: 2, Complete: true, Newest: 2,
		Facts: []deletion.RetainedFact{
			{IngestionID: uuid.New(), Items: 1, Outcome: "created", Revision: 1},
			{IngestionID: uuid.New(), Items: 1, Outcome: "updated", Revision: 2},
		},
		Memories: []deletion.MemoryCount{{Revision: 1, Count: 1}, {Revision: 2, Count: 1}},
	}
	h.Append(stream.Name(stream.Deletion, deletionID), facts)
	check("facts retained, not applied")
	h.CatchUp()
	check("facts retained")
	for _, category := range []string{stream.Memory, stream.DataPoint} {
		last, _, err := h.Store.ReadLast(t.Context(), stream.Name(category, point))
		if err == nil {
			_, err = h.Store.Tombstone(t.Context(), last.Stream, last.Revision)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h.CatchUp()
	check("tombstoned")
	p := h.Projector(trace.Name)
	h.MakeSchema(p)
	check("rebuilt from what is left")
}

func TestTimeline_Sections(t *testing.T) {
	h := newHarness(t)
	start := h.Now
	h.Send(recalltest.DataPoint{ID: "a", Content: "Ana uses Vim."})
	h.Derive("a", 1, h.Now, false, claimOf("Ana's editor is Vim."))
	h.Now = h.Now.Add(time.Hour)
	h.Send(recalltest.DataPoint{ID: "a", Content: "Ana uses Helix."})
	second := h.Derive("a", 2, h.Now, false, claimOf("Ana's editor is Helix."), claimOf("Ana likes Helix."))
	h.Send(recalltest.DataPoint{ID: "b", Content: "Ana uses Emacs."})
	elsewhere := h.Derive("b", 1, h.Now.Add(time.Minute), false, claimOf("Ana's editor is Emacs."))[0]
	h.Send(recalltest.DataPoint{ID: "c", Content: "Bo."})
	h.Derive("c", 1, h.Now, false, recalltest.Line{Kind: memory.Claim, Content: "Bo", Subject: "bo", Attribute: "editor"})
	h.Now = h.Now.Add(time.Hour)
	h.CatchUp()
	h.recalls = []why.Recall{
		{Request: uuid.New(), ReceivedAt: h.Now, Identity: "ana", Node: second[0], Rank: 3},
		{Request: uuid.New(), ReceivedAt: h.Now.Add(-60 * 24 * time.Hour), Node: second[0], Rank: 1},
	}
	sections := func(l why.Timeline) map[uuid.UUID]string {
		found := map[uuid.UUID]string{}
		for _, n := range l.Nodes {
			found[n.ID] = n.Section
		}
		return found
	}
	line, err := h.service.Timeline(t.Context(), h.Project, second[0], nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[uuid.UUID]string{
		h.source("a", 1): "revision", h.source("a", 2): "built-from", elsewhere: "elsewhere",
	}
	if diff := cmp.Diff(want, sections(line)); diff != "" {
		t.Errorf("sections of a memory: %s", diff)
	}
	if len(line.Sends) != 3 || len(line.Recalls) != 1 || line.Recalls[0].Rank != 3 || line.Truncated ||
		!line.To.Equal(h.Now) || line.To.Sub(line.From) != 31*24*time.Hour {
		t.Errorf("timeline %+v", line)
	}
	source, err := h.service.Timeline(t.Context(), h.Project, h.source("a", 2), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want = map[uuid.UUID]string{
		h.source("a", 1): "revision", second[0]: "produced", second[1]: "produced", elsewhere: "elsewhere",
	}
	if diff := cmp.Diff(want, sections(source)); diff != "" {
		t.Errorf("sections of a source: %s", diff)
	}
	replaced := false
	for _, r := range source.Replacements {
		replaced = replaced || r.Replaced == h.source("a", 1) && r.By == h.source("a", 2) && r.At.Equal(start.Add(time.Hour))
	}
	if !replaced {
		t.Errorf("replacements %+v", source.Replacements)
	}
	from, to := instant.Written{At: start.Add(-2 * time.Hour)}, instant.Written{At: start.Add(-time.Hour)}
	if line, err = h.service.Timeline(t.Context(), h.Project, second[0], &from, &to); err != nil ||
		len(line.Nodes)+len(line.Sends)+len(line.Recalls)+len(line.Replacements) != 0 {
		t.Errorf("a window before everything: %+v, %v", line, err)
	}
	_, err = h.service.Timeline(t.Context(), h.Project, second[0], &to, &from)
	wantFault(t, err, fault.CodeInvalidRange)
	far := instant.Written{At: from.At.Add(31*24*time.Hour + time.Microsecond)}
	_, err = h.service.Timeline(t.Context(), h.Project, second[0], &from, &far)
	wantFault(t, err, fault.CodeRangeTooWide)
	far.At = from.At.Add(31 * 24 * time.Hour)
	if _, err = h.service.Timeline(t.Context(), h.Project, second[0], &from, &far); err != nil {
		t.Errorf("31 days: %v", err)
	}
}

// The timeline of a data point with more revisions than are read is truncated.
func TestTimeline_ManyRevisions(t *testing.T) {
	h := newHarness(t)
	for n := range 1100 {
		h.Send(recalltest.DataPoint{ID: "a", Content: strings.Repeat("x", n+1)})
	}
	h.CatchUp()
	for _, revision := range []int{1, 550, 1100} {
		line, err := h.service.Timeline(t.Context(), h.Project, h.source("a", revision), nil, nil)
		if err != nil || len(line.Nodes) != 400 || !line.Truncated {
			t.Errorf("revision %d: %d nodes, truncated %v, %v", revision, len(line.Nodes), line.Truncated, err)
		}
	}
}

func TestRoots_PagesAndSearch(t *testing.T) {
	h := newHarness(t)
	var memories []uuid.UUID
	for n := range 7 {
		h.Now = h.Now.Add(time.Minute)
		id := string(rune('a' + n))
		h.Send(recalltest.DataPoint{ID: id, Content: "Zebra number " + id + ".", Audience: uuid.New(), Big: n == 3})
		line := recalltest.Line{Kind: memory.Observation, Content: "A zebra " + id}
		memories = append(memories, h.Derive(id, 1, h.Now, false, line)...)
	}
	h.CatchUp()
	var sources, derived []uuid.UUID
	q := why.RootsQuery{First: 3}
	for pages := 1; ; pages++ {
		roots, err := h.service.Roots(t.Context(), h.Project, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range roots.Sources.Nodes {
			sources = append(sources, r.ID)
			if !r.Current || r.Headline != "Zebra number "+r.SourceID+"." {
				t.Errorf("source %+v", r)
			}
		}
		for _, r := range roots.Memories.Nodes {
			derived = append(derived, r.ID)
		}
		if roots.Sources.More != roots.Memories.More || roots.Sources.End == nil {
			t.Fatalf("pages %+v", roots)
		}
		if !roots.Sources.More {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		q.AfterSources, q.AfterMemories = roots.Sources.End, roots.Memories.End
	}
	for n := range 7 {
		if sources[n] != h.source(string(rune('g'-n)), 1) || derived[n] != memories[6-n] {
			t.Errorf("the root at %d is %s and %s", n, sources[n], derived[n])
		}
	}
	for _, c := range []struct {
		search            string
		sources, memories int
	}{
		{"zebra", 7, 7},
		{"ZEBRA number", 7, 0},
		{"zebra giraffe", 0, 0},
		{"c", 1, 1},
		{memories[2].String(), 0, 1},
		{h.source("c", 1).String(), 1, 0},
		{"the", 0, 0},
		{"giraffe", 0, 0},
	} {
		roots, err := h.service.Roots(t.Context(), h.Project, why.RootsQuery{Search: c.search, First: 50})
		if err != nil || len(roots.Sources.Nodes) != c.sources || len(roots.Memories.Nodes) != c.memories {
			t.Errorf("search %q: %d sources, %d memories, %v", c.search, len(roots.Sources.Nodes), len(roots.Memories.Nodes), err)
		}
	}
	state, _ := h.State("c")
	h.Send(recalltest.DataPoint{ID: "c", Content: "Zebra again."})
	h.CatchUp()
	for _, search := range []string{"", "zebra"} {
		q := why.RootsQuery{Ingestion: state.IngestionID, Search: search, First: 50}
		roots, err := h.service.Roots(t.Context(), h.Project, q)
		if err != nil || len(roots.Sources.Nodes) != 1 || roots.Sources.Nodes[0].ID != h.source("c", 1) ||
			roots.Sources.Nodes[0].Current || len(roots.Memories.Nodes) != 1 || roots.Memories.Nodes[0].ID != memories[2] {
			t.Errorf("roots of a send, search %q: %+v, %v", search, roots, err)
		}
	}
	roots, err := h.service.Roots(t.Context(), h.Project, why.RootsQuery{Ingestion: uuid.New(), First: 50})
	if err != nil || len(roots.Sources.Nodes)+len(roots.Memories.Nodes) != 0 || roots.Sources.End != nil {
		t.Errorf("roots of an unknown send: %+v, %v", roots, err)
	}
}
