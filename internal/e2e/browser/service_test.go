package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

// binary is the built program.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "annals-browser-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		defer stopChromium()
		binary = filepath.Join(dir, "annals")
		build := exec.Command("go", "build", "-o", binary, "github.com/annals-project/annals/cmd/annals")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s\n%v\n", out, err)
			return 1
		}
		return pgtest.Run(m)
	}())
}

// service is a running installation, as a first start makes it.
type service struct {
	t   testing.TB
	dir string
	// api and console are its addresses.
	api, console string
	credentials  map[string]string
}

// start starts an installation with settings of its own, and stops it when the test ends.
func start(t testing.TB, env ...string) *service {
	t.Helper()
	dir, log := filepath.Join(t.TempDir(), "data"), &runtest.Output{}
	api, console := runtest.FreeAddress(t), runtest.FreeAddress(t)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "serve",
		"--data-dir", dir, "--api-addr", api, "--console-addr", console)
	cmd.Env = append(append(os.Environ(), "ANNALS_LOG_LEVEL=warn", "ANNALS_POSTGRES="+pgtest.URL(t)), env...)
	cmd.Stdout, cmd.Stderr = log, log
	runtest.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := <-ended; err != nil {
			t.Errorf("the service ended with %v", err)
		}
		if t.Failed() {
			t.Logf("the log of the service:\n%s", log.Tail(8<<10))
		}
	})
	runtest.Await(t, "the service is ready", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the service ended: %v\n%s", err, log)
		default:
		}
		res, err := http.Get("http://" + api + "/readyz")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return &service{
		t: t, dir: dir, api: "http://" + api, console: "http://" + console,
		credentials: readCredentials(t, filepath.Join(dir, "credentials.env")),
	}
}

// readCredentials reads the file that the first start writes.
func readCredentials(t testing.TB, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(file)
	runtest.Must(t, err)
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = value
	}
	return values
}

// client is a client of the API with a key of the credentials file.
func (s *service) client(name string) *client.Client {
	s.t.Helper()
	c, err := client.New(s.api, s.credentials[name])
	runtest.Must(s.t, err)
	return c
}

// annals runs a command of the operator and returns what it printed.
func (s *service) annals(args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), binary, append(args, "--data-dir", s.dir)...)
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		s.t.Fatalf("annals %v: %v\n%s", args, err, failed.Stderr)
	}
	runtest.Must(s.t, err)
	return string(out)
}
