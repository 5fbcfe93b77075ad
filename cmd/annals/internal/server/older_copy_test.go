package server

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/runner"
)

// replaceable is a node whose folder can be put back from a copy while a service uses it.
type replaceable struct {
	*testing.T
	dir  string
	node *node.Node
	wire *nodetest.Wire
}

func newReplaceable(t *testing.T) *replaceable {
	r := &replaceable{T: t, dir: filepath.Join(t.TempDir(), "log")}
	r.start()
	r.wire = nodetest.NewWire(t, r.node.Connection().Addr)
	t.Cleanup(func() { runtest.Must(t, r.node.Close()) })
	return r
}

func (r *replaceable) start() {
	r.Helper()
	var err error
	r.node, err = node.Start(context.WithoutCancel(r.Context()), node.Config{
		Dir: r.dir, Insecure: true, SystemStream: true, Logger: runtest.Warnings(r),
	})
	runtest.Must(r, err)
}

// restart stops the node, does something to its folder and starts it again.
func (r *replaceable) restart(do func()) {
	r.Helper()
	runtest.Must(r, r.node.Close())
	do()
	r.start()
	r.wire.Lead(r.node.Connection().Addr)
}

// keep copies the folder, and returns what puts the copy back.
func (r *replaceable) keep() (putBack func()) {
	r.Helper()
	kept := filepath.Join(r.TempDir(), "copy")
	r.restart(func() { runtest.Must(r, os.CopyFS(kept, os.DirFS(r.dir))) })
	return func() {
		r.restart(func() {
			runtest.Must(r, os.Rename(r.dir, filepath.Join(r.TempDir(), "newer")))
			runtest.Must(r, os.CopyFS(r.dir, os.DirFS(kept)))
		})
	}
}

func newReplaceableHarness(t *testing.T) (*harness, *replaceable) {
	h, log := newHarness(t), newReplaceable(t)
	h.set = func(cfg *Config) { cfg.EventStore = "esdb://" + log.wire.Addr() + "?tls=false&discoveryInterval=5" }
	return h, log
}

// sendAll makes sends and returns the texts of those that were acknowledged.
func (h *harness) sendAll(key, prefix string, n int) (acknowledged []string) {
	h.t.Helper()
	for i := range n {
		id := fmt.Sprint(prefix, i)
		status, answer := h.call(key, http.MethodPost, api+"/ingest", point{"id": id, "content": "Ana likes tea of " + id + "."})
		switch {
		case status == http.StatusAccepted:
			acknowledged = append(acknowledged, id)
		case status != http.StatusServiceUnavailable:
			h.t.Errorf("send %s: %d %s", id, status, answer)
		}
	}
	return acknowledged
}

// awaitPoints waits until the service knows all data points.
func (h *harness) awaitPoints(key string, ids []string) {
	h.t.Helper()
	for _, id := range ids {
		runtest.Await(h.t, "data point "+id+" is recalled", func() bool {
			status, answer := h.call(key, http.MethodPost, api+"/recall", point{"query": "tea of " + id, "identity": "ana"})
			return status == http.StatusOK && strings.Contains(string(answer), "tea of "+id+".")
		})
	}
}

// wantOlderCopy waits until /readyz shows that the log is an older copy, and wants sends and recalls refused for it.
func (h *harness) wantOlderCopy(key string) {
	h.t.Helper()
	runtest.Await(h.t, "/readyz shows that the log is an older copy", func() bool {
		return strings.Contains(h.readyz().body, "older copy")
	})
	for path, body := range map[string]point{
		"/ingest": {"id": "refused", "content": "Ana likes milk."}, "/recall": {"query": "tea", "identity": "ana"},
	} {
		h.fetchAPI(key, http.MethodPost, api+path, body).
			want(h.t, http.StatusServiceUnavailable, "the log is an older copy: it ")
	}
}

// A store that is put back from an older copy while the service runs stops it, with the cause: no send that is
// acknowledged after that is missing from a read. A restart changes nothing, until an operator has decided.
func TestServer_StorePutBackFromAnOlderCopy(t *testing.T) {
	t.Parallel()
	h, log := newReplaceableHarness(t)
	h.start()
	key, _ := h.keys()
	kept := h.sendAll(key, "kept-", 20)
	h.awaitPoints(key, kept)
	h.signs("/1")
	putBack := log.keep()
	lost := h.sendAll(key, "lost-", 30)
	if len(kept) != 20 || len(lost) != 30 {
		t.Fatalf("%d and %d sends were acknowledged", len(kept), len(lost))
	}
	h.awaitPoints(key, lost)
	h.signs("/1")
	// It has no lease, follows nothing and writes nothing.
	reader := h.alongside(RoleRead)
	putBack()
	later := h.sendAll(key, "later-", 70)
	t.Logf("%d of 70 sends were acknowledged", len(later))
	h.wantOlderCopy(key)
	h.stop()
	runtest.Await(t, "a process that only reads shows that the log is an older copy", func() bool {
		return strings.Contains(reader.readyz().body, "older copy")
	})
	reader.fetchAPI(key, http.MethodGet, api+"/identities", nil).
		want(t, http.StatusServiceUnavailable, "the log is an older copy: it ")
	reader.stop()

	stop := h.startsUnready()
	h.wantOlderCopy(key)
	stop()

	h.acceptOlderCopy()
	h.start()
	h.awaitPoints(key, slices.Concat(kept, later))
	h.awaitPoints(key, h.sendAll(key, "accepted-", 3))
	h.fetchAPI(key, http.MethodPost, api+"/recall", point{"query": "tea of lost-7", "identity": "ana"}).
		want(t, http.StatusOK).lacks(t, "lost-") // the older copy does not have it
	h.signs("/2") // what was signed of the first origin is not all there
}

