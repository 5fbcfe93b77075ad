package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
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

// Each client of npm lists tools, remembers and recalls with the key of a project.
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
	_, rest, _ := strings.Cut(string(credentials), "ANNALS_PROJECT_KEY=")
	key, _, _ := strings.Cut(rest, "\n")
	for _, name := range []string{"sdk", "client", "mcp-remote"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			client := exec.CommandContext(ctx, "node", "client.mjs", name, folder, "http://"+console+"/mcp",
				strings.Trim(key, `'"`))
			client.Env = append(os.Environ(), "MCP_REMOTE_CONFIG_DIR="+t.TempDir())
			var problems runtest.Output
			client.Stderr = &problems
			out, err := client.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, problems.Tail(4<<10))
			}
			var got struct {
				Tools int
				Text  string
			}
			runtest.Must(t, json.Unmarshal(out, &got))
			if got.Tools != 5 || !strings.Contains(got.Text, ", ana: The "+name+" is in the blue tin.") {
				t.Errorf("%+v", got)
			}
		})
	}
}
