package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/annals-project/annals/bench"
)

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
