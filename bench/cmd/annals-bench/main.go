// Command annals-bench measures a running service, or one that it starts, over its API.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/annals-project/annals/bench"
	client "github.com/annals-project/annals/client"
)

// The exit codes of every command.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// CLI is the grammar of the command line.
type CLI struct {
	BenchCmd
	Service string `name:"service" placeholder:"PATH" help:"Program of the service; default: annals beside this program, or in the PATH."`
}

// Env is what a command uses of its process.
type Env struct {
	Stdout, Stderr io.Writer
	// Service returns the program of the service.
	Service func() (string, error)
}

// exited carries the code of an exit that the parser requested, such as after --help.
type exited int

// run parses args and runs one command. It returns the exit code; a failure is one line on stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	defer func() {
		if r := recover(); r != nil {
			exit, ok := r.(exited)
			if !ok {
				panic(r)
			}
			code = int(exit)
		}
	}()
	var cli CLI
	env := &Env{Stdout: stdout, Stderr: stderr, Service: func() (string, error) { return bench.FindService(cli.Service) }}
	parser, err := kong.New(&cli,
		kong.Name("annals-bench"), kong.Description("Measures a service, against the budgets of the design."),
		kong.Writers(stdout, stderr), kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(env),
	)
	if err != nil {
		return failed(stderr, err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "annals-bench: %v (annals-bench --help lists the commands)\n", err)
		return exitUsage
	}
	if err := command.Run(); err != nil {
		return failed(stderr, err)
	}
	return exitOK
}

func failed(stderr io.Writer, err error) int {
	_, _ = fmt.Fprintf(stderr, "annals-bench: %s\n", strings.Join(strings.Fields(err.Error()), " "))
	return exitFailed
}

// Remote names the server that a command calls. The credentials file of the data folder completes what neither a flag
// nor a variable sets.
type Remote struct {
	DataDir string `name:"data-dir" env:"ANNALS_DATA_DIR" default:"./data" help:"Data folder; its credentials.env holds the address and the keys."`
	URL     string `name:"url" env:"ANNALS_API_URL" help:"Address of the server."`
	Key     string `name:"key" env:"ANNALS_PROJECT_KEY" help:"Project key; use the variable, since other users can see the flags of a process."`
}

// management makes a client with the management key, given or read from the data folder.
func (r *Remote) management(key string) (*client.Client, error) {
	file, err := bench.Credentials(r.DataDir)
	if err != nil {
		return nil, err
	}
	if key = cmp.Or(key, file["ANNALS_MANAGEMENT_KEY"]); key == "" {
		return nil, errors.New("no management key: set ANNALS_MANAGEMENT_KEY, or name with --data-dir the data folder " +
			"of the server (no key in " + r.DataDir + ")")
	}
	return r.client(key, file)
}

func (r *Remote) client(key string, file map[string]string) (*client.Client, error) {
	c, err := client.New(cmp.Or(r.URL, file["ANNALS_API_URL"], "http://127.0.0.1:8080"), key,
		client.WithUserAgent("annals-bench"), client.WithMaxAttempts(6), client.WithConnectWait(0))
	if err != nil {
		return nil, fmt.Errorf("address of the server: %w", err)
	}
	return c, nil
}

// project makes a client with the key of a project, given or read from the data folder.
func (r *Remote) project() (*client.Client, error) {
	file, err := bench.Credentials(r.DataDir)
	if err != nil {
		return nil, err
	}
	key := cmp.Or(r.Key, file["ANNALS_PROJECT_KEY"])
	if key == "" {
		return nil, errors.New("no project key: set ANNALS_PROJECT_KEY, or name with --data-dir the data folder of the " +
			"server")
	}
	return r.client(key, file)
}

// printJSON writes one JSON value and nothing else.
func printJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}
