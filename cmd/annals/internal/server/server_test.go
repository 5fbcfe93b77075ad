package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

func TestRunTiers_PanicOfATaskIsItsError(t *testing.T) {
	stopped := make(chan struct{})
	err := runTiers(t.Context(), slog.New(slog.DiscardHandler),
		[]task{{"edge", func(ctx context.Context) error { <-ctx.Done(); close(stopped); return nil }}},
		[]task{{"store", func(context.Context) error { panic("disk") }}})
	if _, is := errors.AsType[*panics.Error](err); !is || !strings.Contains(err.Error(), "store: panic: disk") {
		t.Errorf("error is %v, want the panic of the task", err)
	}
	<-stopped
}

func TestRestarting_TaskThatPanicsRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, runs := time.Now(), 0
		var last time.Duration
		again := restarting(slog.New(slog.DiscardHandler), []task{{"worker", func(ctx context.Context) error {
			if runs++; runs <= 8 {
				panic("item")
			}
			last = time.Since(began)
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}}})
		if err := again[0].run(ctx); !errors.Is(err, context.Canceled) || runs != 9 {
			t.Errorf("it ran %d times and ended with %v", runs, err)
		}
		if want := (1 + 2 + 4 + 8 + 16 + 32 + 60 + 60) * time.Second; last != want {
			t.Errorf("the pauses are %s, want %s", last, want)
		}
	})
}

func TestRestarting_ErrorEndsTheTask(t *testing.T) {
	broken := errors.New("broken")
	again := restarting(slog.New(slog.DiscardHandler), []task{{"worker", func(context.Context) error { return broken }}})
	if err := again[0].run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("error is %v, want %v", err, broken)
	}
}

// A process whose roles leave a tier without tasks runs until its context ends.
func TestRunTiers_TierWithoutTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		edge := []task{{"edge", func(ctx context.Context) error { <-ctx.Done(); return nil }}}
		if err := runTiers(ctx, slog.New(slog.DiscardHandler), edge, nil); err != nil || time.Since(began) < time.Hour {
			t.Errorf("ended after %s with %v", time.Since(began), err)
		}
	})
}

// A task that ignores the end of its context does not keep the tiers after it from their stop, and the error names it.
func TestRunTiers_NamesTheTaskThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release, stopped := make(chan struct{}), make(chan struct{})
		defer close(release)
		obeys := func(ctx context.Context) error { <-ctx.Done(); return nil }
		cancel()
		err := runTiers(ctx, slog.New(slog.DiscardHandler),
			[]task{{"edge", obeys}, {"stuck", func(context.Context) error { <-release; return nil }}},
			[]task{{"store", func(ctx context.Context) error { <-ctx.Done(); close(stopped); return nil }}})
		if err == nil || err.Error() != "tasks did not stop within 40s: stuck" {
			t.Errorf("error is %v, want one that names the task", err)
		}
		<-stopped
	})
}

