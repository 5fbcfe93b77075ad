package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/internal/condition"
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
	h.readyz().want(t, http.StatusOK)
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
	h.sendTeaAndRecall()
	h.allConnectionsInUse(pass)
	h.worksWithoutCalls(pass)
}

// stopIsNotHidden checks that a stop is shown at once, whatever is remembered.
func (h *harness) stopIsNotHidden() {
	h.t.Helper()
	h.readyz().want(h.t, http.StatusOK)
	h.web.admission.draining.Store(true)
	h.readyz().want(h.t, http.StatusServiceUnavailable, "the service is stopping")
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
	h.readyz().want(h.t, http.StatusOK)
	pass(checkTimeout)
	h.readyz().want(h.t, http.StatusServiceUnavailable,
		`{"part":"postgres","reason":"`+string(poolUsedUp)+`","since":"1970-`)
}

// While Postgres does not answer, it comes first, one part names what waits for it, and no share of the log is shown:
// how far the projections are is not known. Why it does not answer is for operators.
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
	shown := h.readyz()
	got := shown.body
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
	// What was read just before is shown until it is read again.
	runtest.Await(t, "no lag is shown", func() bool { return !strings.Contains(h.metrics(), "annals_projection_lag{") })
	shown.want(t, http.StatusServiceUnavailable).lacks(t, "127.0.0.1", "dial", "connect", "cause")
	// A query that was cut off names no address, the next one does.
	runtest.Await(t, "operators are shown the address", func() bool {
		return slices.ContainsFunc(h.health.conditions(t.Context()).NotReady(true), func(c condition.Unready) bool {
			return strings.Contains(c.Cause, "127.0.0.1:")
		})
	})
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

func TestStartProgress_SlowestProjection(t *testing.T) {
	clock := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := &startProgress{now: func() time.Time { return clock }}
	states := []runner.Status{
		{Name: "access", Position: 1000},
		{Name: "datapoints", Position: 100},
		{Name: "memories", Position: 500},
		{Name: "trace", Position: 0}, // no start waits for it
		{Name: "usage", Position: 0, Stop: &runner.Stop{}},
	}
	if _, ok := s.of(reading{projections: states}); ok {
		t.Error("shown before the head is known")
	}
	s.begin(1000)
	want := "the projection datapoints has read 10 % of the log (position 100 of 1000)"
	if c, ok := s.of(reading{projections: states}); !ok || c.String() != want {
		t.Errorf("at first: %q, %v", c, ok)
	}
	clock = clock.Add(10 * time.Second)
	states[1].Position = 400
	want = "the projection datapoints has read 40 % of the log (position 400 of 1000), 30 positions/s, 20s left"
	if c, ok := s.of(reading{projections: states}); !ok || c.String() != want {
		t.Errorf("ten seconds later: %q, %v", c, ok)
	}
	states[1].IsUnread = true
	if c, ok := s.of(reading{projections: states}); ok || s.isDone() {
		t.Errorf("while a checkpoint cannot be read: %q, done: %t", c, s.isDone())
	}
	states[1].IsUnread = false
	if c, ok := s.of(reading{projections: states, postgres: errors.New("away")}); ok || s.isDone() {
		t.Errorf("while Postgres is away: %q, done: %t", c, s.isDone())
	}
	states[1].Position = 1000
	if c, ok := s.of(reading{projections: states}); !ok || c.projection != "memories" {
		t.Errorf("then: %q, %v", c, ok)
	}
	states[2].Position = 1200
	if _, ok := s.of(reading{projections: states}); ok || !s.isDone() {
		t.Error("shown at the goal")
	}
	states[2].Position = 900
	if _, ok := s.of(reading{projections: states}); ok {
		t.Error("shown again after the start")
	}
}

// showsTheStart checks that a service that starts shows how far it has read the log, and not what waits meanwhile.
func (h *harness) showsTheStart() {
	h.t.Helper()
	h.health.progress.done = false
	h.health.progress.begin(1 << 40) // as if the log were longer
	h.web.admission.open.Store(false)
	runtest.Await(h.t, "the progress is shown", func() bool {
		got := h.readyz()
		return got.status == http.StatusServiceUnavailable && strings.Contains(got.body, `"catchingUp":"the projection `) &&
			strings.Contains(got.body, "of the log (position ")
	})
}

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

func TestMemo_OneReadingForAllCallers(t *testing.T) {
	var reads, clock atomic.Int64
	m := newMemo(func(context.Context) int64 { return reads.Add(1) })
	m.now = func() time.Time { return time.Unix(100, clock.Load()) }
	all := func(want int64) {
		t.Helper()
		var callers sync.WaitGroup
		for range 1000 {
			callers.Go(func() {
				if got := m.get(); got != want {
					t.Errorf("a caller got reading %d, want %d", got, want)
				}
			})
		}
		callers.Wait()
	}
	all(1)
	clock.Add(int64(memoTime - 1))
	all(1)
	clock.Add(1)
	all(2)
	if reads.Load() != 2 {
		t.Errorf("%d readings in a second, want 2", reads.Load())
	}
}

