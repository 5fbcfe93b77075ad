package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
)

// startFrozen starts a service whose reading becomes older only by pass.
func startFrozen(t *testing.T) (h *harness, pass func(time.Duration)) {
	var passed atomic.Int64
	h = newHarness(t)
	h.arrange = func(s *Server) {
		s.health.reading.now = func() time.Time { return time.Unix(100, passed.Load()) }
	}
	h.start()
	return h, func(d time.Duration) { passed.Add(int64(d)) }
}

// remarks returns the remarks, as operators read them if private is true.
func (h *harness) remarks(private bool) client.Remarks {
	return h.health.conditions(h.t.Context()).Remarks(private)
}

func (h *harness) readyz() answer { return h.fetch(http.MethodGet, h.urls.API+"/readyz", "", "") }

// However often the operation routes are called, the servers are read once a second, on a connection that neither
// calls nor background work use. A stop, and connections that are in use for long, are shown all the same.
func TestServer_OperationRoutesShareOneReading(t *testing.T) {
	t.Parallel()
	h, pass := startFrozen(t)
	pass(memoTime)
	if got := h.readyz(); got.status != http.StatusOK {
		t.Fatalf("readyz: %d %s", got.status, got.body)
	}
	checks, calls := h.storage.checks.Stat().AcquireCount(), h.storage.db.Stat().AcquireCount()
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			for range 25 {
				h.readyz()
				h.fetch(http.MethodGet, h.urls.API+"/metrics", "", "")
			}
		})
	}
	callers.Wait()
	if n := h.storage.checks.Stat().AcquireCount() - checks; n != 0 {
		t.Errorf("1,000 calls within a second read the database %d times", n)
	}
	if n := h.storage.db.Stat().AcquireCount() - calls; n > 100 { // other parts take some, rarely
		t.Errorf("they took %d connections for calls", n)
	}
	pass(memoTime)
	h.readyz()
	if h.storage.checks.Stat().AcquireCount() == checks {
		t.Error("a second later the database is not read")
	}
	h.stopIsNotHidden()
	h.allConnectionsInUse(pass)
}

// stopIsNotHidden checks that a stop is shown at once, whatever is remembered.
func (h *harness) stopIsNotHidden() {
	h.t.Helper()
	if got := h.readyz(); got.status != http.StatusOK {
		h.t.Fatalf("readyz: %d %s", got.status, got.body)
	}
	h.web.admission.draining.Store(true)
	if got := h.readyz(); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "the service is stopping") {
		h.t.Errorf("readyz of a service that stops: %d %s", got.status, got.body)
	}
	h.web.admission.draining.Store(false)
}

// allConnectionsInUse checks that connections are missed only if they are in use for long.
func (h *harness) allConnectionsInUse(pass func(time.Duration)) {
	h.t.Helper()
	for range callConnections {
		conn, err := h.storage.db.Acquire(h.t.Context())
		runtest.Must(h.t, err)
		h.t.Cleanup(conn.Release)
	}
	pass(memoTime)
	if got := h.readyz(); got.status != http.StatusOK {
		h.t.Errorf("connections that are in use for a moment: %d %s", got.status, got.body)
	}
	pass(checkTimeout)
	if got := h.readyz(); got.status != http.StatusServiceUnavailable ||
		!strings.Contains(got.body, `{"part":"postgres","reason":"`+string(poolUsedUp)+`","since":"1970-`) {
		h.t.Errorf("connections that are in use for long: %d %s", got.status, got.body)
	}
}

// A database that is lost is named on the API's address, and neither described there.
func TestServer_LostPostgresIsNotDescribed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.arrange = func(s *Server) {
		lost, err := pg.NewPool(t.Context(), "postgres://hiddenuser:hiddenword@127.0.0.1:1/hiddendb")
		runtest.Must(t, err)
		s.storage.checks.Close()
		s.storage.checks = lost
	}
	h.start()
	got := h.readyz()
	if got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, `{"part":"postgres","reason":"it does not answer","since":"`) {
		t.Errorf("readyz: %d %s", got.status, got.body)
	}
	for _, text := range []string{"hidden", "127.0.0.1", "dial", "connect", "cause"} {
		if strings.Contains(got.body, text) {
			t.Errorf("readyz shows %q: %s", text, got.body)
		}
	}
	causes := ""
	for _, part := range h.health.conditions(t.Context()).NotReady(true) {
		causes += part.Cause
	}
	if !strings.Contains(causes, "127.0.0.1:1") {
		t.Errorf("the causes for operators are %q", causes)
	}
}

