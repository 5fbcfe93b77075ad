package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/annals-project/annals/internal/client"
	"github.com/annals-project/annals/internal/load"
)

// LoadCmd is "annals bench load". It writes to projects that it makes, and leaves them there.
type LoadCmd struct {
	Remote
	ManagementKey string        `name:"management-key" setting:"ANNALS_MANAGEMENT_KEY" help:"Management key, which makes the projects; better given by its variable."`
	Own           bool          `name:"own" help:"Start a server of its own on a new folder, measure its start too, and remove it."`
	Bare          string        `name:"bare" placeholder:"FILE" help:"Output of go test -bench of the parts below, for the ratios."`
	Clients       int           `name:"clients" default:"32" help:"Clients that send at once, 1 to 256."`
	For           time.Duration `name:"for" default:"10s" help:"How long a load lasts, at most 5m."`
	Batches       int           `name:"batches" default:"20" help:"Batches of 1,000 short texts, 1 to 1,000."`
	Passages      int           `name:"passages" default:"100000" help:"Texts to recall from, in thousands: 1,000 to 1,000,000."`
	Queries       int           `name:"queries" default:"500" help:"Recalls to measure, 1 to 100,000."`
	Wait          time.Duration `name:"wait" default:"15m" help:"Longest wait until what was sent can be recalled."`
	Strict        bool          `name:"strict" help:"Fail where a bound is missed."`
	JSON          bool          `name:"json" help:"Print the rows as one JSON value."`
}

// Validate is called by the parser.
func (c *LoadCmd) Validate() error {
	errs := []error{
		within("clients", c.Clients, 1, 256), within("batches", c.Batches, 1, 1000),
		within("passages", c.Passages, 1000, 1_000_000), within("queries", c.Queries, 1, 100_000),
	}
	if c.For <= 0 || c.For > 5*time.Minute {
		errs = append(errs, fmt.Errorf("--for is %v: want at most 5m", c.For))
	}
	return errors.Join(errs...)
}

// within refuses the value of a flag that is out of its bounds.
func within(flag string, value, least, most int) error {
	if value < least || value > most {
		return fmt.Errorf("--%s is %d: want %d to %d", flag, value, least, most)
	}
	return nil
}

// passageWords is the length of a text to recall from: about 250 bytes.
const passageWords = 40

// Run measures, one load after the other.
func (c *LoadCmd) Run(ctx context.Context, env *Env) (err error) {
	m := &measurement{cmd: c, log: env.Stderr, run: strconv.FormatInt(time.Now().UnixNano(), 36)}
	if c.Bare != "" {
		if err := m.readBare(); err != nil {
			return err
		}
	}
	err = m.serverOf(ctx, &c.Remote, c.ManagementKey, c.Own, func() error { return m.start(ctx, "start to ready, empty", 3, 1) })
	defer func() { err = m.end(err) }()
	if err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{m.single, m.searchable, m.batches, m.recall, m.again} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return m.report(env.Stdout, c.JSON, c.Strict)
}

// measurement is one run of the bench.
type measurement struct {
	cmd     *LoadCmd
	manager *client.Client
	own     *ownServer
	bare    load.Bare
	log     io.Writer
	// run makes the ids of this run its own.
	run  string
	rate float64
	rows []load.Row
}

// serverOf finds the server that is measured, or begins one of its own on a new folder, which start starts. The end must be called
// whether it fails or not.
func (m *measurement) serverOf(ctx context.Context, at *Remote, managementKey string, own bool, start func() error) (err error) {
	if own {
		if m.own, err = newOwn(ctx); err != nil {
			return err
		}
		at.DataDir, at.URL, at.Key, managementKey = m.own.dir, m.own.url, "", ""
		if err := start(); err != nil {
			return err
		}
	}
	if m.manager, err = at.management(managementKey); err != nil {
		return err
	}
	_, _, err = m.manager.Ready(ctx)
	return err
}

// end removes the own server, whose last words are shown where the run failed.
func (m *measurement) end(failed error) error {
	if m.own == nil {
		return failed
	}
	if failed != nil {
		m.own.lastWords(m.log)
	}
	return errors.Join(failed, m.own.remove())
}

