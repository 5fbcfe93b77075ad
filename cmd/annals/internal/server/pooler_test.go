package server

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

// A service starts for the first time through a PgBouncer, takes sends, recalls and erases, in each mode that is
// supported, whether or not its address chooses how statements are sent.
func TestPooler_Modes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ mode, setting string }{
		"session":                           {pgtest.SessionMode, "application_name=annals"},
		"transaction":                       {pgtest.TransactionMode, "application_name=annals"},
		"transaction, statements described": {pgtest.TransactionMode, "default_query_exec_mode=cache_describe"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.postgres = pgtest.With(pgtest.NewBouncer(t, pgtest.URL(t), c.mode).URL(), c.setting)
			h.start()
			key, _ := h.keys()
			h.sendTeaAndRecall()
			h.must(key, http.MethodDelete, api+"/data-points/a", nil, nil)
			if done, err := h.background.finisher.EraseNow(t.Context()); err != nil || done.Left.Deletions > 0 {
				t.Errorf("erase: %+v, %v", done, err)
			}
		})
	}
}

// A pooler in statement mode allows no transactions: the start is refused in its words.
func TestPooler_StatementMode(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.postgres = pgtest.NewBouncer(t, pgtest.URL(t), pgtest.StatementMode).URL()
	h.wantRefused("statement pooling mode")
}

// The operator changes the mode of the pooler under load, back and forth: nothing that was acknowledged is lost, and
// the service goes on by itself.
func TestPooler_ModeChanges(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	pooler := pgtest.NewBouncer(t, pgtest.URL(t), pgtest.SessionMode)
	h.postgres = pooler.URL()
	h.start()
	key, _ := h.keys()
	h.sendTeaAndRecall()
	var sent []string
	for n, mode := range []string{pgtest.TransactionMode, pgtest.SessionMode, pgtest.TransactionMode} {
		var sending sync.WaitGroup
		var some [2][]string
		for i := range some {
			sending.Go(func() { some[i] = h.sendAll(key, fmt.Sprintf("m%d-%d-", n, i), 5) })
		}
		pooler.SetMode(mode)
		sending.Wait()
		sent = append(sent, h.sendAll(key, fmt.Sprintf("n%d-", n), 2)...)
		for _, list := range some {
			sent = append(sent, list...)
		}
	}
	h.awaitPoints(key, sent)
	runtest.Await(t, "the service is ready", func() bool { return h.readyz().status == http.StatusOK })
	if got := h.readyz(); strings.Contains(got.body, "setAside") {
		t.Errorf("/readyz: %s", got.body)
	}
}