// While Postgres does not answer, it comes first, one part names what waits for it, and no share of the log is shown:
// how far the projections are is not known.
func TestServer_LostPostgresComesBeforeItsEffects(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	forwarded, cut := pgtest.Forwarded(t, pgtest.URL(t))
	h.postgres = forwarded
	h.start()
	h.health.progress.begin(1 << 40) // as if the log were longer
	cut()
	runtest.Await(t, "what waits is shown", func() bool {
		return strings.Contains(h.readyz().body, string(awaitPostgres))
	})
	got := h.readyz().body
	var is struct {
		DebugMessage string
		Data         struct {
			NotReady   []client.NotReady
			CatchingUp string
		}
	}
	runtest.Must(t, json.Unmarshal([]byte(got), &is))
	for i := range is.Data.NotReady {
		if is.Data.NotReady[i].Since.IsZero() {
			t.Errorf("since when is not shown: %s", got)
		}
		is.Data.NotReady[i].Since = time.Time{}
	}
	want := []client.NotReady{
		{Part: "postgres", Reason: string(silent)}, {Part: "projections", Reason: string(awaitPostgres)},
	}
	if is.DebugMessage != "postgres: it does not answer" || is.Data.CatchingUp != "" ||
		!slices.Equal(is.Data.NotReady, want) {
		t.Errorf("readyz: %s", got)
	}
	if metrics := h.metrics(); strings.Contains(metrics, "annals_projection_lag{") {
		t.Errorf("a lag is shown: %s", metrics)
	}
}

// A projection that stopped has a cause of its own, and is named while a server is away. A server that answers, and
// refuses something, is no cause of what a projection repeats.
func TestHealth_EffectsAreJoined(t *testing.T) {
	part := func(name, of string, reason condition.Reason) condition.Condition {
		return condition.Condition{Name: name, Of: of, State: condition.NotReady, Words: reason}
	}
	list := func(parts ...condition.Condition) condition.List { return parts }
	postgres, store := part(postgresPart, "", silent), part(eventStorePart, "", silent)
	waiting, halted := part(projectionPart, "access", cannotBegin), part(projectionPart, "trace", stoppedAt)
	joined := part("projections", "", awaitPostgres)
	for name, c := range map[string]struct{ servers, projections, want condition.List }{
		"nothing away":       {nil, list(waiting, halted), list(waiting, halted)},
		"only a stop":        {list(postgres), list(halted), list(halted)},
		"both":               {list(postgres), list(waiting, halted), list(joined, halted)},
		"a server refuses":   {list(part(postgresPart, "", refuses)), list(waiting), list(waiting)},
		"the store is away":  {list(store), list(waiting), list(part("projections", "", awaitEventStore))},
		"the first is named": {list(postgres, store), list(waiting), list(joined)},
	} {
		if got := withoutEffects(c.servers, c.projections); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A service that starts has no lease of its index yet, which is no sign of another process.
func TestHealth_IndexFedElsewhere(t *testing.T) {
	h := &health{index: &localIndex{ownsIndex: true}, admission: &opening{}}
	now := reading{projections: []runner.Status{{Name: recallindex.Name}}}
	if parts := h.projectionsNotReady(now); len(parts) != 0 {
		t.Errorf("while it starts: %+v", parts)
	}
	h.admission.open.Store(true)
	if parts := h.projectionsNotReady(now); len(parts) != 1 || parts[0].Words != fedElsewhere {
		t.Errorf("after the start: %+v", parts)
	}
}

// Whatever a projection fails with, every client reads constant sentences and positions.
func TestHealth_ReasonsHoldNoTextOfErrors(t *testing.T) {
	const text = "hidden words of a customer"
	cause := errors.New(text)
	h := &health{}
	parts := h.projectionsNotReady(reading{projections: []runner.Status{
		{Name: "a", Stop: &runner.Stop{Position: 7, Stream: text, Type: text, Err: cause}},
		{Name: "b", Stop: &runner.Stop{Err: cause}},
		{Name: "c", Repeat: &runner.Repeat{Next: 9, Err: cause}},
		{Name: "d", Repeat: &runner.Repeat{Err: cause}},
		{Name: "e", LastErr: cause},
	}})
	if len(parts) != 5 {
		t.Fatalf("%d parts: %+v", len(parts), parts)
	}
	for _, part := range parts.NotReady(true) {
		if !strings.Contains(part.Cause, text) {
			t.Errorf("%s has the cause %q", part.Part, part.Cause)
		}
	}
	public, err := json.Marshal(parts.NotReady(false))
	runtest.Must(t, err)
	if strings.Contains(string(public), text) || !strings.Contains(string(public), `"position":7`) {
		t.Errorf("every client reads %s", public)
	}
}
