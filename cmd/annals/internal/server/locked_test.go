package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// A table that the look-up of each key reads is locked by somebody else: /readyz shows it, a call is
// answered with 503, operators read the table and the session, and all of it goes by itself. Then one that the index
// writes.
func TestServer_KeysLocked(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	h.sendTeaAndRecall()
	tx, err := h.database().Begin(t.Context())
	runtest.Must(t, err)
	_, err = tx.Exec(t.Context(), `lock table access.organizations in access exclusive mode`)
	runtest.Must(t, err)
	runtest.Await(t, "/readyz shows that keys cannot be looked up", func() bool {
		got := h.readyz()
		return got.status == http.StatusServiceUnavailable && strings.Contains(got.body, string(keysAway))
	})
	key, management := h.keys()
	answered := make(chan string, 1)
	go func() { // its key is not remembered yet
		status, answer := h.call(management, http.MethodGet, api+"/usage", nil)
		answered <- fmt.Sprint(status, " ", string(answer))
	}()
	runtest.Await(t, "operators read the table and the session", func() bool {
		text := h.remarks(true).LockAwaited
		return strings.Contains(text, "access.organizations, which session ")
	})
	if text := h.remarks(false).LockAwaited; text != string(lockAwaited) {
		t.Errorf("everybody reads %q", text)
	}
	if got := <-answered; !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "could not be looked up") {
		t.Errorf("a call is answered with %s", got)
	}
	runtest.Must(t, tx.Rollback(context.WithoutCancel(t.Context())))
	runtest.Await(t, "/readyz shows that the service is ready", func() bool {
		got := h.readyz()
		return got.status == http.StatusOK && !strings.Contains(got.body, "lockAwaited")
	})
	h.must(key, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"}, nil)
	h.movesWhileIndexIsLate(key)
}
