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

// modules is where make mcp-clients installs the clients.
var modules = filepath.Join("..", "..", "..", "bin", "mcp")

// Each client of npm lists tools, remembers, recalls and forgets: with the key of a project, with one that is bound to
// an identity, and by the consent of a person.
func TestClients(t *testing.T) {
	folder, err := filepath.Abs(modules)
	runtest.Must(t, err)
	if _, err := os.Stat(filepath.Join(folder, "node_modules", "mcp-remote")); err != nil {
		const missing = "the clients of npm are not installed here: make mcp-clients does it"
		if os.Getenv("ANNALS_TEST_MCP_CLIENTS") == "required" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	dir, api, console := filepath.Join(t.TempDir(), "data"), runtest.FreeAddress(t), runtest.FreeAddress(t)
	service, log := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "serve", "--data-dir", dir,
		"--api-addr", api, "--console-addr", console), &runtest.Output{}
	service.Env = append(os.Environ(), "ANNALS_LOG_LEVEL=warn", "ANNALS_POSTGRES="+pgtest.URL(t))
	service.Stdout, service.Stderr = log, log
	runtest.Must(t, service.Start())
	t.Cleanup(func() {
		_ = service.Process.Signal(os.Interrupt)
		if err := service.Wait(); err != nil || t.Failed() {
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
	for _, c := range []npmClient{
		{"sdk", value("ANNALS_PROJECT_KEY"), ""},
		{"client", value("ANNALS_PROJECT_KEY"), "cyd"},
		{"mcp-remote", value("ANNALS_PROJECT_KEY"), "dan"},
		{"sdk", "", ""},
		{"client", "", ""},
	} {
		t.Run(c.id(), func(t *testing.T) { c.run(t, folder, "http://"+console+"/mcp", owner) })
	}
}

// npmClient is a client with what it is configured with: a key, and an identity that it is bound to. Without a key it
// asks a person.
type npmClient struct{ name, key, identity string }

// id is the id of the text that the client sends.
func (c npmClient) id() string {
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
func (c npmClient) run(t *testing.T, folder, address string, owner *webtest.Reader) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	client := exec.CommandContext(ctx, "node", "client.mjs", c.name, folder, address, c.key)
	if c.identity != "" {
		client.Args = append(client.Args, c.identity)
	}
	client.Env = append(os.Environ(), "MCP_REMOTE_CONFIG_DIR="+t.TempDir())
	var problems runtest.Output
	client.Stderr = &problems
	in, err := client.StdinPipe()
	runtest.Must(t, err)
	out, err := client.StdoutPipe()
	runtest.Must(t, err)
	runtest.Must(t, client.Start())
	var got struct {
		Authorize, Text string
		Tools           int
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		got.Authorize = ""
		runtest.Must(t, json.Unmarshal(lines.Bytes(), &got))
		if got.Authorize != "" {
			_, err := fmt.Fprintln(in, consent(t, owner, got.Authorize))
			runtest.Must(t, err)
		}
	}
	if err := client.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, problems.Tail(4<<10))
	}
	by := map[bool]string{true: "ana", false: c.identity}[c.identity == ""]
	if c.key == "" {
		by = "owner@annals.local"
	}
	if want := ", " + by + ": The " + c.id() + " is in the blue tin. [" + c.id() + "]"; got.Tools != 5 ||
		!strings.Contains(got.Text, want) {
		t.Errorf("%+v, want %q", got, want)
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
