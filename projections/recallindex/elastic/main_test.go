package elastic_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/annals-project/annals/projections/recallindex/elastic"
)

func TestMain(m *testing.M) {
	// Bleve, for the benchmark, analyses with workers that live as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"))
}

func open(t *testing.T, options elastic.Options) *elastic.Index {
	t.Helper()
	x, err := elastic.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
