package why_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/projections/recall/recalltest"
	"github.com/annals-project/annals/projections/why"
)

func (h *harness) point(q why.PointQuery) why.Point {
	h.t.Helper()
	p, err := h.service.Point(h.t.Context(), h.Project, q)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

func TestPoint_EverythingOfIt(t *testing.T) {
	h := newHarness(t)
	h.Send(recalltest.DataPoint{ID: "a/1", Content: "Ana uses Vim.", Label: "Editors", Author: "ana"})
	h.Now = h.Now.Add(time.Hour)
	second := h.Now
	h.Send(recalltest.DataPoint{
		ID: "a/1", Content: "Ana uses Helix. Äh.", Label: "Editors", Author: "ana", Metadata: []byte(`{"n":1}`), Big: true,
	})
	derived := h.Derive("a/1", 2, h.Now, false, claimOf("Ana's editor is Helix."))
	h.Send(recalltest.DataPoint{ID: "other", Content: "Ben uses Emacs."})
	h.Derive("other", 1, h.Now, false, recalltest.Line{Kind: memory.Observation, Content: "Ben uses Emacs.", Excerpt: "Ben uses Emacs."})
	h.CatchUp()
	recalled := why.Recall{Request: uuid.New(), ReceivedAt: h.Now, Identity: "ben", Node: h.DataPoint("a/1")}
	h.recalls = []why.Recall{recalled, {Node: h.DataPoint("other"), ReceivedAt: h.Now}}

	p := h.point(why.PointQuery{SourceID: "a/1"})
	if p.Text != "Ana uses Helix. Äh." || p.MoreText || p.JSON != `{"n":1}` || *p.Label != "Editors" || p.Author != "ana" ||
		p.Revision != 2 || p.Audience != "project" || p.Older {
		t.Errorf("%+v", p)
	}
	if len(p.Events) != 2 || p.Events[0].Outcome != "updated" || p.Events[1].Outcome != "created" ||
		p.Events[0].Node != h.source("a/1", 2) || !p.Events[0].At.Equal(second) || p.Events[1].Headline != "Editors" ||
		p.Events[1].Phase == "" || p.Events[0].Audience != "project" {
		t.Errorf("events %+v", p.Events)
	}
	if len(p.Derived.Nodes) != 1 || p.Derived.Nodes[0].ID != derived[0] || !p.Derived.Nodes[0].Current {
		t.Errorf("memories %+v", p.Derived)
	}
	if len(p.Recalls) != 1 || p.Recalls[0] != recalled {
		t.Errorf("recalls %+v", p.Recalls)
	}
	// A cut text ends with a whole character.
	if p = h.point(why.PointQuery{SourceID: "a/1", Bytes: 17}); p.Text != "Ana uses Helix. " || !p.MoreText {
		t.Errorf("cut text %q, more %v", p.Text, p.MoreText)
	}
	foreign := h.Project
	foreign.ID = uuid.New()
	_, err := h.service.Point(t.Context(), foreign, why.PointQuery{SourceID: "a/1"})
	wantFault(t, err, fault.CodeDataPointNotFound)
	_, err = h.service.Point(t.Context(), h.Project, why.PointQuery{SourceID: "none"})
	wantFault(t, err, fault.CodeDataPointNotFound)
	h.Delete("a/1")
	h.CatchUp()
	if p = h.point(why.PointQuery{SourceID: "a/1"}); p.Deleted == nil || p.Text != "" || p.Events != nil {
		t.Errorf("deleted: %+v", p)
	}
}

func TestPoint_PagesOfEvents(t *testing.T) {
	h := newHarness(t)
	for n := range 60 {
		h.Send(recalltest.DataPoint{ID: "a", Content: fmt.Sprint("text ", n)})
	}
	h.CatchUp()
	var seen []string
	for before := int64(0); ; {
		p := h.point(why.PointQuery{SourceID: "a", Before: before})
		for _, e := range p.Events {
			seen = append(seen, e.Headline)
		}
		before = p.Events[len(p.Events)-1].Number
		if len(seen) > 60 || !p.Older {
			break
		}
	}
	if len(seen) != 60 || seen[0] != "text 59" || seen[59] != "text 0" {
		t.Errorf("%d events: %s", len(seen), strings.Join(seen, ", "))
	}
}

// BenchmarkLineage walks lineages of 400 nodes, of texts whose memories are in their events and in
// blobs. The store is in memory. It fails if the p99 is not below the budget.
func BenchmarkLineage(b *testing.B) {
	const budget, sources = 100 * time.Millisecond, 20
	for _, big := range []bool{false, true} {
		b.Run(fmt.Sprintf("blob=%v", big), func(b *testing.B) {
			h := newHarness(b)
			for n := range sources {
				id := fmt.Sprint(n)
				h.Send(recalltest.DataPoint{ID: id, Content: strings.Repeat("Ana uses Vim. ", 2000), Big: big})
				lines := make([]recalltest.Line, 2*limit.TraceNodes)
				for i := range lines {
					content := fmt.Sprintf("Ana's editor number %d of %d is Vim.", i, n)
					lines[i] = recalltest.Line{Kind: memory.Observation, Content: content, Excerpt: strings.Repeat(content, 4)}
				}
				h.Derive(id, 1, h.Now, big, lines...)
			}
			h.CatchUp()
			var took []time.Duration
			for b.Loop() {
				root := h.source(fmt.Sprint(len(took)%sources), 1)
				began := time.Now()
				l, err := h.service.Lineage(b.Context(), h.Project, root, true, nil, limit.TraceNodes)
				took = append(took, time.Since(began))
				if err != nil || len(l.Nodes) != limit.TraceNodes {
					b.Fatalf("%d nodes, %v", len(l.Nodes), err)
				}
			}
			slices.Sort(took)
			p99 := took[len(took)*99/100]
			b.ReportMetric(float64(p99)/float64(time.Millisecond), "p99-ms")
			if len(took) >= 100 && p99 >= budget {
				b.Errorf("p99 %s, budget %s", p99, budget)
			}
		})
	}
}
