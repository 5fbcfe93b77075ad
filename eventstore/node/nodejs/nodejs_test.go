// Package nodejs_test runs the official Node.js client against "annals node", as a client in another
// language uses it.
package nodejs_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/eventstore/node/nodetest"
)

const (
	clientVersion = "6.2.1"
	// hangLimit bounds one run of the client; it takes seconds unless it hangs.
	hangLimit = 3 * time.Minute
)

func TestOfficialNodeJSClient(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes and may download a client")
	}
	installClient(t)
	binary := nodetest.Build(t)
	t.Run("insecure", func(t *testing.T) {
		address := nodetest.Serve(t, binary, "--insecure")
		runClient(t, address)
	})
	t.Run("TLS", func(t *testing.T) {
		cert, key, password := nodetest.Files(t, "cert.pem", "open sesame")
		address := nodetest.Serve(t, binary, "--cert", cert, "--key", key, "--password-file", password)
		runClient(t, strings.Replace(address, "esdb://", "esdb://admin:open%20sesame@", 1))
	})
}

// demanded reports whether the client must be installed: the test then fails without it.
func demanded() bool { return os.Getenv("CI") == "true" }

// installClient puts the client into node_modules, which git does not see.
func installClient(t *testing.T) {
	t.Helper()
	missing := t.Skipf
	if demanded() {
		missing = t.Fatalf
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			missing("the Node.js client is not tested: %v", err)
		}
	}
	var installed struct{ Version string }
	if text, err := os.ReadFile("node_modules/@eventstore/db-client/package.json"); err == nil {
		if err := json.Unmarshal(text, &installed); err == nil && installed.Version == clientVersion {
			return
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangLimit)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	if out, err := npm.CombinedOutput(); err != nil {
		missing("the Node.js client cannot be installed: %v\n%s", err, out)
	}
}

func runClient(t *testing.T, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--test", "client.test.js")
	cmd.Env = append(os.Environ(), "ANNALS_ADDRESS="+address)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "# fail 0") || strings.Contains(string(out), "# pass 0") {
		t.Fatalf("the client ran no test:\n%s", out)
	}
}
