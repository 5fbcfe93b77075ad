package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/eventstore/node/clustertest"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/readapi"
)

// binary is the built program.
var binary string

func TestMain(m *testing.M) {
	clustertest.Main()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "annals-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		// Checkpoints come while nothing is to happen: tests that compare logs would see them.
		if err := os.Setenv("ANNALS_AUDIT_SECONDS", "3600"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if binary = os.Getenv("ANNALS_TEST_BINARY"); binary != "" {
			return pgtest.Run(m) // built by who has the modules; this user may not
		}
		binary = filepath.Join(dir, "annals")
		build := exec.Command("go", "build", "-o", binary, "github.com/annals-project/annals/cmd/annals")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s\n%v\n", out, err)
			return 1
		}
		return pgtest.Run(m)
	}())
}

// readyLimit bounds a start and everything else that a test waits for. It catches what hangs, not
// what is slow; budgets are measured elsewhere.
const readyLimit = 5 * time.Minute

// patience is how long a call is repeated that is refused for load, paced by Retry-After.
const patience = 10 * time.Minute

// service is one installation, running or not.
type service struct {
	t    *testing.T
	dir  string
	addr string
	env  []string
	// through is a command that runs the program, nil for none.
	through []string
	cmd     *exec.Cmd
	log     *runtest.Output
	done    chan error
}

// newService makes an installation on a free port; it is stopped when the test ends.
func newService(t *testing.T, env ...string) *service {
	t.Helper()
	s := &service{t: t, dir: filepath.Join(t.TempDir(), "data"), addr: runtest.FreeAddress(t), env: env, log: &runtest.Output{}}
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("the service said:\n%s", s.log.Tail(8<<10))
		}
	})
	return s
}

// sharedPostgres is a setting for a service whose database is not what the test is about: one server
// for all such services saves the start of one for each.
func sharedPostgres(t *testing.T) string { return "ANNALS_POSTGRES=" + pgtest.URL(t) }

// begin starts the process without waiting for it.
func (s *service) begin() {
	s.t.Helper()
	args := append(slices.Clone(s.through), binary, "serve",
		"--data-dir", s.dir, "--api-addr", s.addr, "--console-addr", "127.0.0.1:0")
	s.cmd = exec.Command(args[0], args[1:]...)
	s.cmd.Env = append(append(os.Environ(), "ANNALS_LOG_LEVEL=warn"), s.env...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.done = make(chan error, 1)
	go func(cmd *exec.Cmd, done chan error) { done <- cmd.Wait() }(s.cmd, s.done)
}

// start starts the process and waits until it is ready.
func (s *service) start() {
	s.t.Helper()
	s.begin()
	if err := s.awaitReady(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *service) awaitReady() error {
	deadline := time.After(readyLimit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		said := s.readiness()
		if said == "" {
			return nil
		}
		select {
		case err := <-s.done:
			s.done <- err
			return fmt.Errorf("the service ended: %w\n%s", err, s.log)
		case <-deadline:
			return fmt.Errorf("the service is not ready after %s: %s", readyLimit, said)
		case <-tick.C:
		}
	}
}

// readiness returns why the service is not ready, "" if it is. A ready service may refuse recall
// for a while, since the start does not wait for an index that lags far.
func (s *service) readiness() string {
	res, err := http.Get("http://" + s.addr + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	var ready struct{ Status, RecallElsewhere string }
	if err == nil && res.StatusCode == http.StatusOK {
		err = json.Unmarshal(body, &ready)
	}
	if err != nil || ready.Status != "ready" || ready.RecallElsewhere != "" {
		return fmt.Sprintf("%d %s, %v", res.StatusCode, body, err)
	}
	return ""
}

// kill ends the process as a crash does.
func (s *service) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	<-s.done
	s.cmd = nil
}

// stop asks the process to end and waits for it; one that is not running is fine.
func (s *service) stop() {
	s.t.Helper()
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		<-s.done
		s.cmd = nil
		return
	}
	select {
	case err := <-s.done:
		if err != nil {
			s.t.Errorf("the service ended with %v", err)
		}
	case <-time.After(readyLimit):
		s.t.Errorf("the service has not stopped %s after it was asked to", readyLimit)
		_ = s.cmd.Process.Kill()
		<-s.done
	}
	s.cmd = nil
}

// credentials are the values of the file that the first start writes.
func (s *service) credentials() map[string]string {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "credentials.env"))
	if err != nil {
		s.t.Fatal(err)
	}
	values := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = value
	}
	return values
}

// client is a client with the project key of the first start, management one with the management key.
func (s *service) client(options ...client.Option) *client.Client {
	return s.with(s.credentials()["ANNALS_PROJECT_KEY"], options...)
}

func (s *service) management() *client.Client {
	return s.with(s.credentials()["ANNALS_MANAGEMENT_KEY"])
}

// with returns a client that checks every response against the OpenAPI document, unless the options
// set another transport. It waits for a service that refuses for load, as one on a busy machine may, and not for one
// that is away.
func (s *service) with(key string, options ...client.Option) *client.Client {
	s.t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	s.t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New("http://"+s.addr, key, append([]client.Option{
		client.WithTransport(apitest.Load(s.t, readapi.OpenAPI).Transport(s.t, transport)),
		client.WithTimeout(patience), client.WithConnectWait(0),
	}, options...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// neighbour is a client of another project of the same organization, with the project's slug and the
// id of its key.
func (s *service) neighbour() (c *client.Client, slug, key string) {
	s.t.Helper()
	m := s.management()
	project, err := m.CreateProject(s.t.Context(), client.NewProject{Name: "Next door"})
	runtest.Must(s.t, err)
	created, err := m.CreateProjectKey(s.t.Context(), client.NewProjectKey{Project: project.Slug, Name: "agent"})
	runtest.Must(s.t, err)
	return s.with(created.Key), project.Slug, created.ID
}

// completed waits until a send is completed.
func completed(ctx context.Context, t *testing.T, c *client.Client, id string) {
	t.Helper()
	deadline, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := c.GetIngestion(deadline, id)
		if err != nil {
			t.Fatalf("send %s: %v", id, err)
		}
		switch status.Status {
		case "completed":
			return
		case "failed":
			t.Fatalf("send %s failed: %+v", id, status.Failure)
		}
		select {
		case <-deadline.Done():
			t.Fatalf("send %s is still %s: %+v", id, status.Status, status)
		case <-tick.C:
		}
	}
}
