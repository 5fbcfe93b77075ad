package elastic_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/recallindex/elastic"
)

// A late write of a process that lost its lease is refused as long as the deleted document keeps its version.
func TestIndexDeletes_OutliveLateWrites(t *testing.T) {
	if late := projections.LeaseTime + elastic.WriteTime; elastic.GCDeletes < 4*late {
		t.Errorf("a deleted document keeps its version for %s, want much more than %s", elastic.GCDeletes, late)
	}
	if is, err := time.ParseDuration(elastic.GCDeletesSetting); err != nil || is != elastic.GCDeletes {
		t.Errorf("the setting is %s, want %s: %v", elastic.GCDeletesSetting, elastic.GCDeletes, err)
	}
	for name, empty := range map[string]bool{"an index that exists": false, "a new index": true} {
		t.Run(name, func(t *testing.T) {
			if got := settingOf(t, empty); got != elastic.GCDeletesSetting {
				t.Errorf("gc_deletes is %q, want %q", got, elastic.GCDeletesSetting)
			}
		})
	}
}

// settingOf opens an index and returns the gc_deletes that it sends to the server, which has an index
// unless it is empty.
func settingOf(t *testing.T, empty bool) (setting string) {
	t.Helper()
	s := newScripted(t, false)
	var mu sync.Mutex
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		type settings struct {
			Index struct {
				GCDeletes string `json:"gc_deletes"`
			} `json:"index"`
		}
		var sent struct {
			settings
			Settings settings `json:"settings"`
		}
		if r.Method == http.MethodPut && json.Unmarshal(body, &sent) == nil {
			mu.Lock()
			setting = sent.Index.GCDeletes + sent.Settings.Index.GCDeletes
			mu.Unlock()
		}
		if empty && (strings.HasSuffix(r.URL.Path, "/_mapping") || strings.HasSuffix(r.URL.Path, "/_alias")) {
			w.Header().Set("X-Elastic-Product", "Elasticsearch")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		s.serve(w, r)
	}))
	t.Cleanup(front.Close)
	openScripted(t, elastic.Options{URL: front.URL})
	mu.Lock()
	defer mu.Unlock()
	return setting
}

// A process that lost its lease within a page sends no further documents of it.
func TestIndexBulk_LeaseLost(t *testing.T) {
	s := newScripted(t, false)
	x := openScripted(t, elastic.Options{URL: s.URL})
	lost, tries := errors.New("lease lost"), 0
	s.bulk = func(ids []string) (int, []int) {
		tries++
		return http.StatusBadGateway, make([]int, len(ids))
	}
	ctx := projections.WithLease(t.Context(), func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if tries > 0 {
			return lost
		}
		return nil
	})
	if err := x.Apply(ctx, documents(1)); err == nil || tries != 1 {
		t.Errorf("%d requests with documents, want 1: %v", tries, err)
	}
	if err := x.Apply(ctx, documents(1)); !errors.Is(err, lost) || tries != 1 {
		t.Errorf("%d requests with documents, want 1: %v", tries, err)
	}
}
