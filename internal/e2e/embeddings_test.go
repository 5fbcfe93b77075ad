package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/embeddings"
)

// modelVariable names the environment variable with the folder of the built-in embedding model.
const modelVariable = "ANNALS_TEST_MODEL"

// newModelService is a service with the built-in model, or skips the test.
func newModelService(t *testing.T) *service {
	t.Helper()
	folder := os.Getenv(modelVariable)
	if folder == "" {
		t.Skipf("%s names no folder with the model", modelVariable)
	}
	s := newService(t, "ANNALS_EMBEDDINGS=builtin")
	s.annals("embeddings", "install", folder)
	return s
}

// embedded waits until all of n data points are embedded.
func (s *service) embedded(n int64) {
	s.t.Helper()
	runtest.Await(s.t, "all are embedded", func() bool {
		var p embeddings.Progress
		s.decoded(&p, "embeddings", "status")
		return p.Captured == n && p.Embedded == n
	})
}

// The built-in model finds what shares no word with the question, before and after a kill, a rebuild and a deletion.
func TestEmbeddings_Builtin(t *testing.T) {
	t.Parallel()
	s := newModelService(t)
	s.start()
	c := s.client()
	texts := map[string]string{
		"car":    "My automobile broke down on the motorway",
		"garden": "The roses in the garden are in bloom",
		"loan":   "The bank refused to lend us the money",
		"tea":    "A cup of Earl Grey in the afternoon is what she likes best",
	}
	for id, content := range texts {
		store(t, c, client.DataPoint{
			ID: id, Content: content, Identity: "ana", Timestamp: "2025-05-12T09:00:00Z",
		})
	}
	s.embedded(int64(len(texts)))
	first := func(query string) string {
		t.Helper()
		found, err := c.Recall(t.Context(), client.RecallRequest{Query: query, Identity: "ben"})
		runtest.Must(t, err)
		if len(found.Results) == 0 {
			return ""
		}
		return found.Results[0].Sources[0].SourceID
	}
	check := func(when string) {
		t.Helper()
		for _, query := range []string{"asdf", "zorblat quindle freppish", "What is the capital of Mongolia?", "quincunx"} {
			if got := first(query); got != "" {
				t.Errorf("%s, %q finds %q", when, query, got)
			}
		}
		for query, want := range map[string]string{
			"Did the vehicle have engine trouble?": "car", "Which flowers grow there?": "garden",
			"Could they borrow from a financial institution?": "loan", "favourite drink": "tea",
		} {
			if got := first(query); got != want {
				t.Errorf("%s, %q finds %q, want %q", when, query, got, want)
			}
		}
	}
	check("embedded")
	s.kill()
	s.start()
	c = s.client()
	check("after a kill")
	s.annals("rebuild", "embeddings")
	check("after a rebuild")
	runtest.Must(t, errorOf(c.DeleteDataPoints(t.Context(), []string{"car"})))
	if got := first("Did the vehicle have engine trouble?"); got == "car" {
		t.Error("a deleted data point is found")
	}
}

// By default the model is used if it is installed. Once it is removed, the start and the status report it; once it is
// back, its vectors are used again.
func TestEmbeddings_Default(t *testing.T) {
	t.Parallel()
	folder := os.Getenv(modelVariable)
	if folder == "" {
		t.Skipf("%s names no folder with the model", modelVariable)
	}
	s := newService(t)
	s.annals("embeddings", "install", folder)
	s.start()
	c := s.client()
	store(t, c, client.DataPoint{
		ID: "loan", Content: "The bank refused to lend us the money", Identity: "ana", Timestamp: "2025-05-12T09:00:00Z",
	})
	s.embedded(1)
	restart := func() (status string, results int) {
		t.Helper()
		s.kill()
		s.start()
		c := s.client()
		found, err := c.Recall(t.Context(), client.RecallRequest{
			Query: "Could they borrow from a financial institution?", Identity: "ben",
		})
		runtest.Must(t, err)
		status, err = s.try("status")
		if err != nil {
			t.Fatalf("status: %s, %v", status, err)
		}
		return status, len(found.Results)
	}
	model := filepath.Join(s.dir, "models")
	runtest.Must(t, os.Rename(model, model+".away"))
	if status, results := restart(); !strings.Contains(status, "by words alone") || !strings.Contains(status, "make model") ||
		results != 0 {
		t.Errorf("removed: %d results, status %s", results, status)
	}
	if log := s.log.String(); !strings.Contains(log, "the embedding model of the stored vectors is missing") ||
		!strings.Contains(log, "all-MiniLM-L6-v2-q@") {
		t.Errorf("removed: log %s", log)
	}
	runtest.Must(t, os.Rename(model+".away", model))
	if status, results := restart(); strings.Contains(status, "by words alone") || results != 1 {
		t.Errorf("installed again: %d results, status %s", results, status)
	}
}

// Without the model the commands have searches by words, and install no file that is no model.
func TestEmbeddings_NotInstalled(t *testing.T) {
	t.Parallel()
	s := worked.of(t)
	if out, err := s.try("embeddings", "status"); err != nil || !strings.Contains(out, "words alone") {
		t.Errorf("status: %s, %v", out, err)
	}
	for source, want := range map[string]string{s.dir: "no such file", binary: "not"} {
		if out, err := s.try("embeddings", "install", source); err == nil || !strings.Contains(out, want) {
			t.Errorf("install from %s: %s", source, out)
		}
	}
}
