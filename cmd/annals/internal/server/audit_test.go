package server

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/commands/audit"
	auditlog "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/witnesstest"
	"github.com/annals-project/annals/projections/runner"
)

// signedTree waits until a tree of an origin with a number of keys has a checkpoint of what happened, which a witness
// signed, and returns it.
func (h *harness) signedTree(organization uuid.UUID, number, keys int, by *witnesstest.Witness) (t audit.Tree) {
	h.t.Helper()
	logID, err := runner.LogIDOf(h.storage.store, h.storage.codec)(h.t.Context())
	runtest.Must(h.t, err)
	origin := auditlog.Origin(logID, organization, number)
	runtest.Await(h.t, "the tree is signed and cosigned", func() (ok bool) {
		var err error
		t, ok, err = h.audit.signer.Trees.Tree(h.t.Context(), organization)
		runtest.Must(h.t, err)
		return ok && t.Origin == origin && len(t.Verifiers) == keys && t.Since.IsZero() && by.HasSigned(t.Checkpoint)
	})
	return t
}

// A service signs what happens, copies it and has it cosigned, and each tree of a restored log is another origin.
func TestServer_AuditLog(t *testing.T) {
	unraced(t)
	t.Parallel()
	witness, anchor := witnesstest.New(t, "w.example/one"), t.TempDir()
	h := newHarness(t)
	h.set = func(cfg *Config) {
		cfg.Audit = AuditConfig{Every: 20 * time.Millisecond, Anchor: anchor, Policy: witnesstest.Policy(t, witness)}
	}
	h.start()
	h.sendTeaAndRecall()
	organization := h.organizations()[0].ID
	trees := map[uuid.UUID]audit.Tree{}
	for _, id := range []uuid.UUID{organization, uuid.Nil} { // and that of the deployment
		trees[id] = h.signedTree(id, 1, 1, witness)
		runtest.Await(t, "the anchor has the checkpoint", func() bool {
			text, err := os.ReadFile(filepath.Join(anchor, filepath.FromSlash(trees[id].Origin), "checkpoint"))
			return err == nil && witness.HasSigned(string(text))
		})
	}
	metrics := h.fetch(http.MethodGet, h.urls.API+"/metrics", "", "").body
	for _, name := range []string{"checkpoint_lag_seconds ", "trees_differ 0\n", "anchor_lag_seconds ", `witness_lag_seconds{witness="w.example/one"} `} {
		if !strings.Contains(metrics, "\nannals_audit_"+name) {
			t.Errorf("no metric %s", name)
		}
	}
	if list := h.audit.conditions(); len(list) > 0 {
		t.Errorf("%+v", list)
	}
	if _, err := h.audit.signer.Rotate(t.Context(), organization); err != nil {
		t.Error(err)
	}
	h.sendTeaAndRecall()
	h.signedTree(organization, 1, 2, witness)
	backup := filepath.Join(t.TempDir(), "backup")
	_, err := h.backups.Make(t.Context(), backup)
	runtest.Must(t, err)
	h.stop()

	next := newHarness(t)
	next.set = h.set
	_, err = datafolder.Restore(t.Context(), backup, next.dir)
	runtest.Must(t, err)
	next.start()
	next.sendTeaAndRecall()
	next.signedTree(organization, 2, 1, witness)
	events, err := next.journal.ReadFrom(t.Context(), stream.Name(stream.Audit, organization), 0)
	runtest.Must(t, err)
	former := ""
	for _, e := range events {
		if key, is := e.Event.(*auditlog.KeyAdded); is {
			former = key.Former
		}
	}
	if !strings.HasPrefix(former, trees[organization].Origin+"\n") {
		t.Errorf("the origin begins after the checkpoint %q", former)
	}
}
