package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/e2e/servicetest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// binary is the built program.
var binary string

func TestMain(m *testing.M) { os.Exit(servicetest.Run(m, &binary)) }

// installed is where make mcp-clients and make mcp-clients-python install the clients.
var installed = filepath.Join("..", "..", "..", "bin", "mcp")

// Each client of npm lists tools, remembers, recalls and forgets: with the key of a project, with one that is bound to
// an identity, and by the consent of a person. make soak tries both keys with each.
func TestClients(t *testing.T) {
	folder, err := filepath.Abs(installed)
	runtest.Must(t, err)
	if _, err := os.Stat(filepath.Join(folder, "node_modules", "mcp-remote")); err != nil {
		const missing = "the clients of npm are not installed here: make mcp-clients does it"
		if os.Getenv("ANNALS_TEST_MCP_CLIENTS") == "required" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	s := serve(t)
	clients := []client{
		{name: "sdk", key: s.key},
		{name: "client", key: s.key, identity: "cyd"},
		{name: "mcp-remote", key: s.key, identity: "dan"},
		{name: "sdk"},
		{name: "client"},
	}
	if os.Getenv("ANNALS_TEST_MCP_CLIENTS") == "all" {
		clients = append(clients, client{name: "sdk", key: s.key, identity: "eve"}, client{name: "client", key: s.key},
			client{name: "mcp-remote", key: s.key})
	}
	for _, c := range clients {
		c.command = []string{"node", "client.mjs", c.name, folder}
		t.Run(c.id(), func(t *testing.T) { c.run(t, s) })
	}
}

// service is a running service: the address of /mcp, the key of its project, and its Owner, who is signed in.
type service struct {
	mcp, key string
	owner    *webtest.Reader
}

// serve starts a new service, which ends with the test.
func serve(t *testing.T) service {
	t.Helper()
	running := servicetest.Start(t, binary)
	value := func(name string) string { return strings.Trim(running.Credentials[name], `'"`) }
	owner := webtest.NewReader(t, running.Console)
	owner.Open("/sign-in")
	owner.Submit("Sign in", map[string]string{
		"E-mail address": value("ANNALS_OWNER_EMAIL"), "Password": value("ANNALS_OWNER_PASSWORD"),
	})
	return service{running.Console + "/mcp", value("ANNALS_PROJECT_KEY"), owner}
}

// client is a client, the command that runs it, and what it is configured with: a key, and an identity that it is bound
// to. Without a key it asks a person. If structured, a model gets from it the structured part of an answer.
type client struct {
	name, key, identity string
	command             []string
	structured          bool
}

// id is the id of the text that the client sends.
func (c client) id() string {
	switch {
	case c.key == "":
		return c.name + "-oauth"
	case c.identity == "":
		return c.name + "-key"
	default:
		return c.name + "-" + c.identity
	}
}

// run runs the client. The owner allows it what it asks for.
func (c client) run(t *testing.T, s service) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	args := append(c.command[1:len(c.command):len(c.command)], s.mcp, c.key)
	if c.identity != "" {
		args = append(args, c.identity)
	}
	program := exec.CommandContext(ctx, c.command[0], args...)
	program.Env = append(os.Environ(), "MCP_REMOTE_CONFIG_DIR="+t.TempDir())
	var problems runtest.Output
	program.Stderr = &problems
	in, err := program.StdinPipe()
	runtest.Must(t, err)
	out, err := program.StdoutPipe()
	runtest.Must(t, err)
	runtest.Must(t, program.Start())
	var got struct {
		Authorize, Text string
		Tools           int
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		got.Authorize = ""
		runtest.Must(t, json.Unmarshal(lines.Bytes(), &got))
		if got.Authorize != "" {
			_, err := fmt.Fprintln(in, consent(t, s.owner, got.Authorize))
			runtest.Must(t, err)
		}
	}
	if err := program.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, problems.Tail(4<<10))
	}
	if want := c.want(); got.Tools != 5 || !strings.Contains(got.Text, want) {
		t.Errorf("%+v, want %q", got, want)
	}
}

// want is what a model must get of the text that the client sent.
func (c client) want() string {
	text := "The " + c.id() + " is in the blue tin."
	switch {
	case c.structured:
		return `"content": "` + text + `"`
	case c.key == "":
		return ", owner@annals.local: " + text + " [" + c.id() + "]"
	case c.identity == "":
		return ", ana: " + text + " [" + c.id() + "]"
	default:
		return ", " + c.identity + ": " + text + " [" + c.id() + "]"
	}
}

// consent allows a client what it asks for, and returns the parameters of the answer.
func consent(t *testing.T, owner *webtest.Reader, authorize string) string {
	t.Helper()
	asked, err := url.Parse(authorize)
	runtest.Must(t, err)
	page := owner.Open(asked.RequestURI())
	place, _ := page.Find("option").First().Attr("value")
	answer := owner.Ask(http.MethodPost, page.URL.RequestURI(), url.Values{"place": {place}, "decision": {"approve"}})
	to, err := url.Parse(answer.Location)
	runtest.Must(t, err)
	return to.RawQuery
}

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
