package server

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/runtest"
)

// A damaged part of the index interrupts only recall of its projects, until it is filled from the
// log. /readyz names it meanwhile. Writes and the recall of others continue.
func TestServer_DamagedIndex(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	h.start()
	values := h.credentials()
	ask := func(key string) (int, int) {
		status, answer := h.call(key, http.MethodPost, api+"/recall", point{"query": "Who likes quinces?", "identity": "Ana"})
		return status, bytes.Count(answer, []byte("Ana likes quinces."))
	}
	slots := func() []string {
		found, err := filepath.Glob(filepath.Join(h.dir, "recall", "*", "shared-?"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	keys := []string{values[datafolder.ProjectKeyName]}
	for len(keys) < 10 && len(slots()) < 2 {
		if len(slots()) > 0 {
			keys = append(keys, h.newProject(values[datafolder.ManagementKeyName], fmt.Sprint("More ", len(keys))))
		}
		h.send(keys[len(keys)-1], "/ingest", "completed", point{"id": "a", "content": "Ana likes quinces."})
	}
	if len(slots()) < 2 {
		t.Fatalf("%d projects are in one slot", len(keys))
	}
	h.stop()
	damaged := slots()[0]
	if err := os.WriteFile(filepath.Join(damaged, "index_meta.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The lock of the pages delays the filling, so that the test sees the time before it.
	var page pgx.Tx
	h.arrange = func(p *Server) {
		var err error
		if page, err = p.storage.db.Begin(t.Context()); err == nil {
			_, err = page.Exec(t.Context(), `select pg_advisory_xact_lock(hashtextextended(annals_schema_prefix() || 'recallindex', 10))`)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h.start()
	hurt := 0
	for _, key := range keys {
		switch status, found := ask(key); {
		case status == http.StatusServiceUnavailable:
			hurt++
		case status != http.StatusOK || found == 0:
			t.Errorf("a project of another slot: status %d, %d hits", status, found)
		}
	}
	if hurt == 0 || hurt == len(keys) {
		t.Errorf("%d of %d projects are hurt", hurt, len(keys))
	}
	if status, answer := h.call("", http.MethodGet, "/readyz", nil); status != http.StatusOK || !bytes.Contains(answer, []byte(`"recallIncomplete":["`+filepath.Base(damaged)+`"]`)) {
		t.Errorf("/readyz: %d %s", status, answer)
	}
	for _, key := range keys {
		h.must(key, http.MethodPost, api+"/ingest", point{"id": "b", "content": "Ben likes plums."}, nil)
	}
	if err := page.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		runtest.Await(h.t, "recall of every project answers whole", func() bool {
			status, found := ask(key)
			return status == http.StatusOK && found > 0
		})
		h.send(key, "/ingest", "completed", point{"id": "c", "content": "Cy likes figs."})
	}
	if _, answer := h.call("", http.MethodGet, "/readyz", nil); bytes.Contains(answer, []byte("recallIncomplete")) {
		t.Errorf("/readyz after it was filled: %s", answer)
	}
}
