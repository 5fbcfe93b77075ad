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
	"slices"
	"strings"
	"syscall"
	"time"

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

// PairCmd is "annals-bench pair": it compares the service of the working tree with those of other commits. It
// builds each of them, and starts each on a new folder.
type PairCmd struct {
	Base     []string      `name:"base" required:"" placeholder:"COMMIT" help:"Commits to compare the working tree with, at most 8."`
	Quick    bool          `name:"quick" help:"Small sizes: whether it runs at all, and roughly where it stands."`
	Rounds   int           `name:"rounds" default:"3" help:"Rounds, in each of which every service is measured once, 3 to 99."`
	Passages int           `name:"passages" help:"Texts to recall from, in hundreds: 100 to 1,000,000; default 50,000, with --quick 500."`
	Queries  int           `name:"queries" help:"Recalls of one client, 1 to 100,000; default 500, with --quick 20."`
	For      time.Duration `name:"for" help:"How long a load lasts, at most 5m; default 10s, with --quick 500ms."`
	Rates    []int         `name:"rates" help:"Single sends a second that are offered, each 1 to 20,000; default 1,000 and 2,000, with --quick 1,000."`
	Import   int           `name:"import" help:"Texts to import beside live sends, in thousands: 1,000 to 1,000,000; default 100,000, with --quick 1,000."`
	Wait     time.Duration `name:"wait" default:"15m" help:"Longest wait until everything that was sent can be recalled."`
	JSON     bool          `name:"json" help:"Print one JSON value instead of the table."`
	Output   string        `name:"output" placeholder:"FILE" help:"Write the JSON to this file, too."`
}

// The sizes without flags, and those with --quick.
var (
	fullPair = bench.PairSizes{
		Passages: 50_000, Queries: 500, For: 10 * time.Second, Rates: []int{1000, 2000}, Import: 100_000,
	}
	quickPair = bench.PairSizes{
		Passages: 500, Queries: 20, For: 500 * time.Millisecond, Rates: []int{1000}, Import: 1000,
	}
)

func (c *PairCmd) sizes() bench.PairSizes {
	sizes := fullPair
	if c.Quick {
		sizes = quickPair
	}
	sizes.Rounds, sizes.Passages = c.Rounds, cmp.Or(c.Passages, sizes.Passages)
	sizes.Queries = cmp.Or(c.Queries, sizes.Queries)
	sizes.For, sizes.Import = cmp.Or(c.For, sizes.For), cmp.Or(c.Import, sizes.Import)
	if len(c.Rates) > 0 {
		sizes.Rates = c.Rates
	}
	return sizes
}

// Validate is called by the parser.
func (c *PairCmd) Validate() error {
	s := c.sizes()
	errs := []error{
		within("rounds", s.Rounds, 3, 99), within("passages", s.Passages, 100, 1_000_000),
		within("queries", s.Queries, 1, 100_000), within("import", s.Import, 1000, 1_000_000),
	}
	for _, rate := range s.Rates {
		errs = append(errs, within("rates", rate, 1, 20_000))
	}
	if s.For <= 0 || s.For > 5*time.Minute {
		errs = append(errs, fmt.Errorf("--for is %v: want at most 5m", s.For))
	}
	if len(c.Base) < 1 || len(c.Base) > 8 || len(slices.Compact(slices.Sorted(slices.Values(c.Base)))) != len(c.Base) {
		errs = append(errs, errors.New("--base: want 1 to 8 commits, each once"))
	}
	return errors.Join(errs...)
}

// Run builds and measures. What was measured before a failure is printed, too.
func (c *PairCmd) Run(ctx context.Context, env *Env) error {
	report, err := bench.Pair(ctx, bench.PairOptions{
		PairSizes: c.sizes(), Bases: c.Base, Wait: c.Wait, Progress: env.Stderr,
	})
	if len(report.Rows) == 0 {
		return err
	}
	if c.Output != "" {
		err = errors.Join(err, c.write(report))
	}
	if c.JSON {
		return errors.Join(err, printJSON(env.Stdout, report))
	}
	return errors.Join(err, report.Table(env.Stdout))
}

// write writes the report to a file.
func (c *PairCmd) write(report *bench.PairReport) error {
	file, err := os.Create(c.Output)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return errors.Join(printJSON(file, report), file.Close())
}
