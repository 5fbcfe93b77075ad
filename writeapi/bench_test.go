package writeapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/writeapi"
)

// BenchmarkSingle measures the edge for a single send, without network and with a command that does
// nothing.
func BenchmarkSingle(b *testing.B) {
	f := &fake{}
	e := httpx.New(apitest.EdgeConfig())
	writeapi.Register(e, writeapi.Deps{Ingest: f, Delete: f, Projects: f})
	body := `{"content":"` + strings.Repeat("Anna likes tea. ", 20) + `","id":"s1","metadata":{"a":1},"timestamp":"2026-11-21T09:00:00Z"}`
	b.ReportAllocs()
	for b.Loop() {
		req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/api/v1/ingest", strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+apitest.ProjectKey)
		req.Header.Set("Content-Type", "application/json")
		res := httptest.NewRecorder()
		e.ServeHTTP(res, req)
		if res.Code != http.StatusAccepted {
			b.Fatal(res.Body)
		}
	}
}