func TestConfig_PublicURLs(t *testing.T) {
	for name, c := range map[string]struct {
		change       func(*Config)
		api, console string
		want         auth.URLs
	}{
		"from what is listened on": {func(*Config) {}, "127.0.0.1:41234", "127.0.0.1:41235", auth.URLs{API: "http://127.0.0.1:41234", Console: "http://127.0.0.1:41235", Auth: "http://127.0.0.1:41235"}},
		"every interface":          {func(*Config) {}, "[::]:8080", "0.0.0.0:8081", auth.URLs{API: "http://localhost:8080", Console: "http://localhost:8081", Auth: "http://localhost:8081"}},
		"HTTPS":                    {func(s *Config) { s.TLSCert = "c" }, "h:1", "127.0.0.1:8081", auth.URLs{API: "https://h:1", Console: "https://127.0.0.1:8081", Auth: "https://127.0.0.1:8081"}},
		"set":                      {func(s *Config) { s.URLs.API, s.URLs.Console = "https://a/", "https://c/" }, "h:1", "h:2", auth.URLs{API: "https://a", Console: "https://c", Auth: "https://c"}},
		"own authorization server": {func(s *Config) { s.URLs.Auth = "https://auth" }, "h:1", "h:2", auth.URLs{API: "http://h:1", Console: "http://h:2", Auth: "https://auth"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Config{}
			c.change(&s)
			if diff := cmp.Diff(c.want, s.publicURLs(c.api, c.console)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseRoles(t *testing.T) {
	for text, want := range map[string]string{
		"": AllRoles().String(), "read": "read", " read , write,read": "read,write", "write,read,projector,pipeline,console": AllRoles().String(),
	} {
		roles, err := ParseRoles(text)
		if err != nil || roles.String() != want {
			t.Errorf("%q: %s, %v, want %s", text, roles, err, want)
		}
	}
	if _, err := ParseRoles("read,writer"); err == nil {
		t.Error("an unknown role is taken")
	}
}

func TestRoles_CheckEmbedded(t *testing.T) {
	const log, db, index = "esdb://log:2113", "postgres://db/annals", "https://search:9200"
	for name, c := range map[string]struct {
		roles, log, db, index string
		setting               string
	}{
		"all, embedded":               {AllRoles().String(), Embedded, Embedded, Embedded, ""},
		"split, nothing embedded":     {"read", log, db, index, ""},
		"embedded log":                {"write,read,projector,pipeline", Embedded, db, index, "EVENTSTORE"},
		"embedded database":           {"read", log, Embedded, index, "POSTGRES"},
		"embedded index, read apart":  {"write,read", log, db, Embedded, "INDEX"},
		"embedded index, writes":      {"write", log, db, Embedded, ""},
		"console alone":               {"console", log, db, index, ""},
		"embedded index, console":     {"console", log, db, Embedded, "INDEX"},
		"embedded index, and read":    {"read,projector,pipeline,console", log, db, Embedded, ""},
		"embedded index, all but one": {"read,projector,pipeline", log, db, Embedded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			roles, err := ParseRoles(c.roles)
			runtest.Must(t, err)
			setting, err := roles.CheckEmbedded(c.log, c.db, c.index)
			if diff := cmp.Diff(c.setting, setting); diff != "" || (err != nil) != (c.setting != "") {
				t.Errorf("%v, %s", err, diff)
			}
			if err != nil && (strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "ANNALS_ROLES")) {
				t.Errorf("the line is %q", err)
			}
		})
	}
}

// A step that fails is tried again with a warning, and one that fails because the service stops ends without one.
func TestStartup_RetryUntilStop(t *testing.T) {
	var log bytes.Buffer
	s := &startup{logger: slog.New(slog.NewTextHandler(&log, nil))}
	ctx, stop := context.WithCancel(t.Context())
	tries := 0
	done := s.retry(ctx, step{"look", func(ctx context.Context) error {
		if tries++; tries == 1 {
			return errors.New("out of ideas")
		}
		stop()
		return ctx.Err()
	}})
	if text := log.String(); done || tries != 2 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "out of ideas") {
		t.Errorf("%v after %d tries:\n%s", done, tries, text)
	}
}

// A service that is ready waits before it stops, and is not ready meanwhile. One that is not ready, or that has no
// delay, stops at once. What fails meanwhile ends the delay.
func TestServer_DelayStop(t *testing.T) {
	for name, c := range map[string]struct {
		delay       time.Duration
		open, waits bool
	}{
		"ready":     {time.Hour, true, true},
		"starting":  {time.Hour, false, false},
		"no delay":  {0, true, false},
		"ends soon": {time.Millisecond, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Server{
				cfg: Config{StopDelay: c.delay, Logger: slog.New(slog.DiscardHandler)}, web: &webServer{admission: &opening{}},
			}
			s.web.admission.open.Store(c.open)
			ctx, stop := context.WithCancel(t.Context())
			later, end := s.delayStop(ctx)
			defer end()
			if later.Err() != nil || s.web.admission.draining.Load() {
				t.Fatal("stopped before the signal")
			}
			stop()
			if !c.waits {
				<-later.Done()
				return
			}
			for !s.web.admission.draining.Load() {
				runtime.Gosched()
			}
			if later.Err() != nil {
				t.Error("stopped without a delay")
			}
			end()
			<-later.Done()
		})
	}
}

// A process of each role is refused with another seal key. One that seals nothing may have none.
func TestServer_SealKeyByRole(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	h.start()
	h.stop()
	file := filepath.Join(h.dir, datafolder.SealKeyFile)
	runtest.Must(t, os.Remove(file))
	other := datafolder.EncodeSecrets([][]byte{bytes.Repeat([]byte{7}, datafolder.SecretBytes)})
	for _, role := range []string{"write", "read", "projector", "pipeline", "console"} {
		for key, needed := range map[string]bool{other: true, "": role == "write" || role == "console"} {
			cfg := h.config()
			cfg.Roles = Roles{Role(role)}
			cfg.Data.SealKey = key
			s, err := New(t.Context(), cfg)
			if err == nil {
				runtest.Must(t, s.Close())
			}
			if _, refused := errors.AsType[*secret.SealKeyError](err); refused != needed || !refused && err != nil {
				t.Errorf("role %s with the key %.4q: %v", role, key, err)
			}
			if _, err := os.Stat(file); !os.IsNotExist(err) {
				t.Errorf("role %s made a seal key, %v", role, err)
			}
		}
	}
	cfg := h.config()
	cfg.Data.SealKey = other
	if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "annals seal-key accept-loss") {
		t.Errorf("all roles with another key: %v", err)
	}
}