// A server that does not answer makes a reading last longer than it is kept. Those that waited for it share it.
func TestMemo_SlowReadingIsShared(t *testing.T) {
	var reads, clock atomic.Int64
	m := newMemo(func(context.Context) int64 {
		clock.Add(int64(2 * memoTime))
		return reads.Add(1)
	})
	m.now = func() time.Time { return time.Unix(100, clock.Load()) }
	for range 3 {
		if got := m.get(); got != 1 {
			t.Errorf("a caller got reading %d, want 1", got)
		}
	}
	clock.Add(int64(memoTime))
	if got := m.get(); got != 2 {
		t.Errorf("after %s a caller got reading %d, want 2", memoTime, got)
	}
}

// A key that the model refuses is named in the log before the first send, on the operations address and in the
// metrics; so are the sends that fail because of it, and that it works again.
func TestServer_WrongKeyOfModel(t *testing.T) {
	t.Parallel()
	var right atomic.Bool
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !right.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(`{"choices":[{"message":{"content":"{\"memories\":[]}"}}]}`))
	}))
	t.Cleanup(model.Close)
	log := &runtest.Output{}
	h := newHarness(t)
	h.set = func(cfg *Config) {
		cfg.Model.URL, cfg.Model.Name, cfg.Model.Key = model.URL, "small", "wrong-key"
		cfg.OpsAddr = "127.0.0.1:0"
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	h.start()
	ops := "http://" + h.Server.listeners.ops.Addr().String()
	awaitText := func(what string, text func() string, wants ...string) {
		t.Helper()
		runtest.Await(t, what, func() bool { return containsAll(text(), wants) })
	}
	h.fetch(http.MethodGet, ops+"/debug/pprof/", "", "").want(t, http.StatusNotFound) // without its setting
	readyz := func() string { return h.fetch(http.MethodGet, ops+"/readyz", "", "").body }
	awaitText("the log names the setting", log.String, "a server cannot be used", "ANNALS_MODEL_KEY", "status 403")
	awaitText("/readyz names it", readyz, `"status":"ready"`,
		"the model that derives memory cannot be used", "status 403 (ANNALS_MODEL_KEY)")
	awaitText("a metric shows it", h.metrics, `annals_server_up{server="model"} 0`,
		`annals_sends_failed_total{code="content-rejected"} 0`)

	const public = "the model that derives memory cannot be used: check ANNALS_MODEL_KEY; the log has the cause"
	if got := h.remarks(false).ServersDown; !slices.Equal(got, []string{public}) {
		t.Errorf("anybody reads %q", got)
	}

	key, _ := h.keys()
	h.send(key, "/ingest", "failed", point{"id": "a", "content": "Ana likes tea."})
	awaitText("the failed send is logged", log.String, "sends failed", "code=content-rejected")
	awaitText("the failed send is counted", h.metrics, `annals_sends_failed_total{code="content-rejected"} 1`)
	awaitText("/readyz shows the failed send", readyz, "1 send failed in the last hour", "status 403")
	if strings.Contains(log.String(), "wrong-key") || strings.Contains(readyz(), "wrong-key") {
		t.Error("the key is shown")
	}
	right.Store(true)
	h.send(key, "/ingest", "completed", point{"id": "b", "content": "Bo likes tea."})
	awaitText("the log says that it works", log.String, "a server is reachable again")
	awaitText("the metric shows it", h.metrics, `annals_server_up{server="model"} 1`)
}

// Failed sends of a code are logged once a minute, with how many there were.
func TestSendFailures_LoggedOnceAMinute(t *testing.T) {
	log := &bytes.Buffer{}
	f := newSendFailures(func(context.Context, string) []string { return nil }, slog.New(slog.NewTextHandler(log, nil)))
	now := time.Date(2026, 5, 12, 9, 0, 0, 0, time.UTC)
	f.now = func() time.Time { return now }
	for range 100 {
		f.failed(t.Context(), ingestion.ModelUnavailable, "the model returned status 401")
		f.failed(t.Context(), ingestion.Internal, "the stored text cannot be read")
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines about two causes:\n%s", n, log)
	}
	now = now.Add(failureLogEvery)
	f.failed(t.Context(), ingestion.ModelUnavailable, "the model returned status 401")
	if !strings.Contains(log.String(), "sends=100 ") {
		t.Errorf("a minute later:\n%s", log)
	}
}
