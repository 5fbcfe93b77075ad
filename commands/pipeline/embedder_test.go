package pipeline

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

// pointers makes vectors; fails is asked before each call.
type pointers struct {
	fails func(texts []string) error
	texts []string
}

func (*pointers) Name() string   { return "pointers" }
func (*pointers) Passages() int  { return 2048 }
func (*pointers) Memories() bool { return true }

func (p *pointers) Embed(_ context.Context, texts []string) ([][]float32, error) {
	if err := p.fails(texts); err != nil {
		return nil, err
	}
	p.texts = append(p.texts, texts...)
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		vectors[i] = []float32{float32(len(text)), 1}
	}
	return vectors, nil
}

// list is the to-do list of one item, and a projection that is always where it should be.
type list struct {
	item work.Item
	progress
}

func (list) EmbeddedByOthers(context.Context, string, []uuid.UUID, int) ([]work.Embedding, error) {
	return nil, nil
}

func (l list) Unembedded(_ context.Context, but []uuid.UUID, _ int) ([]work.Embedding, error) {
	if slices.Contains(but, l.item.DataPoint) {
		return nil, nil
	}
	return []work.Embedding{{ProjectID: l.item.ProjectID, DataPoint: l.item.DataPoint, Revision: l.item.Revision}}, nil
}

func (list) Wait(context.Context, eventstore.Position, ...string) error { return nil }

func newEmbedder(b *fixture, fails func([]string) error) (*Embedder, *pointers) {
	p := &pointers{fails: fails}
	l := list{item: b.item}
	return &Embedder{Journal: b.Journal, List: l, Progress: l, Vectors: p, Live: live{p}, Logger: b.Logger, Now: b.Now}, p
}

// live is a model that recall uses for good.
type live struct{ vectors Vectors }

func (l live) Vectors() Vectors { return l.vectors }

func (live) Switch(context.Context, string) error { return errors.New("nothing to switch to") }

func TestEmbedder_CapturedRevision(t *testing.T) {
	down := errors.New("down")
	b := newFixture(t, "Ana likes tea")
	b.extractor.found = []memory.Memory{{
		ID: memory.ID(b.item.DataPoint, 1, 0), Kind: memory.Claim,
		Content: "Ana's drink is tea",
	}}
	e, p := newEmbedder(b, func([]string) error { return down })
	later := map[uuid.UUID]time.Time{}
	if _, err := e.round(t.Context(), later); err != nil || len(later) != 1 {
		t.Fatalf("before it is captured: %v, later %v", err, later)
	}
	b.attempt()
	clear(later)
	if _, err := e.round(t.Context(), later); !errors.Is(err, down) {
		t.Fatalf("error %v", err)
	}
	b.wantTypes("derivation-started", "derived")
	p.fails = func([]string) error { return nil }
	if worked, err := e.round(t.Context(), later); err != nil || !worked {
		t.Fatal(worked, err)
	}
	b.wantTypes("derivation-started", "derived", "embedded")
	if want := []string{
		"standup: Ana likes tea",
		"standup: Ana's drink is tea",
	}; !slices.Equal(p.texts, want) {
		t.Errorf("texts %q, want %q", p.texts, want)
	}
	got := b.history()[2].Event.(*memory.Embedded)
	if got.Model != "pointers" || got.Dims != 2 || got.Part != 1 || got.Parts != 1 || len(got.Vectors) != 2 ||
		got.Vectors[1].Memory != memory.ID(b.item.DataPoint, 1, 0) {
		t.Errorf("embedded %+v", got)
	}
	// What is derived already stays so, and what comes next is derived after the vectors.
	b.item.Attempt = 1
	b.attempt()
	b.wantTypes("derivation-started", "derived", "embedded")
	b.item.Text, b.item.Revision, b.item.Attempt = &work.Text{Content: "Ana likes coffee", OccurredAt: at}, 2, 0
	b.attempt()
	b.wantTypes("derivation-started", "derived", "embedded", "derivation-started", "derived")
	// The vectors of the first revision come too late now.
	clear(later)
	if _, err := e.round(t.Context(), later); err != nil || len(later) != 1 {
		t.Errorf("%v, later %v", err, later)
	}
	b.wantTypes("derivation-started", "derived", "embedded", "derivation-started", "derived")
}