// signs signs what happened to the first organization, whose origin has an end.
func (h *harness) signs(end string) {
	h.t.Helper()
	organization := h.organizations()[0].ID
	runtest.Await(h.t, "the tree of an origin that ends with "+end+" is signed", func() bool {
		runtest.Must(h.t, h.audit.signer.Pass(h.t.Context()))
		tree, ok, err := h.audit.signer.Trees.Tree(h.t.Context(), organization)
		runtest.Must(h.t, err)
		return ok && strings.HasSuffix(tree.Origin, end) && tree.Since.IsZero() && len(h.audit.signer.Differs()) == 0
	})
}

// alongside starts a process with some roles on the same stores.
func (h *harness) alongside(roles ...Role) *harness {
	h.t.Helper()
	other := newHarness(h.t)
	other.postgres = h.postgres
	keys := map[string]string{}
	for _, name := range []string{"hash.key", "seal.key"} {
		text, err := os.ReadFile(filepath.Join(h.dir, name))
		runtest.Must(h.t, err)
		keys[name] = strings.TrimSpace(string(text))
	}
	other.set = func(cfg *Config) {
		h.set(cfg)
		cfg.Roles = roles
		cfg.Data.HashKey, cfg.Data.SealKey = keys["hash.key"], keys["seal.key"]
	}
	other.start()
	return other
}

// startsUnready starts a service that does not become ready.
func (h *harness) startsUnready() (stop func()) {
	h.t.Helper()
	cfg := h.config()
	cfg.Ready = func(auth.URLs) { h.t.Error("the service is ready") }
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.t.Context()))
	var err error
	h.Server, err = New(ctx, cfg)
	runtest.Must(h.t, err)
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	return func() {
		h.t.Helper()
		cancel()
		runtest.Must(h.t, <-done)
		runtest.Must(h.t, h.Close())
	}
}

// acceptOlderCopy rebuilds the projections from the log as it is.
func (h *harness) acceptOlderCopy() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 5*time.Minute)
	defer cancel()
	local, err := OpenRebuilder(ctx, h.config())
	runtest.Must(h.t, err)
	names, err := local.Projections(ctx)
	runtest.Must(h.t, err)
	err = local.RebuildAll(ctx, names, runner.RebuildOptions{}, func(runner.RebuildProgress) {})
	if err == nil || !strings.Contains(err.Error(), "--older-copy") {
		h.t.Errorf("a rebuild without the decision: %v", err)
	}
	err = local.RebuildAll(ctx, names, runner.RebuildOptions{OlderCopy: true}, func(runner.RebuildProgress) {})
	runtest.Must(h.t, err)
	runtest.Must(h.t, local.Close())
}

// A log that was restarted, and whose head is an event of the system, is the same log. Meanwhile a read that needs the
// log answers 503, so that a client tries again. A newer copy that is put back lets the service go on after a restart.
func TestServer_RestartsOfTheStore(t *testing.T) {
	t.Parallel()
	h, log := newReplaceableHarness(t)
	h.start()
	key, management := h.keys()
	id := h.send(key, "/ingest", "completed", point{"id": "a", "content": "Ana likes tea of a.", "identity": "ana"})
	runtest.Await(t, "the directory has the author", func() bool {
		status, _ := h.call(key, http.MethodGet, api+"/identities/ana", nil)
		return status == http.StatusOK
	})
	paths := append(h.tracePaths(key),
		api+"/ingest/"+id, api+"/ingest/01a22229-6d44-79cf-b05c-c1ff71a76b40",
		api+"/identities", api+"/identities/ana", api+"/audiences", api+"/audiences/project",
	)
	all := []string{"a"}
	for i := range 3 {
		acknowledged := h.sendAll(key, fmt.Sprint("round-", i, "-"), 3)
		if len(acknowledged) != 3 {
			t.Errorf("round %d: %v", i, acknowledged)
		}
		all = append(all, acknowledged...)
		log.restart(func() {
			if i > 0 {
				return
			}
			for _, path := range paths {
				got := h.fetchAPI(key, http.MethodGet, path, nil)
				if got.status != http.StatusServiceUnavailable && got.status != http.StatusOK {
					t.Errorf("%s: %d %s", path, got.status, got.body)
				}
			}
			h.wants(management, http.MethodGet, api+"/usage", nil, http.StatusServiceUnavailable, "")
		})
	}
	h.awaitPoints(key, all)
	runtest.Await(t, "the service is ready", func() bool { return h.readyz().status == http.StatusOK })

	older := log.keep()
	all = append(all, h.sendAll(key, "newer-", 5)...)
	h.awaitPoints(key, all)
	newer := log.keep()
	older()
	h.wantOlderCopy(key)
	h.stop()
	newer()
	h.start()
	h.awaitPoints(key, all)
	h.awaitPoints(key, h.sendAll(key, "after-", 3))
}
