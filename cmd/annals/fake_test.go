package main

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
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/runtest"
)

// fakeServer serves the routes that the command line calls. It keeps texts by project key and finds
// them by any word.
type fakeServer struct {
	mu    sync.Mutex
	texts map[string][]client.DataPoint
	// recalls are the recalls so far.
	recalls []client.RecallRequest
	// refuse, where set, answers a batch instead.
	refuse   func(items []client.DataPoint) (status int, body string)
	status   client.IngestionStatus
	notReady string
	projects int
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	case path == "/readyz" && f.notReady != "":
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(f.notReady))
	case path == "/readyz":
	case path == "/api/v1/projects":
		f.projects++
		_, _ = fmt.Fprintf(w, `{"slug":"p%d"}`, f.projects)
	case strings.HasSuffix(path, "/keys"):
		_, _ = fmt.Fprintf(w, `{"key":"svc_sk_%s"}`, strings.Split(path, "/")[4])
	case path == "/api/v1/ingest/batch":
		f.batch(w, key, body.Items)
	case path == "/api/v1/recall":
		f.recalls = append(f.recalls, body.RecallRequest)
		reply(w, f.recall(key, body.Query))
	default:
		reply(w, f.status)
	}
}

func (f *fakeServer) batch(w http.ResponseWriter, key string, items []client.DataPoint) {
	if f.refuse != nil {
		if status, text := f.refuse(items); status != 0 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
			return
		}
	}
	f.texts[key] = append(f.texts[key], items...)
	reply(w, client.BatchReceipt{ProjectID: 1, IngestionID: "send-1", Items: make([]client.ItemReceipt, len(items))})
}

func (f *fakeServer) recall(key, query string) client.RecallResponse {
	var page client.RecallResponse
	for _, p := range f.texts[key] {
		for _, word := range strings.Fields(query) {
			if strings.Contains(strings.ToLower(p.Content), strings.ToLower(word)) {
				at := time.Date(2025, 5, 12, 9, 0, 0, 0, time.UTC)
				page.Results = append(page.Results, client.RecallResult{
					Rank: len(page.Results) + 1, Content: p.Content, OccurredAt: at, Artifact: client.Artifact{Kind: "source"},
					Sources: []client.RecallSource{{SourceID: p.ID, Label: p.Label, Excerpts: []string{}}},
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

// startFake serves and returns a data folder whose credentials name the server.
func startFake(t *testing.T) (*fakeServer, string) {
	t.Helper()
	f := &fakeServer{
		texts: map[string][]client.DataPoint{}, status: client.IngestionStatus{Status: "completed", Settled: true},
	}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, dataFolder(t, server.URL)
}

func dataFolder(t *testing.T, url string) string {
	t.Helper()
	dir := t.TempDir()
	text := "# written by the first start\nANNALS_API_URL=" + url +
		"\nANNALS_PROJECT_KEY='svc_sk_secret'\nANNALS_MANAGEMENT_KEY=svc_mk_secret\n"
	runtest.Must(t, os.WriteFile(filepath.Join(dir, datafolder.CredentialsFile), []byte(text), 0o600))
	return dir
}

// write writes a file for a command to read.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	runtest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