func (m *measurement) readBare() error {
	f, err := os.Open(m.cmd.Bare)
	if err != nil {
		return fmt.Errorf("open benchmarks: %w", err)
	}
	defer func() { _ = f.Close() }()
	m.bare, err = load.ReadBare(f)
	return err
}

func (m *measurement) row(r load.Row) {
	m.rows = append(m.rows, r)
	_, _ = fmt.Fprintf(m.log, "%s: %.1f %s\n", r.What, r.Value, r.Unit)
}

// report prints the rows. Where strict, a bound that is missed is an error.
func (m *measurement) report(w io.Writer, asJSON, strict bool) error {
	var err error
	if asJSON {
		err = printJSON(w, map[string]any{"rows": m.rows})
	} else {
		err = load.Table(w, m.rows)
	}
	if err != nil || !strict {
		return err
	}
	return m.missed()
}

func (m *measurement) missed() error {
	var errs []error
	for _, r := range m.rows {
		if !r.Met() {
			errs = append(errs, fmt.Errorf("%s is %.1f %s", r.What, r.Value, r.Unit))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("bounds are missed: %w", err)
	}
	return nil
}

// newProject makes a project with a key.
func (m *measurement) newProject(ctx context.Context, name string) (slug, key string, err error) {
	p, err := m.manager.CreateProject(ctx, "Load "+name+" "+m.run)
	if err != nil {
		return "", "", fmt.Errorf("make a project: %w", err)
	}
	k, err := m.manager.CreateKey(ctx, p.Slug, "bench")
	if err != nil {
		return "", "", fmt.Errorf("make a key: %w", err)
	}
	return p.Slug, k.Key, nil
}

// project makes a project, and a client that uses it.
func (m *measurement) project(ctx context.Context, name string) (*client.Client, error) {
	_, key, err := m.newProject(ctx, name)
	if err != nil {
		return nil, err
	}
	to, err := client.New(m.manager.Base(), key, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("address of the server: %w", err)
	}
	return to, nil
}

// settle waits until nothing of a project is in progress; the loads must not run into each other.
func (m *measurement) settle(ctx context.Context, to *client.Client) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cmd.Wait)
	defer cancel()
	began := time.Now()
	receipt, err := to.Ingest(ctx, client.DataPoint{ID: m.run + "/last", Content: "The last text."}, "")
	if err != nil {
		return 0, fmt.Errorf("wait for the server: %w", err)
	}
	status, err := to.WaitSettled(ctx, receipt.IngestionID, nil)
	if err == nil && status.Readiness.Failed > 0 {
		err = fmt.Errorf("%s stopped: annals failed lists them", plural(status.Readiness.Failed, "send", "sends"))
	}
	return time.Since(began), err
}

// start starts the own server and says how long it took until it was ready.
func (m *measurement) start(ctx context.Context, what string, must, aim float64) error {
	took, err := m.own.start(ctx)
	if err != nil {
		return err
	}
	m.row(load.Row{What: what, Value: took.Seconds(), Unit: "s", Must: must, Aim: aim})
	return nil
}

// again starts the own server on all that the loads have left.
func (m *measurement) again(ctx context.Context) error {
	if m.own == nil {
		return nil
	}
	if err := m.own.stop(); err != nil {
		return err
	}
	return m.start(ctx, fmt.Sprintf("start to ready, %s passages", thousands(int64(m.cmd.Passages))), 5, 2)
}

// appends is how many appends the embedded event store has taken; 0 where the server's store is another.
func (m *measurement) appends(ctx context.Context) (float64, error) {
	return m.manager.Metric(ctx, `annals_node_total{what="appends"}`)
}

