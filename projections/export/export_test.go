package export_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/export"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// harness is a project with what an export reads, and a neighbour.
type harness struct {
	*recalltest.Harness
	t         *testing.T
	reader    export.Reader
	own       auth.Project
	neighbour auth.Project
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{Harness: recalltest.New(t, nil), t: t}
	h.MakeSchema(directory.New(h.Journal, stream.Namespaces{}, slog.New(slog.DiscardHandler)))
	h.reader = export.Reader{DB: h.DB, Blobs: h.Journal}
	h.own = h.Project
	h.neighbour = auth.Project{ID: uuid.New(), Number: 2, Slug: "other", Namespace: uuid.New()}
	return h
}

// sendToNeighbour sends a data point to the neighbour.
func (h *harness) sendToNeighbour(p recalltest.DataPoint) {
	h.t.Helper()
	h.Project = h.neighbour
	h.Send(p)
	h.Project = h.own
}

func (h *harness) exec(sql string, args ...any) {
	h.t.Helper()
	if _, err := h.DB.Exec(h.t.Context(), sql, args...); err != nil {
		h.t.Fatal(err)
	}
}

// audience makes an audience of a project.
func (h *harness) audience(project uuid.UUID, slug string) uuid.UUID {
	h.t.Helper()
	id := uuid.New()
	h.exec(`insert into directory.audiences (id, project_id, slug, name, kind, created_at, recomputed_at, put_at,
			member_count, outdated, recounting, recounted_to, recounted, position)
		values ($1, $2, $3, $3, 'fixed', now(), now(), now(), 0, false, false, $4, 0, 1)`, id, project, slug, uuid.Nil)
	return id
}

// private makes the record of an identity, and returns the audience of it alone.
func (h *harness) private(identity string) uuid.UUID {
	h.t.Helper()
	id := uuid.New()
	h.exec(`insert into directory.identities (id, project_id, identity, traits, marks, broad, origin, created_at,
			updated_at, private, born)
		values ($1, $2, $3, '{}', '', false, 'api', now(), now(), $4, 1)`, uuid.New(), h.own.ID, identity, id)
	return id
}

// line is what the tests read of a line.
type line struct {
	ID, Type, Content, Audience, Identity, SourceID, Excerpt string
	Private, IsNewest                                        bool
	Number, Revision                                         int
	Inputs                                                   []struct{ SourceID string }
	SupersededBy                                             *struct {
		SourceID string
		Number   int
	}
}

func linesOf(t *testing.T, text string) (lines []line) {
	t.Helper()
	for one := range strings.Lines(text) {
		var l line
		if err := json.Unmarshal([]byte(one), &l); err != nil || !strings.HasSuffix(one, "\n") {
			t.Fatalf("line %q: %v", one, err)
		}
		lines = append(lines, l)
	}
	return lines
}

func idsOf(lines []line) (ids []string) {
	for _, l := range lines {
		ids = append(ids, l.ID)
	}
	return ids
}

// written is what an export wrote, and its marks.
type written struct {
	text  string
	lines []line
	marks []export.Mark
}

