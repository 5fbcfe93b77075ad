package bench

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/annals-project/annals/internal/bench/load"
)

// LoadOptions are the sizes of Load.
type LoadOptions struct {
	// Bare is a file with the output of go test -bench for the parts below, "" for none.
	Bare     string
	Clients  int
	For      time.Duration
	Batches  int
	Passages int
	Queries  int
	// Import is how many texts are imported during single sends, 0 to leave that out.
	Import int
}

// loadRun is one run of Load.
type loadRun struct {
	measurement
	opts LoadOptions
	bare load.Bare
	// rate is the rate of single sends a second.
	rate float64
}

// Load measures ingest, recall and start, one load after the other.
func Load(ctx context.Context, cfg Config, opts LoadOptions) ([]load.Row, error) {
	m := &loadRun{measurement: newMeasurement(cfg), opts: opts}
	if opts.Bare != "" {
		if err := m.readBare(); err != nil {
			return nil, err
		}
	}
	start := func(ctx context.Context) error { return m.start(ctx, "start to ready, empty", 3, 1) }
	return m.measure(ctx, start, m.single, m.webhooks, m.searchable, m.batches, m.bulk, m.recall, m.again)
}

func (m *loadRun) readBare() error {
	f, err := os.Open(m.opts.Bare)
	if err != nil {
		return fmt.Errorf("open benchmarks: %w", err)
	}
	defer func() { _ = f.Close() }()
	m.bare, err = load.ReadBare(f)
	return err
}

// again starts the separate server once more on everything that the loads stored.
func (m *loadRun) again(ctx context.Context) error {
	if m.own == nil {
		return nil
	}
	if err := m.own.stop(); err != nil {
		return err
	}
	return m.start(ctx, fmt.Sprintf("start to ready, %s passages", humanize.Comma(int64(m.opts.Passages))), 5, 2)
}

// appends returns how many appends the embedded event store has received, 0 if the server uses another.
func (m *loadRun) appends(ctx context.Context) (float64, error) {
	return m.metric(ctx, "annals_node_appends_total")
}

func (m *loadRun) single(ctx context.Context) error {
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
	got, err := load.Single(ctx, to, m.opts.Clients, m.opts.For, m.run)
	if err != nil {
		return err
	}
	after, err := m.appends(ctx)
	if err != nil {
		return err
	}
	m.rate = got.PerSecond
	what := fmt.Sprintf("single ingest, %d clients", m.opts.Clients)
	m.row(load.Row{
		What: what, Value: got.PerSecond, Unit: "/s", Must: 1500, AtLeast: true,
		Bare: m.bare.Appends, BareOf: "bare node",
	})
	if after > before {
		// A send is more than one append: its attempt, its memory and its end follow.
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
	last, err := m.awaitSettled(ctx, to)
	if err != nil {
		return err
	}
	m.row(load.Row{What: "derivation behind single ingest", Value: last.Seconds(), Unit: "s"})
	return m.spent(ctx, what+" with derivation", spent, len(got.Times))
}

func (m *loadRun) searchable(ctx context.Context) error {
	to, err := m.project(ctx, "searchable")
	if err != nil {
		return err
	}
	times, err := load.Searchable(ctx, to, m.rate/2, m.opts.For, 400, m.run)
	if err != nil {
		return err
	}
	m.row(load.Row{What: "accepted to searchable at half that load, p50", Value: times.Percentile(0.50), Unit: "ms"})
	m.row(load.Row{
		What: "accepted to searchable at half that load, p99", Value: times.Percentile(0.99), Unit: "ms", Must: 1000,
		Aim: 250,
	})
	_, err = m.awaitSettled(ctx, to)
	return err
}

func (m *loadRun) batches(ctx context.Context) error {
	to, err := m.project(ctx, "batches")
	if err != nil {
		return err
	}
	spent, err := m.processor(ctx)
	if err != nil {
		return err
	}
	got, _, err := load.Batches(ctx, to, m.opts.Batches, 1000, 20, 4, m.run)
	if err != nil {
		return err
	}
	m.row(load.Row{
		What: "batches of 1,000 short texts", Value: got.PerSecond, Unit: "items/s", Must: 5000, AtLeast: true, Aim: 15000,
	})
	m.row(load.Row{What: "one such batch, p50", Value: got.Times.Percentile(0.50), Unit: "ms"})
	if err := m.spent(ctx, "item of a batch until the last receipt", spent, 1000*m.opts.Batches); err != nil {
		return err
	}
	last, err := m.awaitSettled(ctx, to)
	if err != nil {
		return err
	}
	m.row(load.Row{What: "derivation behind batches", Value: last.Seconds(), Unit: "s"})
	return m.spent(ctx, "item of a batch with derivation", spent, 1000*m.opts.Batches)
}

func (m *loadRun) recall(ctx context.Context) error {
	to, err := m.project(ctx, "recall")
	if err != nil {
		return err
	}
	count := m.opts.Passages / 1000
	if _, _, err = load.Batches(ctx, to, count, 1000, passageWords, 2, m.run); err != nil {
		return err
	}
	if _, err = m.awaitSettled(ctx, to); err != nil {
		return err
	}
	spent, err := m.processor(ctx)
	if err != nil {
		return err
	}
	from, until := load.Window(count * 1000)
	times, err := load.Recalls(ctx, to, m.opts.Queries, from, until)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("recall at %sk passages, three filters", humanize.Comma(int64(count)))
	m.row(load.Row{
		What: what + ", p50", Value: times.Percentile(0.50), Unit: "ms", Must: 10,
		Aim: 1.5 * m.bare.Query, Bare: m.bare.Query, BareOf: "bare engine",
	})
	m.row(load.Row{What: what + ", p99", Value: times.Percentile(0.99), Unit: "ms", Must: 40})
	return m.spent(ctx, "recall", spent, len(times))
}
