package why_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

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
