// Package mcptest runs the conformance suite of the Model Context Protocol against servers of tests.
package mcptest

import (
	"context"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/runtest"
)

// Revisions of the protocol that the suite has requirements of.
var Revisions = []string{"2025-11-25", "2026-07-28"}

// Suite is a command of the suite under its own Node. root is the folder of the project, from that of the test. Without
// what make mcp-clients installs the test is left out. A scenario has time of its own, so limit is for one that hangs.
func Suite(t *testing.T, root string, args ...string) *exec.Cmd {
	t.Helper()
	if testing.Short() {
		t.Skip("the race detector looks at the tests of each tool")
	}
	modules, err := filepath.Abs(filepath.Join(root, "bin", "mcp", "node_modules"))
	runtest.Must(t, err)
	found, err := filepath.Glob(filepath.Join(modules, "node-linux-*", "bin", "node"))
	runtest.Must(t, err)
	suite := filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js")
	if _, err := os.Stat(suite); err != nil || len(found) != 1 {
		const missing = "the conformance suite is not installed here: make mcp-clients does it"
		if os.Getenv("ANNALS_TEST_MCP_CLIENTS") == "required" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, found[0], append([]string{suite}, args...)...)
}

// limit ends a suite that hangs.
const limit = 5 * time.Minute

// Server runs the scenarios that a revision requires of a server. The suite fails on a check that fails and is not in
// the baseline, and on one of the baseline that passes.
func Server(t *testing.T, root, address, revision, baseline string) {
	t.Helper()
	suite := Suite(t, root, "server", "--url", address, "--requirements", revision, "--expected-failures", baseline)
	out, err := suite.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", revision, err, out)
	}
}

// Proxy adds a token to what it passes to a server, since the suite sends none. Both are asked for with each request: a
// server that knows the address of the proxy starts after it.
func Proxy(t *testing.T, token, to func() string) *httptest.Server {
	t.Helper()
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		at, err := url.Parse(to())
		if err != nil {
			t.Error(err)
			return
		}
		r.SetURL(at)
		r.Out.Host = r.In.Host
		r.Out.Header.Set("Authorization", "Bearer "+token())
	}})
	t.Cleanup(proxy.Close)
	return proxy
}
