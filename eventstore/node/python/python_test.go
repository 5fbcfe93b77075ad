// Package python_test runs the official Python client against "annals node", to check that clients
// in other languages work.
package python_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/eventstore/node/nodetest"
)

// hangLimit bounds the installation and one run of the client, which take seconds unless they hang.
const hangLimit = 5 * time.Minute

func TestOfficialPythonClient(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes and downloads a client")
	}
	python := installClient(t)
	binary := nodetest.Build(t)
	t.Run("insecure", func(t *testing.T) { runClient(t, python, nodetest.Serve(t, binary, "--insecure")) })
	t.Run("TLS", func(t *testing.T) {
		// This client does not decode escapes in a password.
		cert, key, password := nodetest.Files(t, "cert.pem", "open-sesame")
		address := nodetest.Serve(t, binary, "--cert", cert, "--key", key, "--password-file", password)
		runClient(t, python, strings.Replace(address, "esdb://", "esdb://admin:open-sesame@", 1))
	})
}

// demanded reports whether the client is required: then the test fails instead of skipping if it is
// missing.
func demanded() bool { return os.Getenv("CI") == "true" }

// installClient installs the client in a folder of the test, and returns a Python that finds it.
func installClient(t *testing.T) (python string) {
	t.Helper()
	missing := t.Skipf
	if demanded() {
		missing = t.Fatalf
	}
	if _, err := exec.LookPath("python3"); err != nil {
		missing("the Python client is not tested: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangLimit)
	defer cancel()
	venv := filepath.Join(t.TempDir(), "venv")
	if out, err := exec.CommandContext(ctx, "python3", "-m", "venv", venv).CombinedOutput(); err != nil {
		missing("the Python client is not tested, since there is no venv: %v\n%s", err, out)
	}
	python = filepath.Join(venv, "bin", "python")
	pip := exec.CommandContext(ctx, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
		"--no-deps", "--only-binary", ":all:", "--requirement", "requirements.txt")
	if out, err := pip.CombinedOutput(); err != nil {
		missing("the Python client cannot be installed: %v\n%s", err, out)
	}
	return python
}

// ran matches the last line but one of a run that had tests.
var ran = regexp.MustCompile(`(?m)^Ran [1-9][0-9]* tests? in `)

func runClient(t *testing.T, python, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-B", "-m", "unittest", "-v", "streams_test", "log_test", "subscriptions_test")
	cmd.Env = append(os.Environ(), "ANNALS_ADDRESS="+address)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !ran.Match(out) {
		t.Fatalf("the client ran no test:\n%s", out)
	}
}
