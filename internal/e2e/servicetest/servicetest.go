// Package servicetest builds the program, and runs it for the tests of the whole.
package servicetest

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

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

// Run builds the program and sets binary to it, runs the tests, ends what several of them share, and returns the code
// to exit with.
func Run(m *testing.M, binary *string, ends ...func() error) (code int) {
	dir, err := os.MkdirTemp("", "annals-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// Who may not read the modules gets it built.
	if *binary = os.Getenv("ANNALS_TEST_BINARY"); *binary == "" {
		*binary = filepath.Join(dir, "annals")
		build := exec.Command("go", "build", "-o", *binary, "github.com/annals-project/annals/cmd/annals")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s\n%v\n", out, err)
			return 1
		}
	}
	code = pgtest.Run(m)
	for _, end := range ends {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// Credentials reads the file that the first start writes into a data folder.
func Credentials(t testing.TB, dir string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "credentials.env"))
	runtest.Must(t, err)
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = value
	}
	return values
}

// Service is a running installation, as a first start makes it.
type Service struct {
	t      testing.TB
	binary string
	Dir    string
	// API and Console are its addresses.
	API, Console string
	Credentials  map[string]string
}

// Start starts an installation with settings of its own, and stops it when the test ends.
func Start(t testing.TB, binary string, env ...string) *Service {
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
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	})
	return &Service{t, binary, dir, "http://" + api, "http://" + console, Credentials(t, dir)}
}

// Annals runs a command of the operator and returns what it printed.
func (s *Service) Annals(args ...string) string {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), s.binary, append(args, "--data-dir", s.Dir)...).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		s.t.Fatalf("annals %v: %v\n%s", args, err, failed.Stderr)
	}
	runtest.Must(s.t, err)
	return string(out)
}
