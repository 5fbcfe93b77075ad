// Package fakeapitest is the API for tests of programs that call it.
package fakeapitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
)

// Server keeps texts by project key, and finds them by any word.
type Server struct {
	mu    sync.Mutex
	Texts map[string][]client.DataPoint
	// Recalls are the recalls so far.
	Recalls []client.RecallRequest
	// Refuse, where set, answers a batch instead.
	Refuse func(items []client.DataPoint) (status int, body string)
	// Status is that of every send.
	Status client.IngestionStatus
	// NotReady, where set, is the body of /readyz.
	NotReady string
	// Projects is how many were made.
	Projects int
}

// ServeHTTP implements http.Handler.
func (f *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	var body struct {
		client.RecallRequest
		Items []client.DataPoint `json:"items"`
	}
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("X-Request-Id", "request-1")
	switch path := r.URL.Path; {
	case path == "/readyz" && f.NotReady != "":
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(f.NotReady))
	case path == "/readyz":
	case path == "/api/v1/projects":
		f.Projects++
		_, _ = fmt.Fprintf(w, `{"slug":"p%d"}`, f.Projects)
	case strings.HasSuffix(path, "/keys"):
		_, _ = fmt.Fprintf(w, `{"key":"svc_sk_%s"}`, strings.Split(path, "/")[4])
	case path == "/api/v1/ingest/batch":
		f.batch(w, key, body.Items)
	case path == "/api/v1/recall":
		f.Recalls = append(f.Recalls, body.RecallRequest)
		reply(w, f.recall(key, body.Query))
	default:
		reply(w, f.Status)
	}
}

func (f *Server) batch(w http.ResponseWriter, key string, items []client.DataPoint) {
	if f.Refuse != nil {
		if status, text := f.Refuse(items); status != 0 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
			return
		}
	}
	f.Texts[key] = append(f.Texts[key], items...)
	reply(w, client.BatchReceipt{ProjectID: 1, IngestionID: "send-1", Items: make([]client.ItemReceipt, len(items))})
}

func (f *Server) recall(key, query string) client.RecallResponse {
	var page client.RecallResponse
	for _, p := range f.Texts[key] {
		for _, word := range strings.Fields(query) {
			if strings.Contains(strings.ToLower(p.Content), strings.ToLower(word)) {
				at := time.Date(2025, 5, 12, 9, 0, 0, 0, time.UTC)
				page.Results = append(page.Results, client.RecallResult{
					ID: "id-" + p.ID, Rank: len(page.Results) + 1, Content: p.Content, OccurredAt: at,
					Artifact: client.Artifact{Kind: "source"},
					Sources:  []client.RecallSource{{SourceID: p.ID, Label: p.Label, Excerpts: []string{}}},
				})
				break
			}
		}
	}
	return page
}

func reply(w http.ResponseWriter, body any) {
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(err)
	}
}

// Start serves, and returns a data folder whose credentials name the server.
func Start(t testing.TB) (f *Server, dir string) {
	t.Helper()
	f = &Server{
		Texts: map[string][]client.DataPoint{}, Status: client.IngestionStatus{Status: "completed", Settled: true},
	}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, DataFolder(t, server.URL)
}

// DataFolder returns a data folder whose credentials name an address.
func DataFolder(t testing.TB, url string) string {
	t.Helper()
	text := "# written by the first start\nANNALS_API_URL=" + url +
		"\nANNALS_PROJECT_KEY='svc_sk_secret'\nANNALS_MANAGEMENT_KEY=svc_mk_secret\n"
	return filepath.Dir(Write(t, "credentials.env", text))
}

// Write writes a file for a command to read, in a folder of its own.
func Write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	runtest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
