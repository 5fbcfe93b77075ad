package server

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/clustertest"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
)

// newGuardedHarness is a harness over an event store that can deny its user rights.
func newGuardedHarness(t *testing.T) (*harness, *clustertest.Guard) {
	n := nodetest.Start(t, node.Config{Insecure: true, SystemStream: true})
	guard := clustertest.NewGuard(t, n.Connection().Addr)
	h := newHarness(t)
	h.set = func(cfg *Config) { cfg.EventStore = guard.ConnectionString() }
	return h, guard
}

// A user of the event store without the right to delete: the deletion is answered, the missing right is named and counted, also by
// erase --now, and all of it ends once the right is given. Then one without the right to write.
func TestServer_Denied(t *testing.T) {
	t.Parallel()
	h, guard := newGuardedHarness(t)
	h.start()
	key, _ := h.keys()
	h.sendTeaAndRecall()
	guard.Deny(eventstore.MayDelete)
	h.must(key, http.MethodDelete, api+"/data-points/a", nil, nil)
	runtest.Await(t, "/readyz shows that erasure is denied", func() bool {
		return strings.Contains(h.readyz().body, string(erasureDenied))
	})
	if got := h.readyz(); got.status != http.StatusOK || strings.Contains(got.body, "$d") {
		t.Errorf("/readyz: %+v", got)
	}
	if text := h.remarks(true).ErasureDenied; !strings.Contains(text, `the right "$d" in the $acl of `) {
		t.Errorf("operators read %q", text)
	}
	if !strings.Contains(h.metrics(), "annals_deletions_stuck 1\n") {
		t.Error("annals_deletions_stuck is not 1")
	}
	operator := operatorapi.Dial(h.dir)
	_, err := operatorapi.EraseNow.Call(t.Context(), operator, operatorapi.None{})
	if !errors.Is(err, operatorapi.ErrRefused) || !strings.Contains(err.Error(), `the right "$d"`) {
		t.Errorf("erase --now: %v", err)
	}
	guard.Deny()
	done, err := operatorapi.EraseNow.Call(t.Context(), operator, operatorapi.None{})
	if err != nil || done.Deletions != 1 || done.Left.Deletions != 0 {
		t.Errorf("with the right: %+v, %v", done, err)
	}
	if got := h.readyz(); got.status != http.StatusOK || strings.Contains(got.body, "erasureDenied") {
		t.Errorf("with the right: %+v", got)
	}
	if !strings.Contains(h.metrics(), "annals_deletions_stuck 0\n") {
		t.Error("with the right, annals_deletions_stuck is not 0")
	}
	h.sendsDenied(guard, key)
}

// sendsDenied takes the right to write: sends are refused with 503 and the reason, and taken once the right is given.
func (h *harness) sendsDenied(guard *clustertest.Guard, key string) {
	h.t.Helper()
	guard.Deny(eventstore.MayWrite)
	status, answer := h.call(key, http.MethodPost, api+"/ingest", point{"id": "b", "content": "Ana likes milk."})
	if status != http.StatusServiceUnavailable || !strings.Contains(string(answer), "denies the service a right") {
		h.t.Errorf("%d %s", status, answer)
	}
	guard.Deny()
	if sent := h.sendAll(key, "c", 2); !slices.Equal(sent, []string{"c0", "c1"}) {
		h.t.Errorf("acknowledged are %v", sent)
	}
}