// write exports the project as it is now. The times of the log pass for the present.
func (h *harness) write(change func(*export.Selection)) written {
	h.t.Helper()
	s := export.Selection{Project: h.own.ID, AsOf: h.Now}
	if change != nil {
		change(&s)
	}
	var b bytes.Buffer
	var w written
	err := h.reader.Write(h.t.Context(), s, &b, func(m export.Mark) error {
		w.marks = append(w.marks, m)
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	w.text, w.lines = b.String(), linesOf(h.t, b.String())
	return w
}

// Lines are in the order of time, then of the bytes of the source id, and an export that continues at any place writes
// the rest of it. What a neighbour has is in none.
func TestWrite_OrderAndPlaces(t *testing.T) {
	h := newHarness(t)
	noon := h.Now
	for id, at := range map[string]time.Time{
		"b": noon, "a": noon, "B": noon, "é": noon, "Z": noon.Add(-time.Hour), "0": noon.Add(time.Microsecond),
	} {
		h.Send(recalltest.DataPoint{ID: id, Content: "text of " + id, OccurredAt: at})
	}
	h.sendToNeighbour(recalltest.DataPoint{ID: "c", Content: "of the neighbour", OccurredAt: noon})
	h.CatchUp("datapoints")
	whole := h.write(nil)
	want := []string{"Z", "B", "a", "b", "é", "0"}
	if got := idsOf(whole.lines); !slices.Equal(got, want) {
		t.Fatalf("order %q, want %q", got, want)
	}
	for n, id := range want {
		at := noon
		switch id {
		case "Z":
			at = noon.Add(-time.Hour)
		case "0":
			at = noon.Add(time.Microsecond)
		}
		rest := h.write(func(s *export.Selection) { s.After = &export.Place{OccurredAt: at, SourceID: id} })
		if got := idsOf(rest.lines); !slices.Equal(got, want[n+1:]) {
			t.Errorf("after %q: %q", id, got)
		}
	}
}

// A page has at most 256 data points, and more of them than one list of keys has are all written once.
func TestWrite_PagesByCount(t *testing.T) {
	const points, page = 2048 + 2, 256
	h := newHarness(t)
	for n := range points {
		h.Send(recalltest.DataPoint{ID: fmt.Sprintf("%04d", n), Content: "x"})
	}
	h.CatchUp("datapoints")
	w := h.write(nil)
	if len(w.lines) != points || !slices.IsSorted(idsOf(w.lines)) || len(slices.Compact(idsOf(w.lines))) != points {
		t.Errorf("%d lines, want %d in order, each once", len(w.lines), points)
	}
	left := points
	for n, m := range w.marks {
		want := min(page, left)
		left -= want
		if m.Points != want || m.SourceID != fmt.Sprintf("%04d", points-left-1) || !m.OccurredAt.Equal(h.Now) {
			t.Errorf("mark %d: %+v, want %d points", n, m, want)
		}
	}
	if left != 0 {
		t.Errorf("%d data points are before no mark", left)
	}
}

// A page has at most 4 MiB of texts, with those in blobs and metadata; a longer text has a page of its own.
func TestWrite_PagesByBytes(t *testing.T) {
	h := newHarness(t)
	long := strings.Repeat("x", 4<<20)
	for _, p := range []recalltest.DataPoint{
		{ID: "1", Content: "short"},
		{ID: "2", Content: long + long, Big: true},
		{ID: "3", Content: long[:1<<20], Metadata: []byte(`{"a":"` + long[:1<<20] + `"}`), Big: true},
		{ID: "4", Content: long[:256<<10]},
		{ID: "5", Content: long[:1900<<10], Big: true}, // with the others, a little more than a page takes
		{ID: "6", Content: "short"},
	} {
		h.Send(p)
	}
	h.CatchUp("datapoints")
	w := h.write(nil)
	var points []int
	for _, m := range w.marks {
		points = append(points, m.Points)
	}
	if want := []int{1, 1, 2, 2}; !slices.Equal(points, want) || len(w.lines) != 6 || len(w.lines[1].Content) != 8<<20 {
		t.Errorf("pages of %v data points, want %v; %d lines", points, want, len(w.lines))
	}
}

// A line names an audience of the project by its slug, and a text that is private to its author is marked so. Every
// other audience has a name that reaches nobody.
func TestWrite_Audiences(t *testing.T) {
	h := newHarness(t)
	team, foreign := h.audience(h.own.ID, "team"), h.audience(h.neighbour.ID, "theirs")
	gone, alone := uuid.New(), h.private("ana")
	for _, p := range []recalltest.DataPoint{
		{ID: "1", Content: "for all"},
		{ID: "2", Content: "for the team", Audience: team},
		{ID: "3", Content: "for an audience that was removed", Audience: gone},
		{ID: "4", Content: "for an audience of the neighbour", Audience: foreign},
		{ID: "5", Content: "of Ana alone", Audience: alone, Author: "ana"},
		{ID: "6", Content: "of Ben, for Ana alone", Audience: alone, Author: "ben"},
		{ID: "7", Content: "of nobody, for Ana alone", Audience: alone},
	} {
		h.Send(p)
	}
	h.CatchUp("datapoints")
	w := h.write(nil)
	removed := func(id uuid.UUID) string { return export.RemovedAudience + id.String()[24:] }
	type shown struct {
		Audience, Identity string
		Private            bool
	}
	var got []shown
	for _, l := range w.lines {
		got = append(got, shown{l.Audience, l.Identity, l.Private})
	}
	want := []shown{
		{},
		{Audience: "team"},
		{Audience: removed(gone)},
		{Audience: removed(foreign)},
		{Identity: "ana", Private: true},
		{Audience: removed(alone), Identity: "ben"},
		{Audience: removed(alone)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	slugs := []string{"team", removed(gone), removed(foreign), removed(alone)}
	slices.Sort(slugs)
	if len(w.marks) != 1 || !slices.Equal(w.marks[0].Audiences, slugs) {
		t.Errorf("marks %+v, want the audiences %q", w.marks, slugs)
	}
}

// An export shows the project as of its time, but for what was deleted or narrowed since.
func TestWrite_AsOfATime(t *testing.T) {
	h := newHarness(t)
	team := h.audience(h.own.ID, "team")
	for _, id := range []string{"deleted", "narrowed", "revised", "same"} {
		h.Send(recalltest.DataPoint{ID: id, Content: "first"})
	}
	asOf := h.Now
	h.Now = h.Now.Add(time.Minute)
	h.Send(recalltest.DataPoint{ID: "revised", Content: "second"})
	h.Send(recalltest.DataPoint{ID: "narrowed", Content: "first", Audience: team})
	h.Send(recalltest.DataPoint{ID: "new", Content: "first"})
	h.Delete("deleted")
	h.CatchUp("datapoints")
	w := h.write(func(s *export.Selection) { s.AsOf = asOf })
	if got, want := idsOf(w.lines), []string{"narrowed", "revised", "same"}; !slices.Equal(got, want) {
		t.Fatalf("lines %q, want %q", got, want)
	}
	if w.lines[0].Audience != "team" || w.lines[1].Content != "first" {
		t.Errorf("lines %+v", w.lines)
	}
	if at, err := h.reader.AsOf(t.Context(), h.own.ID, asOf); err != nil || !at.Equal(h.Now) {
		t.Errorf("an export that begins shows %v, %v; the newest send is of %v", at, err, h.Now)
	}
	if at, err := h.reader.AsOf(t.Context(), h.neighbour.ID, asOf); err != nil || !at.Equal(asOf) {
		t.Errorf("an export of the neighbour shows %v, %v", at, err)
	}
}

// lostBlobs has no blob, and does something before it answers.
type lostBlobs struct{ before func() }

func (l lostBlobs) ReadBlob(context.Context, blob.Ref) ([]byte, error) {
	l.before()
	return nil, &eventstore.BlobError{Missing: true}
}

// A text whose blob is gone has no line if its data point was erased meanwhile. Otherwise the export fails, and has
// begun no line for it.
func TestWrite_ErasedText(t *testing.T) {
	h := newHarness(t)
	h.Send(recalltest.DataPoint{ID: "1", Content: "stays"})
	h.Send(recalltest.DataPoint{ID: "2", Content: "in a blob", Big: true})
	h.Send(recalltest.DataPoint{ID: "3", Content: "stays too"})
	h.CatchUp("datapoints")
	h.reader.Blobs = lostBlobs{func() {}}
	var b bytes.Buffer
	err := h.reader.Write(t.Context(), export.Selection{Project: h.own.ID, AsOf: h.Now}, &b,
		func(export.Mark) error { return nil })
	if lost, is := errors.AsType[*eventstore.BlobError](err); !is || !lost.Missing {
		t.Errorf("a lost text: %v", err)
	}
	linesOf(t, b.String())

	h.reader.Blobs = lostBlobs{func() { h.exec(`delete from datapoints.data_points where id = $1`, h.DataPoint("2")) }}
	w := h.write(nil)
	if got := idsOf(w.lines); !slices.Equal(got, []string{"1", "3"}) || len(w.marks) != 1 || w.marks[0].Points != 2 {
		t.Errorf("an erased text: lines %q, marks %+v", got, w.marks)
	}
}

// An export ends at its next page once its context does, and with the error of a mark. The lines up to the mark are
// complete by then.
func TestWrite_BrokenOff(t *testing.T) {
	h := newHarness(t)
	long := strings.Repeat("x", 3<<20)
	for _, id := range []string{"1", "2", "3"} {
		h.Send(recalltest.DataPoint{ID: id, Content: long, Big: true})
	}
	h.CatchUp("datapoints")
	broken := errors.New("nobody reads on")
	for _, tt := range []struct {
		name string
		mark func(cancel func()) error
		is   error
	}{
		{"context ends", func(cancel func()) error { cancel(); return nil }, context.Canceled},
		{"mark fails", func(func()) error { return broken }, broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var b bytes.Buffer
			marks := 0
			err := h.reader.Write(ctx, export.Selection{Project: h.own.ID, AsOf: h.Now}, &b, func(m export.Mark) error {
				marks++
				if got := idsOf(linesOf(t, b.String())); !slices.Equal(got, []string{m.SourceID}) {
					t.Errorf("written at the mark of %s: %q", m.SourceID, got)
				}
				return tt.mark(cancel)
			})
			if !errors.Is(err, tt.is) || marks != 1 {
				t.Errorf("%v after %d marks, want %v after one", err, marks, tt.is)
			}
			if got := idsOf(linesOf(t, b.String())); !slices.Equal(got, []string{"1"}) {
				t.Errorf("written: %q", got)
			}
		})
	}
}

// Memories follow the data point that they are of, in order, also more of them than are read at once. A claim names the
// one that superseded it.
func TestWrite_Memories(t *testing.T) {
	const many = 256 + 4
	h := newHarness(t)
	claim := func(content string) recalltest.Line {
		return recalltest.Line{Kind: memory.Claim, Content: content, Excerpt: content, Subject: "ana", Attribute: "editor"}
	}
	h.Send(recalltest.DataPoint{ID: "1", Content: "Ana uses Vim.", OccurredAt: h.Now})
	ids := h.Derive("1", 1, h.Now, false, claim("Ana's editor is Vim."))
	h.Send(recalltest.DataPoint{ID: "2", Content: "long", OccurredAt: h.Now.Add(time.Second)})
	lines := make([]recalltest.Line, many)
	for n := range lines {
		text := fmt.Sprintf("observation %d", n)
		lines[n] = recalltest.Line{Kind: memory.Observation, Content: text, Excerpt: "of " + text}
	}
	h.Derive("2", 1, h.Now, true, lines...)
	h.Send(recalltest.DataPoint{ID: "3", Content: "Ana uses Helix.", OccurredAt: h.Now.Add(2 * time.Second)})
	h.Derive("3", 1, h.Now.Add(2*time.Second), false, claim("Ana's editor is Helix."))
	h.CatchUp("datapoints", "memories")
	w := h.write(func(s *export.Selection) { s.Memories = true })
	if len(w.lines) != 3+1+many+1 || len(w.marks) != 1 || w.marks[0].Points != 3 || w.marks[0].Memories != many+2 {
		t.Fatalf("%d lines, marks %+v", len(w.lines), w.marks)
	}
	first := w.lines[1]
	if first.Type != export.MemoryType || first.ID != ids[0].String() || first.SourceID != "1" || len(first.Inputs) != 1 ||
		first.Inputs[0].SourceID != "1" || first.SupersededBy == nil || first.SupersededBy.SourceID != "3" {
		t.Errorf("superseded claim %+v", first)
	}
	for n, l := range w.lines[3 : 3+many] {
		if l.SourceID != "2" || l.Number != n || l.Content != lines[n].Content || l.Excerpt != lines[n].Excerpt {
			t.Fatalf("memory %d: %+v", n, l)
		}
	}
	if last := w.lines[len(w.lines)-1]; last.SourceID != "3" || last.SupersededBy != nil {
		t.Errorf("newest claim %+v", last)
	}
	if w := h.write(nil); len(w.lines) != 3 || w.marks[0].Memories != 0 {
		t.Errorf("%d lines without memories, marks %+v", len(w.lines), w.marks)
	}
}

// OnlyProject implements the projects of the service.
func (h *harness) OnlyProject(_ context.Context, _, slug string) (p access.Project, err error) {
	for _, known := range []auth.Project{h.own, h.neighbour} {
		if known.Slug == slug {
			return access.Project{Project: known}, nil
		}
	}
	return p, fault.New(fault.NotFound, fault.CodeNotFound, "no such project")
}

// Wait implements the waiter of the service: it applies what the log holds.
func (h *harness) Wait(_ context.Context, _ eventstore.Position, names ...string) error {
	h.CatchUp(names...)
	return nil
}

func (h *harness) service() export.Service {
	return export.Service{
		Reader: h.reader, Projects: h, Head: projections.Head{Log: h.Store, Waiter: h},
		Now: func() time.Time { return h.Now.Add(-time.Hour) },
	}
}

// An export that begins waits for what was answered before it, and one that continues keeps its time.
func TestService_BeginsAndContinues(t *testing.T) {
	h := newHarness(t)
	h.Send(recalltest.DataPoint{ID: "1", Content: "one"})
	h.Send(recalltest.DataPoint{ID: "2", Content: "two"})
	s := h.service()
	for request, code := range map[export.Request]string{
		{}: fault.CodeInvalidRequest, {Project: "unknown"}: fault.CodeNotFound,
	} {
		_, err := s.Begin(t.Context(), request)
		if f, is := errors.AsType[*fault.Error](err); !is || f.Code != code {
			t.Errorf("%+v: %v, want %s", request, err, code)
		}
	}
	in := export.Request{Project: h.own.Slug}
	began, err := s.Begin(t.Context(), in)
	if err != nil || began.ProjectID != h.own.ID || !began.AsOf.Equal(h.Now) {
		t.Fatalf("began %+v, %v", began, err)
	}
	h.Now = h.Now.Add(time.Minute)
	h.Send(recalltest.DataPoint{ID: "3", Content: "three"})
	in.From = &export.From{AsOf: began.AsOf, After: &export.Place{OccurredAt: began.AsOf, SourceID: "1"}}
	again, err := s.Begin(t.Context(), in)
	if err != nil || again != began {
		t.Fatalf("continued %+v, %v; began %+v", again, err, began)
	}
	var b bytes.Buffer
	if err := s.Write(t.Context(), in, again, &b, func(export.Mark) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if got := idsOf(linesOf(t, b.String())); !slices.Equal(got, []string{"2"}) {
		t.Errorf("continued with %q", got)
	}
}
