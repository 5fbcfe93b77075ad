package server

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
)

// The index is lost and cannot be built: everything but recall is served until it is built.
func TestServer_IndexIncomplete(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	key := h.credentials()[datafolder.ProjectKeyName]
	h.send(key, "/ingest", "completed", point{"id": "a", "content": "Ana grows marigold."})
	h.stop()
	if err := os.RemoveAll(filepath.Join(h.dir, "recall")); err != nil {
		t.Fatal(err)
	}
	var held pgx.Tx
	h.arrange = func(p *Server) {
		p.index.grace = 50 * time.Millisecond
		var err error
		if held, err = p.storage.db.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err = held.Exec(t.Context(), "lock table recallindex.data_points in access exclusive mode"); err != nil {
			t.Fatal(err)
		}
	}
	h.start()
	recall := func() (int, string) {
		status, body := h.call(key, http.MethodPost, api+"/recall", point{"query": "Who grows marigold?", "identity": "Ana"})
		return status, string(body)
	}
	if status, body := recall(); status != http.StatusServiceUnavailable {
		t.Errorf("recall answers %d %s before the index is whole", status, body)
	}
	var receipt struct {
		IngestionID string `json:"ingestionId"`
	}
	h.must(key, http.MethodPost, api+"/ingest", point{"id": "b", "content": "Bo grows hellebore."}, &receipt)
	h.must(key, http.MethodGet, api+"/ingest/"+receipt.IngestionID, nil, nil)
	h.must(key, http.MethodDelete, api+"/data-points/a", nil, nil)
	h.must(key, http.MethodGet, api+"/identities", nil, nil)
	if why := h.remarks(true).RecallElsewhere; !strings.Contains(why, "being built") {
		t.Errorf("remark on recall: %q", why)
	}
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	runtest.Await(h.t, "recall is answered", func() bool { status, _ := recall(); return status == http.StatusOK })
	if _, body := recall(); !strings.Contains(body, "hellebore") || strings.Contains(body, "Ana grows") {
		t.Errorf("recall answers %s", body)
	}
}

func TestHealthOfWrites_WithoutIndex(t *testing.T) {
	health := healthOfWrites(func(context.Context) []runner.Status {
		return []runner.Status{{Name: access.Name}, {Name: recallindex.Name}, {Name: "embeddings"}}
	})
	if got := health(t.Context()); len(got) != 1 || got[0].Name != access.Name {
		t.Errorf("writes need %+v", got)
	}
}
