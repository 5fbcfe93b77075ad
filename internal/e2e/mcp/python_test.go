package mcp

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// Each client of Python does what those of npm do, in each of the three ways. They are many and slow to install, so
// make soak alone runs them.
func TestClients_Python(t *testing.T) {
	if os.Getenv("ANNALS_TEST_MCP_CLIENTS") != "all" {
		t.Skip("ANNALS_TEST_MCP_CLIENTS is not all: the clients of Python are left out")
	}
	folder, err := filepath.Abs(installed)
	runtest.Must(t, err)
	// One of them needs an older version of what the others need, so it has packages of its own.
	python, older := filepath.Join(folder, "python"), filepath.Join(folder, "langchain")
	for _, packages := range []string{python, older} {
		if _, err := os.Stat(filepath.Join(packages, "requirements.txt")); err != nil {
			t.Skipf("the clients of Python are not installed here: make mcp-clients-python does it (%v)", err)
		}
	}
	s := serve(t)
	for _, c := range []struct{ name, packages string }{
		{"mcp", python}, {"fastmcp", python}, {"openai-agents", python}, {"pydantic-ai", python}, {"langchain", older},
	} {
		command := []string{filepath.Join(c.packages, "bin", "python"), "client.py", c.name}
		for _, way := range []client{{key: s.key}, {key: s.key, identity: "eve"}, {}} {
			way.name, way.command, way.structured = c.name, command, c.name == "pydantic-ai"
			t.Run(way.id(), func(t *testing.T) { way.run(t, s) })
		}
	}
}
