package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
)

// A failing disk of the log makes the service not ready, with the reason. Reads of the log still
// work.
func TestStorage_LogStopped(t *testing.T) {
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
			return errors.New("input/output error")
		}
		return nil
	}))
	log := slog.New(slog.DiscardHandler)
	n, err := node.Start(t.Context(), node.Config{Dir: "log", FS: fs, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	cfg := nodetest.ConfigOf(n.Connection())
	cfg.Logger = log
	store, err := esdb.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	st := &storage{node: n, store: store}
	event := []eventstore.Proposed{{ID: uuid.New(), Type: "tested.v1", Data: []byte("{}")}}
	if _, err := store.Append(t.Context(), "s", eventstore.NoStream, event); err != nil {
		t.Fatal(err)
	}
	if reason, _ := st.logTrouble(nil); reason != "" || st.logStopped() != nil {
		t.Errorf("before: %q, %v", reason, st.logStopped())
	}
	broken.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), runtest.Timeout)
	defer cancel()
	if _, err := store.Append(ctx, "s", 0, []eventstore.Proposed{{
		ID: uuid.New(), Type: "tested.v1",
		Data: []byte("{}"),
	}}); !errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("append: %v", err)
	}
	select {
	case <-n.Failed():
	case <-ctx.Done():
		t.Fatal("the node does not say that it failed")
	}
	reason, cause := st.logTrouble(nil)
	if reason != storeStopped {
		t.Errorf("after: %q", reason)
	}
	if cause == nil || !strings.Contains(cause.Error(), "input/output error") {
		t.Errorf("its cause: %v", cause)
	}
	if st.logStopped() == nil {
		t.Error("writes go on")
	}
	if got, err := store.Read(t.Context(), "s", 0, eventstore.Forwards, 10); err != nil || len(got) != 1 {
		t.Errorf("read: %v, %v", got, err)
	}
	if err := (&storage{}).logStopped(); err != nil {
		t.Errorf("of a cluster: %v", err)
	}
}