// shownBy returns the certificate that an address shows.
func shownBy(t *testing.T, l net.Listener) string {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
	runtest.Must(t, err)
	defer func() { _ = conn.Close() }()
	return string(conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw)
}

func TestWeb_CertificateIsReplaced(t *testing.T) {
	cert, key, _ := nodetest.Files(t, "cert.pem", "")
	nextCert, nextKey, _ := nodetest.Files(t, "cert.pem", "")
	w := newWebServer(Config{TLSCert: cert, TLSKey: key, Logger: slog.New(slog.DiscardHandler)}, &opening{})
	ctx, cancel := context.WithCancel(t.Context())
	var addresses []net.Listener
	done := make(chan error)
	for range 2 { // as the API's and the console's
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		runtest.Must(t, err)
		addresses = append(addresses, l)
		go func() { done <- w.serve(l, http.NotFoundHandler())(ctx) }()
	}
	t.Cleanup(func() { cancel(); runtest.Must(t, errors.Join(<-done, <-done)) })
	first := shownBy(t, addresses[0])
	if shownBy(t, addresses[1]) != first {
		t.Error("the addresses show different certificates")
	}
	at := time.Now().Add(time.Minute) // not the time of the files before
	for _, file := range []string{nextCert, nextKey} {
		runtest.Must(t, os.Chtimes(file, at, at))
	}
	runtest.Must(t, errors.Join(os.Rename(nextKey, key), os.Rename(nextCert, cert)))
	for _, l := range addresses {
		runtest.Await(t, "the next certificate", func() bool { return shownBy(t, l) != first })
	}
}

func TestWeb_CertificateCannotBeRead(t *testing.T) {
	cert, _, _ := nodetest.Files(t, "cert.pem", "")
	_, key, _ := nodetest.Files(t, "cert.pem", "")
	w := newWebServer(Config{TLSCert: cert, TLSKey: key, Logger: slog.New(slog.DiscardHandler)}, &opening{})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	runtest.Must(t, err)
	defer func() { _ = l.Close() }()
	if err := w.serve(l, http.NotFoundHandler())(t.Context()); err == nil {
		t.Error("it serves with the key of another certificate")
	}
}

// With the certificate of the service, answers have browsers use HTTPS alone; over plain HTTP they do not.
func TestWeb_StrictTransport(t *testing.T) {
	cert, key, _ := nodetest.Files(t, "cert.pem", "")
	for scheme, cfg := range map[string]Config{"https": {TLSCert: cert, TLSKey: key}, "http": {}} {
		cfg.Logger = slog.New(slog.DiscardHandler)
		w := newWebServer(cfg, &opening{})
		ctx, cancel := context.WithCancel(t.Context())
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		runtest.Must(t, err)
		done := make(chan error, 1)
		go func() { done <- w.serve(l, http.NotFoundHandler())(ctx) }()
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+l.Addr().String(), nil)
		runtest.Must(t, err)
		res, err := transport.RoundTrip(req)
		runtest.Must(t, err)
		runtest.Must(t, res.Body.Close())
		want := map[string]string{"https": "max-age=31536000"}[scheme]
		if got := res.Header.Get("Strict-Transport-Security"); got != want || res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d %q, want %q", scheme, res.StatusCode, got, want)
		}
		cancel()
		runtest.Must(t, <-done)
	}
}

