package export_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/export"
	"github.com/annals-project/annals/projections/reads"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

// about is what the rest of the service knows of a person.
type about struct {
	identity *directory.Identity
	traits   []directory.DatedTraits
	belongs  []directory.Judgement
	reads    []reads.Read
	// ended are the reads whose texts are gone since they were listed.
	ended map[uuid.UUID]bool
}

func (a about) Identity(context.Context, auth.Project, string) (i directory.Identity, ok bool, err error) {
	if a.identity == nil {
		return i, false, nil
	}
	return *a.identity, true, nil
}

func (a about) EachTraits(
	_ context.Context, _ auth.Project, _ string, do func(directory.DatedTraits) error,
) (err error) {
	for _, t := range a.traits {
		err = errors.Join(err, do(t))
	}
	return err
}

func (a about) EachMembership(
	_ context.Context, _ auth.Project, _ string, do func(directory.Judgement) error,
) (err error) {
	for _, j := range a.belongs {
		err = errors.Join(err, do(j))
	}
	return err
}

// List lists one read a page.
func (a about) List(
	_ context.Context, _ auth.Project, f reads.Filter, after string, _ int,
) (list []reads.Read, next string, err error) {
	for n, r := range a.reads {
		if r.Identity == f.Identity && fmt.Sprint(n) > after {
			return []reads.Read{r}, fmt.Sprint(n), nil
		}
	}
	return nil, "", nil
}

func (a about) Texts(_ context.Context, _ auth.Project, request uuid.UUID, _ int) ([]reads.Text, bool, error) {
	return []reads.Text{}, !a.ended[request], nil
}

// copyOf writes the copy of an identity.
func (h *harness) copyOf(
	identity string, a about, mark func() error,
) (lines []line, sum export.PersonSummary, err error) {
	h.t.Helper()
	s := export.PersonService{
		Service: h.service(), Directory: a, Reads: a,
		Naming: func(context.Context, auth.Project, string) (int, bool, bool, error) { return 0, false, false, nil },
	}
	in := export.PersonRequest{Project: h.own.Slug, Identity: identity}
	began, err := s.BeginPerson(h.t.Context(), in)
	if err != nil {
		h.t.Fatal(err)
	}
	var b bytes.Buffer
	sum, err = s.WritePerson(h.t.Context(), in, began, &b, mark)
	if err != nil {
		return nil, sum, err
	}
	lines = linesOf(h.t, b.String())
	if len(lines) < 2 || lines[0].Type != "copy" || lines[len(lines)-1].Type != "end" {
		h.t.Fatalf("a copy without a beginning or an end: %+v", lines)
	}
	return lines[1 : len(lines)-1], sum, nil
}

func goOn() error { return nil }

// A copy has all revisions that the person wrote with what was derived from them, the private ones too, and counts
// those that others wrote of the same data points. What others wrote elsewhere, and what a person of the same name
// wrote in a neighbour, is not in it.
func TestPersonCopy_Texts(t *testing.T) {
	h := newHarness(t)
	alone := h.private("ana")
	h.Send(recalltest.DataPoint{ID: "1", Content: "first of Ana", Author: "ana"})
	h.Derive("1", 1, h.Now, false,
		recalltest.Line{Kind: memory.Observation, Content: "Ana was here.", Excerpt: "first of Ana"})
	h.Send(recalltest.DataPoint{ID: "1", Content: "second of Ben", Author: "ben"})
	h.Send(recalltest.DataPoint{ID: "1", Content: "third of Ana", Author: "ana"})
	h.Send(recalltest.DataPoint{ID: "2", Content: "of Ben", Author: "ben"})
	h.Send(recalltest.DataPoint{ID: "3", Content: "for Ana alone", Author: "ana", Audience: alone, Big: true})
	h.Send(recalltest.DataPoint{ID: "4", Content: "erased", Author: "ana"})
	h.Delete("4")
	h.sendToNeighbour(recalltest.DataPoint{ID: "5", Content: "of Ana in the neighbour", Author: "ana"})
	h.CatchUp("datapoints", "memories")
	lines, sum, err := h.copyOf("ana", about{}, goOn)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprintf("%s %s %d %v %v: %s", l.Type, l.ID[:1], l.Revision, l.IsNewest, l.Private, l.Content))
	}
	memoryID := lines[1].ID[:1]
	want := []string{
		"text 1 1 false false: first of Ana", "memory " + memoryID + " 1 false false: Ana was here.",
		"text 1 3 true false: third of Ana", "text 3 1 true true: for Ana alone",
	}
	if !slices.Equal(got, want) {
		t.Errorf("lines\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if sum.Texts != 3 || sum.Memories != 1 || sum.Revisions != 1 || sum.HasRecord || sum.Naming != nil {
		t.Errorf("summary %+v", sum)
	}
}

// A copy has the record with its traits and audiences, and every read of the person whose record still is there.
func TestPersonCopy_RecordAndReads(t *testing.T) {
	h := newHarness(t)
	a := about{
		identity: &directory.Identity{
			Origin: "api", CreatedAt: h.Now, UpdatedAt: h.Now, Traits: json.RawMessage(`{"team":"x"}`),
		},
		traits:  []directory.DatedTraits{{From: h.Now, Traits: json.RawMessage(`{"team":"x"}`)}},
		belongs: []directory.Judgement{{Audience: new(directory.AudienceHead)}, {Audience: new(directory.AudienceHead)}},
		ended:   map[uuid.UUID]bool{},
	}
	for n, identity := range []string{"ana", "ana", "ben", "ana"} {
		a.reads = append(a.reads, reads.Read{ID: uuid.New(), Identity: identity, At: h.Now.Add(time.Duration(n))})
	}
	a.ended[a.reads[1].ID] = true
	lines, sum, err := h.copyOf("ana", a, goOn)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, l := range lines {
		types = append(types, l.Type)
	}
	if want := []string{"identity", "traits", "audience", "audience", "read", "read"}; !slices.Equal(types, want) {
		t.Errorf("lines %q, want %q", types, want)
	}
	if !sum.HasRecord || sum.Audiences != 2 || sum.Reads != 2 || sum.Texts != 0 {
		t.Errorf("summary %+v", sum)
	}
}

// A copy ends with the error of the caller that breaks it off.
func TestPersonCopy_BrokenOff(t *testing.T) {
	h := newHarness(t)
	h.Send(recalltest.DataPoint{ID: "1", Content: "of Ana", Author: "ana"})
	h.CatchUp("datapoints")
	broken := errors.New("nobody reads on")
	if _, _, err := h.copyOf("ana", about{}, func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("a copy that was broken off: %v", err)
	}
}