func (m *measurement) single(ctx context.Context) error {
	to, err := m.project(ctx, "single")
	if err != nil {
		return err
	}
	spent, err := m.processor(ctx)
	if err != nil {
		return err
	}
	before, err := m.appends(ctx)
	if err != nil {
		return err
	}
	got, err := load.Single(ctx, to, m.cmd.Clients, m.cmd.For, m.run)
	if err != nil {
		return err
	}
	after, err := m.appends(ctx)
	if err != nil {
		return err
	}
	m.rate = got.PerSecond
	what := fmt.Sprintf("single ingest, %d clients", m.cmd.Clients)
	m.row(load.Row{What: what, Value: got.PerSecond, Unit: "/s", Must: 1500, AtLeast: true, Bare: m.bare.Appends, BareOf: "bare node"})
	if after > before {
		// A send is more than one append: its attempt, its memory and its end are appended behind it.
		m.row(load.Row{
			What: "appends meanwhile, all counted", Value: (after - before) / got.Lasted.Seconds(), Unit: "/s", AtLeast: true,
			Aim: m.bare.Appends / 2, Bare: m.bare.Appends, BareOf: "bare node",
		})
	}
	m.row(load.Row{What: what + ", p50", Value: got.Times.Percentile(0.50), Unit: "ms"})
	m.row(load.Row{What: what + ", p99", Value: got.Times.Percentile(0.99), Unit: "ms", Must: 60})
	if err := m.spent(ctx, what+" until the last receipt", spent, len(got.Times)); err != nil {
		return err
	}
	behind, err := m.settle(ctx, to)
	if err != nil {
		return err
	}
	m.row(load.Row{What: "derivation behind single ingest", Value: behind.Seconds(), Unit: "s"})
	return m.spent(ctx, what+" with derivation", spent, len(got.Times))
}

func (m *measurement) searchable(ctx context.Context) error {
	to, err := m.project(ctx, "searchable")
	if err != nil {
		return err
	}
	times, err := load.Searchable(ctx, to, m.rate/2, m.cmd.For, 400, m.run)
	if err != nil {
		return err
	}
	m.row(load.Row{What: "accepted to searchable at half that load, p50", Value: times.Percentile(0.50), Unit: "ms"})
	m.row(load.Row{What: "accepted to searchable at half that load, p99", Value: times.Percentile(0.99), Unit: "ms", Must: 1000, Aim: 250})
	_, err = m.settle(ctx, to)
	return err
}

func (m *measurement) batches(ctx context.Context) error {
	to, err := m.project(ctx, "batches")
	if err != nil {
		return err
	}
	spent, err := m.processor(ctx)
	if err != nil {
		return err
	}
	got, _, err := load.Batches(ctx, to, m.cmd.Batches, 1000, 20, 4, m.run)
	if err != nil {
		return err
	}
	m.row(load.Row{What: "batches of 1,000 short texts", Value: got.PerSecond, Unit: "items/s", Must: 5000, AtLeast: true, Aim: 15000})
	m.row(load.Row{What: "one such batch, p50", Value: got.Times.Percentile(0.50), Unit: "ms"})
	if err := m.spent(ctx, "item of a batch until the last receipt", spent, 1000*m.cmd.Batches); err != nil {
		return err
	}
	behind, err := m.settle(ctx, to)
	if err != nil {
		return err
	}
	m.row(load.Row{What: "derivation behind batches", Value: behind.Seconds(), Unit: "s"})
	return m.spent(ctx, "item of a batch with derivation", spent, 1000*m.cmd.Batches)
}

func (m *measurement) recall(ctx context.Context) error {
	to, err := m.project(ctx, "recall")
	if err != nil {
		return err
	}
	count := m.cmd.Passages / 1000
	if _, _, err = load.Batches(ctx, to, count, 1000, passageWords, 2, m.run); err != nil {
		return err
	}
	if _, err = m.settle(ctx, to); err != nil {
		return err
	}
	spent, err := m.processor(ctx)
	if err != nil {
		return err
	}
	from, until := load.Window(count * 1000)
	times, err := load.Recalls(ctx, to, m.cmd.Queries, from, until)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("recall at %sk passages, three filters", thousands(int64(count)))
	row := load.Row{What: what + ", p50", Value: times.Percentile(0.50), Unit: "ms", Must: 10, Aim: 1.5 * m.bare.Query, Bare: m.bare.Query, BareOf: "bare engine"}
	m.row(row)
	m.row(load.Row{What: what + ", p99", Value: times.Percentile(0.99), Unit: "ms", Must: 40})
	return m.spent(ctx, "recall", spent, len(times))
}