// Programs without a session or a key read the documentation of a running service, from wherever they call.
func TestDocs_ArePublic(t *testing.T) {
	unraced(t)
	h := newTenant(t)
	for _, c := range []struct{ method, path, body, want string }{
		{http.MethodGet, "/docs", "", "<h1>Documentation</h1>"},
		{http.MethodGet, "/docs/console.md", "", "# The console"},
		{http.MethodGet, "/docs/auth.md", "", "# Register as an agent"},
		{http.MethodGet, "/llms.txt", "", h.urls.Console + "/docs/concepts.md"},
		{http.MethodGet, "/openapi.json", "", `"servers":[{"url":"` + h.urls.API + `"}]`},
		{http.MethodPost, "/docs/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call",
			"params":{"name":"read_page","arguments":{"id":"concepts"}}}`, h.urls.Console + "/docs/concepts"},
	} {
		h.fetch(c.method, h.urls.Console+c.path, "", c.body,
			"Accept", "application/json, text/event-stream", "Origin", "https://elsewhere.example").
			want(t, http.StatusOK, c.want)
	}
}

func plan(audience string) point {
	return point{"id": "plan", "content": "The plan is to grow marigold.", "audience": audience}
}

var note = point{"id": "note", "content": "Cy likes figs."}

// Once a send that moves a data point to another audience returns, the new reader finds it.
func TestServer_MoveIsVisible(t *testing.T) {
	unraced(t)
	h := newTenant(t)
	key := h.credentials()[datafolder.ProjectKeyName]
	reader := map[string]string{"red": "ana", "blue": "bo"}
	for audience, identity := range reader {
		h.must(key, http.MethodPut, api+"/identities/"+identity, point{"traits": point{}}, nil)
		fixed := point{"kind": "fixed", "name": audience, "identities": []string{identity}}
		h.must(key, http.MethodPut, api+"/audiences/"+audience, fixed, nil)
	}
	h.send(key, "/ingest", "completed", plan("red"))
	h.send(key, "/ingest", "completed", note)
	checked := 0
	for n := range 12 {
		to := []string{"blue", "red"}[n%2]
		path, body := "/ingest", any(plan(to))
		if n%4 > 1 {
			path, body = "/ingest/batch", point{"items": []point{note, plan(to)}}
		}
		got := h.fetchAPI(key, http.MethodPost, api+path, body)
		if got.status == http.StatusServiceUnavailable && strings.Contains(got.body, `"committed":true`) {
			continue // so slow a machine gets the answer that is tested below
		}
		checked++
		got.want(t, http.StatusOK, `"status":"completed"`)
		for audience, identity := range reader {
			_, found := h.call(key, http.MethodPost, api+"/recall", point{"query": "Who grows marigold?", "identity": identity})
			if is := strings.Contains(string(found), "grow marigold"); is != (audience == to) {
				t.Errorf("%s that moves to %s is answered, and the readers of %s are answered %s", path, to, audience, found)
			}
		}
	}

	if checked == 0 {
		t.Error("no move was completed within its time")
	}
}

// movesWhileIndexIsLate moves a data point while the index accepts no writes: the move is stored but not completed, and
// an unchanged item waits for nothing.
func (h *harness) movesWhileIndexIsLate(key string) {
	t := h.t
	t.Helper()
	h.must(key, http.MethodPut, api+"/identities/ana", point{"traits": point{}}, nil)
	for _, audience := range []string{"red", "blue"} {
		h.must(key, http.MethodPut, api+"/audiences/"+audience, point{"kind": "fixed", "identities": []string{"ana"}}, nil)
	}
	h.send(key, "/ingest", "completed", plan("red"))
	h.send(key, "/ingest", "completed", note)
	held, err := h.storage.db.Begin(t.Context())
	runtest.Must(t, err)
	defer func() { _ = held.Rollback(t.Context()) }()
	_, err = held.Exec(t.Context(), "lock table recallindex.data_points in access exclusive mode")
	runtest.Must(t, err)
	h.fetchAPI(key, http.MethodPost, api+"/ingest", plan("blue")).
		want(t, http.StatusServiceUnavailable, `"committed":true`)
	h.fetchAPI(key, http.MethodPost, api+"/ingest", note).want(t, http.StatusOK, `"unchanged":true`)
	runtest.Must(t, held.Rollback(t.Context()))
	runtest.Await(h.t, "a send that moves it back is completed", func() bool {
		got := h.fetchAPI(key, http.MethodPost, api+"/ingest", plan("red"))
		return got.status == http.StatusOK && strings.Contains(got.body, `"status":"completed"`)
	})
}
