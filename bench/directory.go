package bench

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/load"
)

// DirectoryOptions are the sizes of Directory.
type DirectoryOptions struct {
	Identities int
	Rules      int
	Passages   int
	Puts       int
	Queries    int
}

// directoryRun is one run of Directory.
type directoryRun struct {
	measurement
	opts DirectoryOptions
	// ruled is the project with the rules. plain has the same texts and identities, but no rules.
	ruled, plain *client.Client
}

// Directory measures what many identities and rules cost, one part after the other.
func Directory(ctx context.Context, cfg Config, opts DirectoryOptions) ([]load.Row, error) {
	m := &directoryRun{measurement: newMeasurement(cfg), opts: opts}
	return m.measure(ctx, m.startOwn, m.fill, m.rules, m.puts, m.recompute, m.recalls)
}

// fill creates two projects with the same identities and texts.
func (m *directoryRun) fill(ctx context.Context) (err error) {
	if m.ruled, err = m.project(ctx, "rules"); err != nil {
		return err
	}
	if m.plain, err = m.project(ctx, "plain"); err != nil {
		return err
	}
	for _, to := range []*client.Client{m.plain, m.ruled} {
		got, err := load.Identities(ctx, to, m.opts.Identities)
		if err != nil {
			return err
		}
		if to == m.ruled {
			m.row(load.Row{What: "identities in bulk writes of 1,000", Value: got.PerSecond, Unit: "/s", AtLeast: true})
			m.row(load.Row{What: "one such bulk write, p50", Value: got.Times.Percentile(0.50), Unit: "ms"})
		}
		if _, _, err := load.Batches(ctx, to, m.opts.Passages/1000, 1000, passageWords, 1, m.run); err != nil {
			return err
		}
		if _, err := m.awaitSettled(ctx, to); err != nil {
			return err
		}
	}
	return nil
}

func (m *directoryRun) of() string {
	return fmt.Sprintf("%s identities, %d rules", humanize.Comma(int64(m.opts.Identities)), m.opts.Rules)
}

func (m *directoryRun) rules(ctx context.Context) error {
	times, err := load.Rules(ctx, m.ruled, m.opts.Rules)
	if err != nil {
		return err
	}
	m.row(load.Row{What: "PUT of a rule over " + m.of() + ", p50", Value: times.Percentile(0.50), Unit: "ms"})
	m.row(load.Row{What: "PUT of a rule, p99", Value: times.Percentile(0.99), Unit: "ms"})
	return nil
}

func (m *directoryRun) puts(ctx context.Context) error {
	for _, parallel := range []int{1, 8} {
		times, err := load.Puts(ctx, m.ruled, m.opts.Identities, m.opts.Puts, parallel)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("PUT of one identity, %s, %s", m.of(), english.Plural(parallel, "client", "clients"))
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

func (m *directoryRun) recompute(ctx context.Context) error {
	times, err := load.Recomputes(ctx, m.ruled, m.opts.Rules, 50)
	if err != nil {
		return err
	}
	m.row(load.Row{What: "recompute of a rule, " + m.of() + ", p50", Value: times.Percentile(0.50), Unit: "ms"})
	m.row(load.Row{What: "recompute of a rule, p99", Value: times.Percentile(0.99), Unit: "ms", Must: 2000})
	return nil
}

// recalls sends the same queries to both projects in turn.
func (m *directoryRun) recalls(ctx context.Context) error {
	from, until := load.Window(m.opts.Passages)
	plain, ruled, err := load.Compare(ctx, m.plain, m.ruled, m.opts.Identities, m.opts.Queries, from, until)
	if err != nil {
		return err
	}
	bare := plain.Percentile(0.50)
	what := fmt.Sprintf("recall at %sk passages", humanize.Comma(int64(m.opts.Passages/1000)))
	m.row(load.Row{What: what + " without rules, p50", Value: bare, Unit: "ms"})
	m.row(load.Row{
		What: what + fmt.Sprintf(" with %d rules, p50", m.opts.Rules), Value: ruled.Percentile(0.50), Unit: "ms",
		Must: 1.1 * bare, Bare: bare, BareOf: "without rules",
	})
	m.row(load.Row{What: what + " without rules, p99", Value: plain.Percentile(0.99), Unit: "ms"})
	m.row(load.Row{What: what + " with rules, p99", Value: ruled.Percentile(0.99), Unit: "ms"})
	return nil
}
