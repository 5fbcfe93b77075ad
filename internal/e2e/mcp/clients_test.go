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

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// binary is the built program.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "annals-mcp-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		binary = filepath.Join(dir, "annals")
		build := exec.Command("go", "build", "-o", binary, "github.com/annals-project/annals/cmd/annals")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s\n%v\n", out, err)
			return 1
		}
		return pgtest.Run(m)
	}())
}

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
	dir, api, console := filepath.Join(t.TempDir(), "data"), runtest.FreeAddress(t), runtest.FreeAddress(t)
	process, log := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "serve", "--data-dir", dir,
		"--api-addr", api, "--console-addr", console), &runtest.Output{}
	process.Env = append(os.Environ(), "ANNALS_LOG_LEVEL=warn", "ANNALS_POSTGRES="+pgtest.URL(t))
	process.Stdout, process.Stderr = log, log
	runtest.Must(t, process.Start())
	t.Cleanup(func() {
		_ = process.Process.Signal(os.Interrupt)
		if err := process.Wait(); err != nil || t.Failed() {
			t.Errorf("the service ended with %v\n%s", err, log.Tail(8<<10))
		}
	})
	runtest.Await(t, "the service is ready", func() bool {
		res, err := http.Get("http://" + api + "/readyz")
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	})
	credentials, err := os.ReadFile(filepath.Join(dir, "credentials.env"))
	runtest.Must(t, err)
	value := func(name string) string {
		_, rest, _ := strings.Cut(string(credentials), name+"=")
		text, _, _ := strings.Cut(rest, "\n")
		return strings.Trim(text, `'"`)
	}
	owner := webtest.NewReader(t, "http://"+console)
	owner.Open("/sign-in")
	owner.Submit("Sign in", map[string]string{
		"E-mail address": value("ANNALS_OWNER_EMAIL"), "Password": value("ANNALS_OWNER_PASSWORD"),
	})
	return service{"http://" + console + "/mcp", value("ANNALS_PROJECT_KEY"), owner}
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
