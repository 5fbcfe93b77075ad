package elastic_test

import (
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/elastic"
	"github.com/annals-project/annals/projections/recallindex/elastic/elastictest"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

func TestMain(m *testing.M) {
	// Bleve, for the benchmark, analyses with workers that live as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"))
}

func TestConformance(t *testing.T) {
	indextest.Run(t, func(t *testing.T) indextest.Storage {
		t.Parallel() // a purge waits up to half a minute
		options := elastictest.Options(t)
		options.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
		return indextest.Storage{
			Open:   func(t *testing.T) recallindex.Index { return open(t, options) },
			Former: func(t *testing.T) { elastictest.Former(t, options, uuid.New()) },
		}
	})
}

func open(t *testing.T, options elastic.Options) *elastic.Index {
	t.Helper()
	x, err := elastic.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
