package model_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/commands/pipeline/model"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/internal/runtest"
)

func embedder(t *testing.T, handler http.HandlerFunc) *model.Embedder {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	e, err := model.NewEmbedder(model.Endpoint{URL: server.URL + "/v1/", Name: "small", Key: "secret"})
	runtest.Must(t, err)
	return e
}

func TestEmbed_VectorsOfTheirTexts(t *testing.T) {
	e := embedder(t, func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Model string
			Input []string
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Model != "small" ||
			!slices.Equal(asked.Input, []string{"a", "b"}) ||
			r.URL.Path != "/v1/embeddings" || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("asked %s %+v, %v", r.URL, asked, err)
		}
		_, _ = io.WriteString(w, `{"data":[{"index":1,"embedding":[3,4]},{"index":0,"embedding":[1,2]}]}`)
	})
	got, err := e.Embed(t.Context(), []string{"a", "b"})
	if err != nil || len(got) != 2 || !slices.Equal(got[0], []float32{1, 2}) || !slices.Equal(got[1], []float32{3, 4}) {
		t.Errorf("vectors %v, %v", got, err)
	}
}

func TestEmbed_InvalidVectors(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		body, code string
	}{
		"refused":         {400, "", ingestion.ContentRejected},
		"down":            {503, "", ingestion.ModelUnavailable},
		"no JSON":         {200, "<html>", ingestion.ModelResponseUnreadable},
		"too few":         {200, `{"data":[{"index":0,"embedding":[1]}]}`, ingestion.ModelResponseUnreadable},
		"twice":           {200, `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`, ingestion.ModelResponseUnreadable},
		"no such text":    {200, `{"data":[{"index":0,"embedding":[1]},{"index":2,"embedding":[1]}]}`, ingestion.ModelResponseUnreadable},
		"empty":           {200, `{"data":[{"index":0,"embedding":[]},{"index":1,"embedding":[1]}]}`, ingestion.ModelResponseUnreadable},
		"other dimension": {200, `{"data":[{"index":0,"embedding":[1,2]},{"index":1,"embedding":[1]}]}`, ingestion.ModelResponseUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			e := embedder(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			_, err := e.Embed(t.Context(), []string{"a", "b"})
			if failure, ok := errors.AsType[*pipeline.Failure](err); !ok || failure.Code != c.code {
				t.Errorf("error %v", err)
			}
		})
	}
}
