package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
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

const (
	// liveRate is the rate of the single sends of a project next to an import, a second.
	liveRate = 50
	// importClients is how many clients import, and importSize how many texts a batch has.
	importClients = 8
	importSize    = 1000
	// liveUnderWay bounds the single sends of a project that wait for their answer.
	liveUnderWay = 512
)

// bulk imports texts by batches next to single sends of the same project and of another one, which
// last until the import is completed.
func (m *loadRun) bulk(ctx context.Context) error {
	if m.opts.Import == 0 {
		return nil
	}
	to := make([]*client.Client, 2)
	for i, name := range []string{"import", "beside import"} {
		_, key, err := m.newProject(ctx, name)
		if err != nil {
			return err
		}
		if to[i], err = m.onceClient(key); err != nil {
			return err
		}
	}
	besides, err := m.besideImport(ctx, to, m.opts.Import)
	if err != nil {
		return err
	}
	m.importRows(besides.imported, besides.lasted)
	m.liveRows("of the same project", besides.live[0])
	m.liveRows("of another project", besides.live[1])
	return nil
}

// besideImport is the result of an import and of the single sends that come meanwhile.
type besideImport struct {
	imported load.Imported
	// lasted is the time until the import was completed.
	lasted time.Duration
	live   []load.Sends
}

// besideImport imports texts to the first of the projects, and sends single texts to each of them until the import is
// completed. The clients make each call once.
func (m *measurement) besideImport(ctx context.Context, to []*client.Client, texts int) (out besideImport, err error) {
	group, runCtx := errgroup.WithContext(ctx)
	completed := make(chan struct{})
	out.live = make([]load.Sends, len(to))
	for i, one := range to {
		group.Go(func() (err error) {
			out.live[i], err = load.Sustained{
				To: []*client.Client{one}, PerSecond: liveRate, Lasts: time.Hour, Until: completed, UnderWay: liveUnderWay,
				Run: fmt.Sprintf("%s/beside/%d", m.run, i),
			}.Start(runCtx)
			return err
		})
	}
	group.Go(func() (err error) {
		defer close(completed)
		began := time.Now()
		out.imported, err = load.Import{
			To: to[0], Batches: max(texts/importSize, 1), Size: importSize, Clients: importClients, Run: m.run,
		}.Start(runCtx)
		if err != nil {
			return err
		}
		if err = load.AwaitCompleted(runCtx, to[0], out.imported.Sent); err != nil {
			return fmt.Errorf("wait for the import: %w", err)
		}
		out.lasted = time.Since(began)
		return nil
	})
	if err := group.Wait(); err != nil {
		return out, err
	}
	if out.imported.Accepted == 0 {
		return out, errors.New("no batch was accepted: nothing was measured")
	}
	return out, nil
}

// onceClient makes a client that makes each call once.
func (m *measurement) onceClient(key string) (*client.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, liveUnderWay
	return clientOf(m.Manager.BaseURL(), key, client.WithMaxAttempts(1), client.WithTransport(transport))
}

func (m *loadRun) importRows(got load.Imported, lasted time.Duration) {
	texts := humanize.Comma(int64(importSize * (got.Accepted + got.Refused)))
	what := fmt.Sprintf("import of %s texts beside live sends", texts)
	items := float64(importSize * got.Accepted)
	m.row(load.Row{What: what + ", accepted", Value: items / got.Lasted.Seconds(), Unit: "items/s", AtLeast: true})
	m.row(load.Row{What: what + ", completed", Value: items / lasted.Seconds(), Unit: "items/s", AtLeast: true})
	m.row(load.Row{What: what + ", one batch, p50", Value: got.Times.Percentile(0.50), Unit: "ms"})
	m.row(load.Row{What: what + ", refused batches", Value: float64(got.Refused), Unit: "", Must: 1})
}

func (m *loadRun) liveRows(of string, got load.Sends) {
	what := fmt.Sprintf("live sends %s beside the import", of)
	m.row(load.Row{What: what + ", refused", Value: float64(got.Refused), Unit: "", Must: 1})
	if missing := got.Held + got.Unanswered + got.Overdue; missing > 0 {
		m.row(load.Row{What: what + ", not sent, not answered or given up", Value: float64(missing), Unit: "", Must: 1})
	}
	m.row(load.Row{What: what + ", due to receipt, p99", Value: got.Receipts.Percentile(0.99), Unit: "ms"})
	m.row(load.Row{What: what + ", completed, p50", Value: got.Completed.Percentile(0.50), Unit: "ms"})
	m.row(load.Row{What: what + ", completed, p99", Value: got.Completed.Percentile(0.99), Unit: "ms", Must: 2000})
	m.row(load.Row{What: what + ", recalled, p50", Value: got.Recalled.Percentile(0.50), Unit: "ms"})
	m.row(load.Row{What: what + ", recalled, p99", Value: got.Recalled.Percentile(0.99), Unit: "ms", Must: 1000})
}

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
