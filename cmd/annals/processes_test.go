package main

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

// deployment is an event store and a database that several processes of the program share, under one clock.
type deployment struct {
	t         *testing.T
	clock     string
	env       []string // of the processes, besides the common variables
	node      string
	database  string
	db        *pgxpool.Pool
	processes []*served
}

// served is one process of a deployment.
type served struct {
	d    *deployment
	dir  string
	addr string
	args []string // more than the common ones
	cmd  *exec.Cmd
	done chan error
	// frozen is true between a SIGSTOP and the SIGCONT after it.
	frozen bool
	said   *runtest.Output
}

const api = "/api/v1"

func newDeployment(t *testing.T, at time.Time, processes int) *deployment {
	t.Helper()
	dir := t.TempDir()
	d := &deployment{t: t, clock: filepath.Join(dir, "clock"), database: pgtest.URL(t)}
	writeClock(t, d.clock, at)
	var err error
	if d.db, err = pg.OpenPool(t.Context(), d.database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.db.Close)
	d.node = startNode(t, "--data-dir", filepath.Join(dir, "node"), "--insecure", "--log-level", "error").address
	for n := range processes {
		s := &served{d: d, dir: filepath.Join(dir, "data"+string(rune('a'+n))), addr: runtest.FreeAddress(t)}
		t.Cleanup(func() {
			s.stop()
			if text := s.said; t.Failed() && text != nil {
				t.Logf("%s said:\n%s", s.dir, text.Tail(6<<10))
			}
		})
		d.processes = append(d.processes, s)
	}
	return d
}

// begin starts the process without waiting for it.
func (s *served) begin() {
	s.d.t.Helper()
	key := base64.StdEncoding.EncodeToString(make([]byte, datafolder.SecretBytes))
	s.cmd = exec.Command(os.Args[0], append([]string{
		"serve", "--data-dir", s.dir, "--api-addr", s.addr, "--console-addr", "127.0.0.1:0",
		"--eventstore", s.d.node, "--postgres", s.d.database, "--log-level", "warn", "--min-free-disk", "0",
	}, s.args...)...)
	s.cmd.Env = append(append(os.Environ(), clockFile+"="+s.d.clock, "ANNALS_HASH_KEY="+key, "ANNALS_SEAL_KEY="+key),
		s.d.env...)
	s.said = &runtest.Output{}
	s.cmd.Stdout, s.cmd.Stderr = s.said, s.said
	if err := s.cmd.Start(); err != nil {
		s.d.t.Fatal(err)
	}
	s.done = make(chan error, 1)
	go func(cmd *exec.Cmd, done chan error) { done <- cmd.Wait() }(s.cmd, s.done)
}

// start starts the process and waits until it is ready.
func (s *served) start() {
	s.d.t.Helper()
	s.begin()
	s.ready()
}

// ready waits until the process is ready.
func (s *served) ready() {
	s.d.t.Helper()
	runtest.Await(s.d.t, "the process is ready", func() bool {
		select {
		case err := <-s.done:
			s.done <- err
			s.d.t.Fatalf("the process ended: %v\n%s", err, s.said)
		default:
		}
		res, err := http.Get("http://" + s.addr + "/readyz")
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	})
}

// running reports whether the process can answer.
func (s *served) running() bool { return s.cmd != nil && !s.frozen }

// kill ends the process as a crash does.
func (s *served) kill() {
	s.d.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.d.t.Fatal(err)
	}
	<-s.done
	s.cmd = nil
}

// stop asks the process to end, where it runs.
func (s *served) stop() {
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		s.d.t.Error(err)
	}
	if err := <-s.done; err != nil {
		s.d.t.Errorf("%s ended with %v", s.dir, err)
	}
	s.cmd = nil
}

// client calls the process with the project key of the first start, once.
func (s *served) client() *client.Client {
	s.d.t.Helper()
	values, err := datafolder.ReadCredentials(s.d.processes[0].dir)
	if err != nil {
		s.d.t.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	s.d.t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New("http://"+s.addr, values[datafolder.ProjectKeyName],
		client.WithMaxAttempts(1), client.WithTransport(transport), client.WithAttemptTimeout(time.Minute))
	if err != nil {
		s.d.t.Fatal(err)
	}
	return c
}

// operate runs an operator's command on the process.
func (s *served) operate(args ...string) {
	s.d.t.Helper()
	var out, failed bytes.Buffer
	noVariable := func(string) string { return "" }
	code := run(s.d.t.Context(), append(args, "--data-dir", s.dir), noVariable, strings.NewReader(""), &out, &failed)
	if code != exitOK {
		s.d.t.Fatalf("annals %s: exit code %d, %s", strings.Join(args, " "), code, failed.String())
	}
}

// Two processes share a database: their calls, webhooks and organizations.
func TestProcesses_Two(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 2)
	for _, s := range d.processes {
		s.start()
	}
	d.logsCalls() // first, since it counts calls
	d.blanksElsewhere()
	w := &webhookTest{deployment: d}
	t.Run("webhooks by commands", w.commands)
	t.Run("webhooks, wrong use", w.wrongUse)
	t.Run("webhooks, limit", w.limit)
	t.Run("webhooks, kill", w.kill)
	d.managesOrganizations() // last, since it replaces keys
}
