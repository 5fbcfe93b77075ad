package main

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// answers serves /healthz with 200, and /readyz with 503.
func answers(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz":
		_, _ = io.WriteString(w, `{"status":"ok"}`)
	case "/readyz":
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code":"service-unavailable","debugMessage":"postgres: it does not answer"}`)
	default:
		http.NotFound(w, r)
	}
}

func TestHealthcheck_AddressesAndAnswers(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(answers))
	t.Cleanup(plain.Close)
	secure := httptest.NewTLSServer(http.HandlerFunc(answers))
	t.Cleanup(secure.Close)
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	certificate := certificateFile(t, secure.Certificate().Raw)
	foreign := certificateFile(t, []byte("another certificate"))
	addr := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	everywhere := func(s *httptest.Server) string { return "0.0.0.0:" + portOf(t, addr(s)) }
	closed := runtest.FreeAddress(t)
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		code int
		want string // what the only line holds
	}{
		"it runs":               {map[string]string{"ANNALS_API_ADDR": addr(plain)}, nil, exitOK, addr(plain) + "/healthz answers 200"},
		"all addresses":         {map[string]string{"ANNALS_API_ADDR": everywhere(plain)}, nil, exitOK, "http://127.0.0.1:"},
		"no host":               {map[string]string{"ANNALS_API_ADDR": ":" + portOf(t, addr(plain))}, nil, exitOK, "http://127.0.0.1:"},
		"operation address":     {map[string]string{"ANNALS_API_ADDR": closed, "ANNALS_OPS_ADDR": addr(plain)}, nil, exitOK, addr(plain)},
		"not ready":             {map[string]string{"ANNALS_API_ADDR": addr(plain)}, []string{"--ready"}, exitFailed, "/readyz answers 503: postgres: it does not answer"},
		"TLS":                   {map[string]string{"ANNALS_API_ADDR": addr(secure), "ANNALS_TLS_CERT": certificate}, nil, exitOK, "https://"},
		"another certificate":   {map[string]string{"ANNALS_API_ADDR": addr(secure), "ANNALS_TLS_CERT": foreign}, nil, exitFailed, "another certificate than"},
		"no certificate file":   {map[string]string{"ANNALS_TLS_CERT": filepath.Join(t.TempDir(), "none")}, nil, exitFailed, "ANNALS_TLS_CERT"},
		"TLS without a setting": {map[string]string{"ANNALS_API_ADDR": addr(secure)}, nil, exitFailed, "answers 400"},
		"nobody listens":        {map[string]string{"ANNALS_API_ADDR": closed}, nil, exitFailed, closed + "/healthz does not answer: "},
		"another program":       {map[string]string{"ANNALS_API_ADDR": addr(other)}, nil, exitFailed, "answers 404"},
		"no port":               {map[string]string{"ANNALS_OPS_ADDR": "localhost"}, nil, exitFailed, "ANNALS_OPS_ADDR"},
		"port of any number":    {map[string]string{"ANNALS_API_ADDR": "127.0.0.1:0"}, nil, exitFailed, "ANNALS_API_ADDR"},
	} {
		t.Run(name, func(t *testing.T) {
			got := annals(t.Context(), c.env, "", append([]string{"healthcheck"}, c.args...)...)
			said := got.stdout + got.stderr
			if got.code != c.code || strings.Count(said, "\n") != 1 || !strings.Contains(said, c.want) {
				t.Errorf("got %+v, want code %d and one line with %q", got, c.code, c.want)
			}
		})
	}
}

// A service that hangs is not healthy: the check ends at its own time.
func TestHealthcheck_ServiceHangs(t *testing.T) {
	release := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(hangs.Close)
	t.Cleanup(func() { close(release) })
	env := map[string]string{"ANNALS_API_ADDR": hangs.Listener.Addr().String()}
	annals(t.Context(), env, "", "healthcheck", "--timeout", "50ms").wants(t, exitFailed, "does not answer")
}

func certificateFile(t *testing.T, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "certificate.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	runtest.Must(t, os.WriteFile(file, text, 0o600))
	return file
}

func portOf(t *testing.T, addr string) string {
	t.Helper()
	_, port, ok := strings.Cut(addr, ":")
	if !ok {
		t.Fatalf("no port in %s", addr)
	}
	return port
}
