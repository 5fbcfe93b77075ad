package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/eventstore/node/clustertest"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/e2e/servicetest"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/readapi"
)

// binary is the built program.
var binary string

func TestMain(m *testing.M) {
	clustertest.Main()
	// Checkpoints come while nothing is to happen: tests that compare logs would see them.
	if err := os.Setenv("ANNALS_AUDIT_SECONDS", "3600"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(servicetest.Run(m, &binary, worked.end, documented.end))
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
	t.Cleanup(s.logIfFailed)
	t.Cleanup(s.stop)
	return s
}

func (s *service) logIfFailed() {
	if s.t.Failed() {
		s.t.Logf("the service said:\n%s", s.log.Tail(8<<10))
	}
}

// common is a service of several tests, in projects of their own. The first of them starts it, and the end of the
// package stops it.
type common struct {
	once sync.Once
	s    *service
}

// worked is of tests that work, documented of those that type what the pages print, which load would disturb.
var worked, documented common

// of returns the service for a test.
func (c *common) of(t *testing.T) *service {
	t.Helper()
	c.once.Do(func() {
		dir, err := os.MkdirTemp("", "annals-e2e-") //nolint:usetesting // it outlives the test
		runtest.Must(t, err)
		s := &service{t: t, dir: filepath.Join(dir, "data"), addr: runtest.FreeAddress(t), log: &runtest.Output{}}
		s.start()
		c.s = s
	})
	if c.s == nil {
		t.Fatal("the service of several tests did not start")
	}
	s := *c.s
	s.t = t
	t.Cleanup(s.logIfFailed)
	return &s
}

// end stops the service, if it was started, and removes its data.
func (c *common) end() error {
	if c.s == nil {
		return nil
	}
	err := errors.Join(c.s.cmd.Process.Signal(os.Interrupt), <-c.s.done)
	return errors.Join(err, os.RemoveAll(filepath.Dir(c.s.dir)))
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
	runtest.Must(s.t, s.cmd.Start())
	s.done = make(chan error, 1)
	go func(cmd *exec.Cmd, done chan error) { done <- cmd.Wait() }(s.cmd, s.done)
}

// start starts the process and waits until it is ready.
func (s *service) start() {
	s.t.Helper()
	s.begin()
	runtest.Must(s.t, s.awaitReady())
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
	runtest.Must(s.t, s.cmd.Process.Kill())
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
	return servicetest.Credentials(s.t, s.dir)
}

// command is a command of the operator on the data folder.
func (s *service) command(args ...string) *exec.Cmd {
	return exec.CommandContext(s.t.Context(), binary, append(args, "--data-dir", s.dir)...)
}

// try runs a command, and returns all that it prints.
func (s *service) try(args ...string) (string, error) {
	out, err := s.command(args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// annals runs a command that succeeds, and returns its output.
func (s *service) annals(args ...string) string {
	s.t.Helper()
	out, err := s.command(args...).Output()
	if failed, is := errors.AsType[*exec.ExitError](err); is {
		s.t.Fatalf("annals %s: %v\n%s%s", strings.Join(args, " "), err, out, failed.Stderr)
	}
	runtest.Must(s.t, err)
	return string(out)
}

// decoded runs a command that succeeds, and decodes its JSON.
func (s *service) decoded(into any, args ...string) {
	s.t.Helper()
	runtest.Must(s.t, json.Unmarshal([]byte(s.annals(append(args, "--json")...)), into))
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
	runtest.Must(s.t, err)
	return c
}

// project is a project, with a client and the key of it.
type project struct {
	*client.Client
	slug, key, keyID string
}

// project makes another project of the organization.
func (s *service) project(name string) project {
	s.t.Helper()
	m := s.management()
	made, err := m.CreateProject(s.t.Context(), client.NewProject{Name: name})
	runtest.Must(s.t, err)
	key, err := m.CreateProjectKey(s.t.Context(), client.NewProjectKey{Project: made.Slug, Name: "agent"})
	runtest.Must(s.t, err)
	return project{s.with(key.Key), made.Slug, key.Key, key.ID}
}

// store sends a data point, and waits until it is derived.
func store(t *testing.T, c *client.Client, p client.DataPoint) (send string) {
	t.Helper()
	r, err := c.Ingest(t.Context(), p)
	runtest.Must(t, err)
	completed(t.Context(), t, c, r.IngestionID)
	return r.IngestionID
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

// TestSources looks at every file that the program is built of. The program is built by a process
// of its own, of which the cache of test results knows nothing: by this it knows that a result is
// old once one of them changes.
func TestSources(t *testing.T) {
	found := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (name == "bin" || name == "testdata" || strings.HasPrefix(name, ".") && name != "..") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "go.") ||
			strings.HasSuffix(name, ".sql") {
			found[filepath.ToSlash(path)] = true
			_, err = os.Stat(path)
		}
		return err
	})
	runtest.Must(t, err)
	for _, name := range []string{"go.mod", "cmd/annals/main.go", "domain/catalog.go", "projections/access/schema.sql"} {
		if !found["../../"+name] {
			t.Errorf("%s is not among the %d files", name, len(found))
		}
	}
}