// A text that the model refuses, or panics at, has no vector, and costs no other its own. A model that does so with all
// of them is not believed.
func TestEmbedder_RefusedTexts(t *testing.T) {
	for name, refuse := range map[string]func() error{
		"refused": func() error { return &Failure{Code: ingestion.ContentRejected, Message: "refused"} },
		"panics":  func() error { panic("client") },
	} {
		t.Run(name, func(t *testing.T) {
			fine, bad := strings.Repeat("Fine words. ", 150), strings.Repeat("Bad words. ", 150)
			b := newFixture(t, fine+bad+fine)
			b.attempt()
			e, p := newEmbedder(b, func([]string) error { return refuse() })
			if _, err := e.round(t.Context(), map[uuid.UUID]time.Time{}); err == nil {
				t.Error("a model that refuses everything is believed")
			}
			b.wantTypes("derivation-started", "derived")
			p.fails = func(texts []string) error {
				if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "Bad") }) {
					return refuse()
				}
				return nil
			}
			runtest.Must(t, errorOf(e.round(t.Context(), map[uuid.UUID]time.Time{})))
			got := b.history()[2].Event.(*memory.Embedded)
			if len(got.Vectors) == 0 || got.Vectors[0].Passage != 0 ||
				got.Vectors[len(got.Vectors)-1].Passage < len(got.Vectors) {
				t.Errorf("vectors %+v", got.Vectors)
			}
		})
	}
}

// Many vectors are stored in parts, each small enough for an event.
func TestEmbedder_ManyVectors(t *testing.T) {
	b := newFixture(t, "text")
	for n := range 3000 {
		b.extractor.found = append(b.extractor.found,
			memory.Memory{ID: memory.ID(b.item.DataPoint, 1, n), Kind: memory.Mention, Content: strings.Repeat("m", 1+n%99)})
	}
	b.attempt()
	e, _ := newEmbedder(b, func([]string) error { return nil })
	runtest.Must(t, errorOf(e.round(t.Context(), map[uuid.UUID]time.Time{})))
	vectors := 0
	parts := b.history()[2:]
	for i, f := range parts {
		got := f.Event.(*memory.Embedded)
		vectors += len(got.Vectors)
		if got.Part != i+1 || got.Parts != len(parts) {
			t.Errorf("part %d of %d", got.Part, got.Parts)
		}
	}
	if len(parts) < 2 || vectors != 3001 {
		t.Errorf("%d vectors in %d parts", vectors, len(parts))
	}
}

// another is a model that recall is switched to.
type another struct{ *pointers }

func (another) Name() string   { return "another" }
func (another) Memories() bool { return false }

// twoLists lists an item until a model has embedded it.
type twoLists struct {
	list
	unembedded, byOthers bool
}

func (q *twoLists) Unembedded(ctx context.Context, but []uuid.UUID, n int) ([]work.Embedding, error) {
	if !q.unembedded {
		return nil, nil
	}
	return q.list.Unembedded(ctx, but, n)
}

func (q *twoLists) EmbeddedByOthers(
	ctx context.Context, model string, but []uuid.UUID, n int,
) ([]work.Embedding, error) {
	if !q.byOthers || model != "another" {
		return nil, nil
	}
	return q.list.Unembedded(ctx, but, n)
}

// switched is a live model that notes what it is switched to.
type switched struct {
	vectors Vectors
	to      []string
}

func (s *switched) Vectors() Vectors { return s.vectors }

func (s *switched) Switch(_ context.Context, name string) error {
	s.to = append(s.to, name)
	return nil
}

// A new revision gets the vectors of the model that recall uses first. Recall is switched once nothing lacks those of
// the configured one.
func TestEmbedder_AnotherModel(t *testing.T) {
	b := newFixture(t, "Ana likes tea")
	b.attempt()
	e, p := newEmbedder(b, func([]string) error { return nil })
	live := &switched{vectors: p}
	q := &twoLists{list: e.List.(list), unembedded: true, byOthers: true}
	e.List, e.Live, e.Vectors = q, live, another{p}
	later := map[uuid.UUID]time.Time{}
	round := func(want bool) {
		t.Helper()
		if worked, err := e.round(t.Context(), later); err != nil || worked != want {
			t.Fatalf("worked %v, %v", worked, err)
		}
	}
	models := func() (list []string) {
		for _, decoded := range b.history() {
			if made, is := decoded.Event.(*memory.Embedded); is {
				list = append(list, made.Model)
			}
		}
		return list
	}
	round(true)
	q.unembedded = false
	round(true)
	if got := models(); !slices.Equal(got, []string{"pointers", "another"}) || live.to != nil {
		t.Errorf("embedded by %v, switched to %v", got, live.to)
	}
	q.byOthers = false
	later[uuid.New()] = b.Now().Add(time.Hour) // one is not due yet
	round(false)
	if live.to != nil {
		t.Errorf("switched to %v although one is missing", live.to)
	}
	clear(later)
	round(false)
	if !slices.Equal(live.to, []string{"another"}) {
		t.Errorf("switched to %v", live.to)
	}
	live.vectors = another{p}
	round(false)
	if len(live.to) != 1 {
		t.Errorf("switched again: %v", live.to)
	}
	// If the model that recall uses cannot be called, the configured one embeds what is new.
	live.vectors, q.unembedded = nil, true
	round(true)
	if got := models(); len(got) != 3 || got[2] != "another" {
		t.Errorf("embedded by %v", got)
	}
}
