package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
)

// The proxy of the deployment sends every route of the contract to a ready process of the role that
// answers it.
func TestProxy_SendsEachRouteToItsRole(t *testing.T) {
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("haproxy is not installed here; .ci/run installs it")
	}
	// The port of the health checks is one for all processes, so each has an address of its own.
	write, read, console := startRole(t, "127.0.0.2", "write"), startRole(t, "127.0.0.3", "read"), startRole(t, "127.0.0.4", "console")
	api, health := runtest.FreeAddress(t), runtest.FreeAddress(t)
	log := &runtest.Output{}
	cmd := exec.CommandContext(t.Context(), haproxy, "-db", "-f", filepath.Join("..", "..", "deploy", "helm", "annals", "files", "haproxy.cfg"))
	cmd.Env = append(os.Environ(), "ANNALS_API_BIND="+api, "ANNALS_CONSOLE_BIND="+runtest.FreeAddress(t), "ANNALS_HEALTH_BIND="+health,
		"ANNALS_OPS_PORT="+opsPort, "ANNALS_WRITE="+write, "ANNALS_READ="+read, "ANNALS_CONSOLE="+console)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = readyLimit
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait() // the context of the test ended it
		if t.Failed() {
			t.Logf("the proxy said:\n%s", log.Tail(8<<10))
		}
	})
	eventually(t, "the proxy answers", func() error { return answersOf("http://" + health + "/healthz") })
	eventually(t, "it found a process to write", func() error { return answersOf("http://" + api + "/api/v1/ingest") })
	for _, r := range auth.Routes() {
		want := "read"
		if r.Writes() {
			want = "write"
		}
		path := strings.ReplaceAll(r.Path, ":", "")
		req, err := http.NewRequestWithContext(t.Context(), r.Method, "http://"+api+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil || string(got) != want {
			t.Errorf("%s %s is answered by %q, want %s: %v", r.Method, path, got, want, err)
		}
	}
}

// opsPort is the port of the health checks.
const opsPort = "19090"

// startRole starts a process of a role that is ready, and returns its address.
func startRole(t *testing.T, host, name string) string {
	t.Helper()
	serve := func(addr string, handler http.HandlerFunc) string {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Skipf("this machine has no address %s: %v", host, err)
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler, ReadHeaderTimeout: readyLimit}}
		s.Start()
		t.Cleanup(s.Close)
		return l.Addr().String()
	}
	serve(net.JoinHostPort(host, opsPort), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			http.NotFound(w, r)
		}
	})
	return serve(net.JoinHostPort(host, "0"), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
}

// answersOf fails unless a URL answers 200.
func answersOf(url string) error {
	res, err := http.Get(url)
	if err != nil {
		return err
	}
	if err := res.Body.Close(); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", url, res.StatusCode)
	}
	return nil
}

func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline, tick := time.After(readyLimit), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: not after %s: %v", what, readyLimit, err)
		case <-tick.C:
		}
	}
}
