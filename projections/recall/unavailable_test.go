package recall_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/annals-project/annals/domain/fault"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/explained"
	"github.com/annals-project/annals/projections/recall/recalltest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

type failing struct{ recallindex.Index }

func (failing) Search(context.Context, recallindex.Query) (recallindex.Found, error) {
	return recallindex.Found{}, recallindex.ErrDamaged
}

func (failing) Generation() string { return "failing" }
func (failing) Analysis() int      { return 1 }

type stopped struct{}

func (stopped) Stopped(_ context.Context, name string) error {
	if name == "memories" {
		return errors.New("stopped")
	}
	return nil
}

func TestRecall_Unavailable(t *testing.T) {
	h := recalltest.New(t, failing{})
	config := h.Config()
	config.Projections = stopped{}
	services := map[string]*recall.Service{"index": h.Service(), "projection": recall.New(config)}
	for name, service := range services {
		_, err := service.Recall(t.Context(), h.Ask("helix"))
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.CodeServiceUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Service().Recall(ctx, h.Ask("helix")); err == nil {
		t.Error("a recall without a caller succeeds")
	}
}

// switching puts another generation into use before the first search.
type switching struct {
	recallindex.Index
	analysis atomic.Int64
	asked    atomic.Int64
}

func (x *switching) Analysis() int { return int(x.analysis.Load()) }

func (x *switching) Search(ctx context.Context, q recallindex.Query) (recallindex.Found, error) {
	x.asked.Add(1)
	x.analysis.Store(int64(x.Index.Analysis()))
	if q.Analysis != x.Index.Analysis() {
		return recallindex.Found{}, recallindex.ErrOtherAnalysis
	}
	return x.Index.Search(ctx, q)
}

// A query that was analysed for the generation before is analysed again, and the recall is answered. So is
// its explanation.
func TestRecall_GenerationReplaced(t *testing.T) {
	h := recalltest.New(t, indextest.NewMemory())
	h.Send(recalltest.DataPoint{ID: "one", Content: "tern", OccurredAt: at(1)})
	h.CatchUp()
	earlier := domainrecall.Analysis{Version: 1, Word: func(word string) string { return "earlier" + word }}
	config := h.Config()
	config.Analyzers = domainrecall.NewAnalyzers(earlier)
	for _, explains := range []bool{false, true} {
		x := &switching{Index: h.Index}
		x.analysis.Store(int64(earlier.Version))
		config.Index = x
		service := recall.New(config)
		results := 0
		if explains {
			e, err := explained.Explain(t.Context(), service, h.Ask("tern"), []string{"one"})
			if err != nil {
				t.Fatal(err)
			}
			results = len(e.Results)
		} else {
			page, err := service.Recall(t.Context(), h.Ask("tern"))
			if err != nil {
				t.Fatal(err)
			}
			results = len(page.Results)
		}
		if results != 1 || x.asked.Load() != 2 {
			t.Errorf("explained %t: %d results after %d searches", explains, results, x.asked.Load())
		}
	}
}
