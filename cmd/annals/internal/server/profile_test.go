package server

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/runtest"
)

// startProfiled serves handlers with a short write timeout.
func startProfiled(t *testing.T, handler http.Handler) (url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.WriteTimeout = 500 * time.Millisecond // a busy machine must begin within it
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// A profile lasts as long as its caller asks for, up to the bound, whatever the write timeout of the server.
func TestProfiler_CPUProfileIsWhole(t *testing.T) {
	if longestProfile <= 30*time.Second {
		t.Errorf("a profile of 30 s is cut after %v", longestProfile)
	}
	log := slog.New(slog.DiscardHandler)
	for name, c := range map[string]struct {
		longest time.Duration
		seconds string
	}{
		"longer than the write timeout": {longestProfile, "1"}, "longer than the bound": {100 * time.Millisecond, "3600"},
	} {
		url := startProfiled(t, profiler{log, c.longest}.withOperation(http.NotFoundHandler()))
		res, err := http.Get(url + "/debug/pprof/profile?seconds=" + c.seconds)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		profile, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK || !bytes.HasPrefix(profile, []byte{0x1f, 0x8b}) {
			t.Errorf("%s: %d %v, %.100q", name, res.StatusCode, err, profile)
		}
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestProfiler_PanicAbortsTheCallOnly(t *testing.T) {
	var logged runtest.Output
	p := profiler{slog.New(slog.NewTextHandler(&logged, nil)), longestProfile}
	mux := http.NewServeMux()
	mux.Handle("/", p.withOperation(http.NotFoundHandler()))
	mux.Handle("/panics", p.guard(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "the first bytes")
		panic("broken profile")
	}))
	url := startProfiled(t, mux)
	if res, err := http.Get(url + "/panics"); err == nil {
		_, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err == nil {
			t.Error("the answer looks complete")
		}
	}
	if !strings.Contains(logged.String(), "broken profile") {
		t.Errorf("logged %q", logged.String())
	}
	res, err := http.Get(url + "/debug/pprof/symbol")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		t.Errorf("after the panic: %d", res.StatusCode)
	}
}

// Addresses to name are read up to the bound of a body.
func TestProfiler_LongBody(t *testing.T) {
	read := make(chan int, 1)
	p := profiler{slog.New(slog.DiscardHandler), longestProfile}
	guarded := p.guard(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // an error for what is longer
		read <- len(body)
	})
	for sent, want := range map[int]int{maxProfileBody: maxProfileBody, maxProfileBody + 1: maxProfileBody} {
		body := strings.NewReader(strings.Repeat("a", sent))
		guarded.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body))
		if got := <-read; got != want {
			t.Errorf("%d bytes are sent, and %d read", sent, got)
		}
	}
}
