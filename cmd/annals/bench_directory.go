package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/annals-project/annals/internal/client"
	"github.com/annals-project/annals/internal/load"
)

// DirectoryCmd is "annals bench directory": what many identities and rules cost. It writes to projects that it makes, and leaves
// them there.
type DirectoryCmd struct {
	Remote
	ManagementKey string        `name:"management-key" setting:"ANNALS_MANAGEMENT_KEY" help:"Management key, which makes the projects; better given by its variable."`
	Own           bool          `name:"own" help:"Start a server of its own on a new folder, and remove it."`
	Identities    int           `name:"identities" default:"100000" help:"Identities of the directory, 1,000 to 1,000,000."`
	Rules         int           `name:"rules" default:"200" help:"Audiences by rules, 1 to 1,000."`
	Passages      int           `name:"passages" default:"20000" help:"Texts to recall from, in thousands: 1,000 to 1,000,000."`
	Puts          int           `name:"puts" default:"1000" help:"Identities to put one by one, 1 to 100,000."`
	Queries       int           `name:"queries" default:"500" help:"Recalls to measure, 1 to 100,000."`
	Wait          time.Duration `name:"wait" default:"15m" help:"Longest wait until what was sent can be recalled."`
	Strict        bool          `name:"strict" help:"Fail where a bound is missed."`
	JSON          bool          `name:"json" help:"Print the rows as one JSON value."`
}

// Validate is called by the parser.
func (c *DirectoryCmd) Validate() error {
	return errors.Join(
		within("identities", c.Identities, 1000, 1_000_000), within("rules", c.Rules, 1, 1000), within("passages", c.Passages, 1000, 1_000_000),
		within("puts", c.Puts, 1, 100_000), within("queries", c.Queries, 1, 100_000))
}

// Run measures, one part after the other.
func (c *DirectoryCmd) Run(ctx context.Context, env *Env) (err error) {
	m := &directoryBench{cmd: c, measurement: measurement{
		cmd: &LoadCmd{Wait: c.Wait}, log: env.Stderr, run: strconv.FormatInt(time.Now().UnixNano(), 36),
	}}
	err = m.serverOf(ctx, &c.Remote, c.ManagementKey, c.Own, func() error {
		_, err := m.own.start(ctx)
		return err
	})
	defer func() { err = m.end(err) }()
	if err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{m.fill, m.rules, m.puts, m.recompute, m.recalls} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return m.report(env.Stdout, c.JSON, c.Strict)
}

// directoryBench is one run of the bench.
type directoryBench struct {
	measurement
	cmd *DirectoryCmd
	// ruled is the project with the rules, plain one with the same texts and identities, and none.
	ruled, plain *client.Client
}

// fill makes the two projects alike.
func (m *directoryBench) fill(ctx context.Context) (err error) {
	if m.ruled, err = m.project(ctx, "rules"); err != nil {
		return err
	}
	if m.plain, err = m.project(ctx, "plain"); err != nil {
		return err
	}
	for _, to := range []*client.Client{m.plain, m.ruled} {
		got, err := load.Identities(ctx, to, m.cmd.Identities)
		if err != nil {
			return err
		}
		if to == m.ruled {
			m.row(load.Row{What: "identities in bulk writes of 1,000", Value: got.PerSecond, Unit: "/s", AtLeast: true})
			m.row(load.Row{What: "one such bulk write, p50", Value: got.Times.Percentile(0.50), Unit: "ms"})
		}
		if _, _, err := load.Batches(ctx, to, m.cmd.Passages/1000, 1000, passageWords, 1, m.run); err != nil {
			return err
		}
		if _, err := m.settle(ctx, to); err != nil {
			return err
		}
	}
	return nil
}

func (m *directoryBench) of() string {
	return fmt.Sprintf("%s identities, %d rules", thousands(int64(m.cmd.Identities)), m.cmd.Rules)
}

func (m *directoryBench) rules(ctx context.Context) error {
	times, err := load.Rules(ctx, m.ruled, m.cmd.Rules)
	if err != nil {
		return err
	}
	m.row(load.Row{What: "PUT of a rule over " + m.of() + ", p50", Value: times.Percentile(0.50), Unit: "ms"})
	m.row(load.Row{What: "PUT of a rule, p99", Value: times.Percentile(0.99), Unit: "ms"})
	return nil
}

func (m *directoryBench) puts(ctx context.Context) error {
	for _, parallel := range []int{1, 8} {
		times, err := load.Puts(ctx, m.ruled, m.cmd.Identities, m.cmd.Puts, parallel)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("PUT of one identity, %s, %s", m.of(), plural(parallel, "client", "clients"))
		bound := 0.0
		if parallel == 1 {
			bound = 50
		}
		m.row(load.Row{What: what + ", p50", Value: times.Percentile(0.50), Unit: "ms"})
		m.row(load.Row{What: what + ", p99", Value: times.Percentile(0.99), Unit: "ms", Must: bound})
	}
	const moves = 25
	if err := load.Follow(ctx, m.ruled, m.run, moves); err != nil {
		return err
	}
	m.row(load.Row{What: "recalls that follow such a PUT at once", Value: 100, Unit: "%", Must: 100, AtLeast: true})
	return nil
}

func (m *directoryBench) recompute(ctx context.Context) error {
	times, err := load.Recomputes(ctx, m.ruled, m.cmd.Rules, 50)
	if err != nil {
		return err
	}
	m.row(load.Row{What: "recompute of a rule, " + m.of() + ", p50", Value: times.Percentile(0.50), Unit: "ms"})
	m.row(load.Row{What: "recompute of a rule, p99", Value: times.Percentile(0.99), Unit: "ms", Must: 2000})
	return nil
}

// recalls asks both projects the same in turns.
func (m *directoryBench) recalls(ctx context.Context) error {
	from, until := load.Window(m.cmd.Passages)
	plain, ruled, err := load.Compare(ctx, m.plain, m.ruled, m.cmd.Identities, m.cmd.Queries, from, until)
	if err != nil {
		return err
	}
	bare := plain.Percentile(0.50)
	what := fmt.Sprintf("recall at %sk passages", thousands(int64(m.cmd.Passages/1000)))
	m.row(load.Row{What: what + " without rules, p50", Value: bare, Unit: "ms"})
	m.row(load.Row{What: what + fmt.Sprintf(" with %d rules, p50", m.cmd.Rules), Value: ruled.Percentile(0.50), Unit: "ms", Must: 1.1 * bare, Bare: bare, BareOf: "without rules"})
	m.row(load.Row{What: what + " without rules, p99", Value: plain.Percentile(0.99), Unit: "ms"})
	m.row(load.Row{What: what + " with rules, p99", Value: ruled.Percentile(0.99), Unit: "ms"})
	return nil
}
