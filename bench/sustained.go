package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/projections/runner"
)

// SustainedOptions are the loads of Sustained.
type SustainedOptions struct {
	// Rate is the steady load, and Over the overload, in sends a second.
	Rate, Over int
	For        time.Duration
	Projects   int
	UnderWay   int
	Burst      time.Duration
	Passages   int
	Rebuild    bool
}

// sustained is one run of Sustained.
type sustained struct {
	measurement
	opts SustainedOptions
	// most is the rate of the burst in sends a second, 0 without a burst.
	most float64
	// sends counts the acknowledged sends of all loads.
	sends int
}

// burstClients is how many clients send the burst.
const burstClients = 32

// Sustained measures a steady load and an overload, one part after the other.
func Sustained(ctx context.Context, cfg Config, opts SustainedOptions) ([]load.Row, error) {
	m := &sustained{measurement: newMeasurement(cfg), opts: opts}
	return m.measure(ctx, m.startOwn, m.recalls, m.burst, m.steady, m.beyond, m.rebuild)
}

// burst sends at full speed.
func (m *sustained) burst(ctx context.Context) error {
	if m.opts.Burst == 0 {
		return nil
	}
	to, err := m.project(ctx, "burst")
	if err != nil {
		return err
	}
	got, err := load.Single(ctx, to, burstClients, m.opts.Burst, m.run)
	if err != nil {
		return err
	}
	m.most, m.sends = got.PerSecond, m.sends+len(got.Times)
	what := fmt.Sprintf("burst of %v, %d clients", m.opts.Burst, burstClients)
	m.row(load.Row{What: what, Value: got.PerSecond, Unit: "/s", AtLeast: true})
	_, err = m.awaitSettled(ctx, to)
	return err
}

// steady measures the load that the server must sustain.
func (m *sustained) steady(ctx context.Context) error {
	of := fmt.Sprintf(" at %s sends a second", humanize.Comma(int64(m.opts.Rate)))
	got, seen, err := m.at(ctx, "steady", of, m.opts.Rate)
	if err != nil {
		return err
	}
	m.row(load.Row{
		What: "acknowledged a second" + of, Value: float64(got.Acknowledged) / m.opts.For.Seconds(), Unit: "/s",
		AtLeast: true, Must: 0.99 * float64(m.opts.Rate), Bare: m.most, BareOf: "burst",
	})
	m.row(load.Row{What: "refused" + of, Value: share(got.Refused, got.Made), Unit: "%"})
	m.times("due to receipt"+of, got.Receipts, 0)
	m.times("accepted to recalled"+of, got.Recalled, 1000)
	m.times("accepted to completed"+of, got.Completed, 2000)
	m.seen(of, seen)
	return nil
}

// beyond measures an overload.
func (m *sustained) beyond(ctx context.Context) error {
	if m.opts.Over == 0 {
		return nil
	}
	of := fmt.Sprintf(" at %s sends a second, beyond what it keeps up with", humanize.Comma(int64(m.opts.Over)))
	got, seen, err := m.at(ctx, "beyond", of, m.opts.Over)
	if err != nil {
		return err
	}
	m.row(load.Row{
		What: "acknowledged a second" + of, Value: float64(got.Acknowledged) / m.opts.For.Seconds(), Unit: "/s",
		AtLeast: true,
	})
	m.row(load.Row{What: "refused" + of, Value: share(got.Refused, got.Made), Unit: "%"})
	m.row(load.Row{What: "refused without Retry-After" + of, Value: float64(got.WithoutWait), Unit: "", Must: 1})
	m.times("due to receipt"+of, got.Receipts, 0)
	m.times("accepted to completed"+of, got.Completed, 0)
	m.row(load.Row{
		What: "accepted to completed, longest" + of, Value: got.Completed.Percentile(1) / 1000, Unit: "s", Must: 60,
	})
	m.seen(of, seen)
	return nil
}

// times reports the median, the 99th percentile and the maximum.
func (m *sustained) times(what string, times load.Times, must float64) {
	m.row(load.Row{What: what + ", p50", Value: times.Percentile(0.50), Unit: "ms"})
	m.row(load.Row{What: what + ", p99", Value: times.Percentile(0.99), Unit: "ms", Must: must})
	m.row(load.Row{What: what + ", longest", Value: times.Percentile(1), Unit: "ms"})
}

// seen reports what was observed during a load.
func (m *sustained) seen(of string, w *watching) {
	m.row(load.Row{What: "sends in progress" + of + ", after a third", Value: w.queueAt(1. / 3), Unit: ""})
	m.row(load.Row{What: "sends in progress" + of + ", at the end", Value: w.queueAt(1), Unit: ""})
	m.row(load.Row{What: "sends in progress" + of + ", most", Value: w.mostQueue(), Unit: ""})
	if w.oldest > 0 {
		m.row(load.Row{What: "oldest open item as the server shows it" + of + ", most", Value: w.oldest, Unit: "s", Must: 60})
	}
	m.row(load.Row{What: "memory of the service" + of + ", after a third", Value: w.residentAt(1. / 3), Unit: "MiB"})
	m.row(load.Row{What: "memory of the service" + of + ", at the end", Value: w.residentAt(1), Unit: "MiB"})
}

func share(part, of int) float64 { return 100 * float64(part) / float64(max(of, 1)) }

// target is a project that receives sends.
type target struct {
	slug string
	// calls makes each call once; retries repeats failed calls.
	calls, retries *client.Client
	// first is the id of a send that precedes the load.
	first string
}

// targets creates the projects of a load.
func (m *sustained) targets(ctx context.Context, name string) ([]target, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, m.opts.UnderWay
	list := make([]target, m.opts.Projects)
	for i := range list {
		slug, key, err := m.newProject(ctx, fmt.Sprintf("%s %d", name, i))
		if err != nil {
			return nil, err
		}
		t := target{slug: slug}
		once := []client.Option{client.WithMaxAttempts(1), client.WithTransport(transport)}
		if t.calls, err = clientOf(m.Manager.BaseURL(), key, once...); err != nil {
			return nil, err
		}
		if t.retries, err = clientOf(m.Manager.BaseURL(), key); err != nil {
			return nil, err
		}
		receipt, err := t.retries.Ingest(ctx, client.DataPoint{ID: m.run + "/first", Content: "The first text."})
		if err != nil {
			return nil, fmt.Errorf("first send: %w", err)
		}
		t.first = receipt.IngestionID
		list[i] = t
	}
	return list, m.awaitAllSettled(ctx, list)
}

// awaitAllSettled waits until no send of the projects is in progress.
func (m *sustained) awaitAllSettled(ctx context.Context, list []target) error {
	for _, t := range list {
		if err := waitSettled(ctx, t.retries, t.first, m.Wait); err != nil {
			return err
		}
	}
	return nil
}

// at runs one load, and reports its cost and whether every send ended.
func (m *sustained) at(ctx context.Context, name, of string, rate int) (load.Sends, *watching, error) {
	list, err := m.targets(ctx, name)
	if err != nil {
		return load.Sends{}, nil, err
	}
	calls, retrying := make([]*client.Client, len(list)), make([]*client.Client, len(list))
	for i, t := range list {
		calls[i], retrying[i] = t.calls, t.retries
	}
	before, err := m.cost(ctx)
	if err != nil {
		return load.Sends{}, nil, err
	}
	seen := m.watch(ctx, list)
	got, err := load.Sustained{
		To: calls, PerSecond: float64(rate), Lasts: m.opts.For, UnderWay: m.opts.UnderWay, Run: m.run + "/" + name,
	}.Start(ctx)
	if err = errors.Join(err, seen.stop()); err != nil {
		return got, seen, err
	}
	if got.Acknowledged == 0 {
		return got, seen, errors.New("no send was acknowledged: nothing was measured")
	}
	m.sends += got.Acknowledged
	over := time.Now()
	if err := m.awaitAllSettled(ctx, list); err != nil {
		return got, seen, err
	}
	m.row(load.Row{What: "settled after the load" + of, Value: time.Since(over).Seconds(), Unit: "s"})
	if err := m.costs(ctx, of, before, got.Acknowledged); err != nil {
		return got, seen, err
	}
	if got.Held > 0 {
		what := fmt.Sprintf("not sent since %d were under way%s", m.opts.UnderWay, of)
		m.row(load.Row{What: what, Value: share(got.Held, got.Held+got.Made), Unit: "%"})
	}
	if got.Unanswered > 0 {
		what := fmt.Sprintf("not answered%s: %v", of, got.FirstUnanswered)
		m.row(load.Row{What: what, Value: share(got.Unanswered, got.Made), Unit: "%"})
	}
	if got.Overdue > 0 {
		m.row(load.Row{What: "of the sample, given up" + of, Value: float64(got.Overdue), Unit: "", Must: 1})
	}
	return got, seen, m.kept(ctx, of, list, retrying, got)
}

// kept counts acknowledged sends that are missing or not completed.
func (m *sustained) kept(
	ctx context.Context, of string, list []target, retrying []*client.Client, got load.Sends,
) error {
	month := map[string]int64{}
	for p, err := range m.Manager.Projects(ctx) {
		if err != nil {
			return err
		}
		month[p.Slug] = p.MonthIngestions
	}
	var there int64
	for _, t := range list {
		there += month[t.slug] - 1 // the first send
	}
	lost := max(0, float64(got.Acknowledged)-float64(there))
	m.row(load.Row{What: "acknowledged and lost" + of, Value: lost, Unit: "", Must: 1})
	asked, open, err := load.Unfinished(ctx, retrying, got.Sent)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("not completed in the end, of %s asked for%s", humanize.Comma(int64(asked)), of)
	m.row(load.Row{What: what, Value: float64(open), Unit: "", Must: 1})
	return nil
}

// watchEvery is the pause between two observations during a load, watchProjects the most projects
// that are observed.
const (
	watchEvery    = 2 * time.Second
	watchProjects = 10
)

// oldestMetrics are the metrics for the age of the oldest open items, in seconds.
var oldestMetrics = []string{`annals_open_age_seconds{for="derivation"}`, `annals_open_age_seconds{for="index"}`}

// watching observes a server during a load.
type watching struct {
	cancel          context.CancelFunc
	done            chan struct{}
	err             error
	queue, resident []float64
	oldest          float64
}

// watch starts observing.
func (m *sustained) watch(ctx context.Context, list []target) *watching {
	ctx, cancel := context.WithCancel(ctx)
	w := &watching{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for began := time.Now(); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := m.observe(ctx, list, w); err != nil {
				if ctx.Err() == nil {
					w.err = fmt.Errorf("observe the server: %w", err)
				}
				return
			}
			last := len(w.queue) - 1
			_, _ = fmt.Fprintf(m.Progress, "after %.0f s: %.0f in progress, %.0f MiB, oldest %.1f s\n",
				time.Since(began).Seconds(), w.queue[last], w.resident[last], w.oldest)
		}
	}()
	return w
}

// stop ends the observation.
func (w *watching) stop() error {
	w.cancel()
	<-w.done
	return w.err
}

// observe reads the state of the server once. If there are many projects, the first ones represent
// all of them.
func (m *sustained) observe(ctx context.Context, list []target, w *watching) error {
	var queue float64
	some := list[:min(len(list), watchProjects)]
	for _, t := range some {
		status, err := t.retries.GetIngestion(ctx, t.first)
		if err != nil {
			return err
		}
		queue += float64(status.Readiness.Raw + status.Readiness.Comprehension + status.Readiness.Consolidation)
	}
	resident, err := m.metric(ctx, "process_resident_memory_bytes")
	if err != nil {
		return err
	}
	for _, metric := range oldestMetrics {
		age, err := m.metric(ctx, metric)
		if err != nil {
			return err
		}
		w.oldest = max(w.oldest, age)
	}
	w.queue = append(w.queue, queue*float64(len(list))/float64(len(some)))
	w.resident = append(w.resident, resident/(1<<20))
	return nil
}

func (w *watching) queueAt(part float64) float64    { return at(w.queue, part) }
func (w *watching) residentAt(part float64) float64 { return at(w.resident, part) }

func (w *watching) mostQueue() (most float64) {
	for _, q := range w.queue {
		most = max(most, q)
	}
	return most
}

// at returns the value observed after a fraction of the load, 0 if there is none.
func at(values []float64, part float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return values[min(int(part*float64(len(values))), len(values)-1)]
}

// cost is what a server has used so far.
type cost struct {
	processor processorTime
	events    float64 // 0 unless the event store is the embedded one
	bytes     int64   // of its log on disk, 0 if that is on another machine
}

func (m *sustained) cost(ctx context.Context) (c cost, err error) {
	if c.processor, err = m.processor(ctx); err != nil {
		return c, err
	}
	if c.events, err = m.metric(ctx, "annals_node_events_total"); err != nil {
		return c, err
	}
	c.bytes, err = folderBytes(filepath.Join(m.DataDir, "log"))
	return c, err
}

// costs reports the cost of each send since before.
func (m *sustained) costs(ctx context.Context, of string, before cost, sends int) error {
	after, err := m.cost(ctx)
	if err != nil {
		return err
	}
	if after.events > before.events {
		events := (after.events - before.events) / float64(sends)
		m.row(load.Row{What: "events of a send" + of, Value: events, Unit: "", Must: 2.5})
	}
	if after.bytes > before.bytes {
		size := float64(after.bytes-before.bytes) / float64(sends)
		m.row(load.Row{What: "bytes of log of a send, on disk" + of, Value: size, Unit: ""})
	}
	return m.spent(ctx, "single send with all that follows"+of, before.processor, sends)
}

// folderBytes sums the sizes of the files of a folder; 0 if there is no folder. Files may disappear
// meanwhile.
func folderBytes(dir string) (sum int64, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("size of the log: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("size of the log: %w", err)
		}
		sum += info.Size()
	}
	return sum, nil
}

// The recalls during sends.
const (
	busyRate = 200
	// busyRounds is how often a quiet and a busy measurement alternate, so that other work of the
	// machine affects both.
	busyRounds  = 4
	busyQueries = 150
)

// recalls measures recall without and with concurrent sends.
func (m *sustained) recalls(ctx context.Context) error {
	if m.opts.Passages == 0 {
		return nil
	}
	to, err := m.project(ctx, "recall")
	if err != nil {
		return err
	}
	count := max(m.opts.Passages/1000, 1)
	if _, _, err = load.Batches(ctx, to, count, 1000, passageWords, 2, m.run); err != nil {
		return err
	}
	if _, err = m.awaitSettled(ctx, to); err != nil {
		return err
	}
	m.sends += 1000 * count
	list, err := m.targets(ctx, "beside recall")
	if err != nil {
		return err
	}
	from, until := load.Window(count * 1000)
	var quiet, busy load.Times
	for round := range busyRounds {
		times, err := load.Recalls(ctx, to, busyQueries, from, until)
		if err != nil {
			return err
		}
		quiet = append(quiet, times...)
		if times, err = m.busyRecalls(ctx, to, list, round, from, until); err != nil {
			return err
		}
		busy = append(busy, times...)
	}
	p50 := quiet.Percentile(0.50)
	m.row(load.Row{What: "recall, quiet, p50", Value: p50, Unit: "ms"})
	m.row(load.Row{
		What: fmt.Sprintf("recall beside %d sends a second, p50", busyRate), Value: busy.Percentile(0.50),
		Unit: "ms", Must: 1.5 * p50, Bare: p50, BareOf: "quiet",
	})
	return nil
}

// busyRecalls measures recall during sends to other projects, and returns once these sends have ended.
func (m *sustained) busyRecalls(
	ctx context.Context, to *client.Client, list []target, round int, from, until time.Time,
) (times load.Times, err error) {
	calls := make([]*client.Client, len(list))
	for i, t := range list {
		calls[i] = t.calls
	}
	group, runCtx := errgroup.WithContext(ctx)
	enough := make(chan struct{})
	group.Go(func() error {
		sends := load.Sustained{
			To: calls, PerSecond: busyRate, Lasts: time.Hour, Until: enough, UnderWay: m.opts.UnderWay,
			Run: fmt.Sprintf("%s/beside/%d", m.run, round), Blind: true,
		}
		got, err := sends.Start(runCtx)
		m.sends += got.Acknowledged
		return err
	})
	group.Go(func() (err error) {
		defer close(enough)
		times, err = load.Recalls(runCtx, to, busyQueries, from, until)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return times, m.awaitAllSettled(ctx, list)
}

// rebuild rebuilds all projections while no server runs.
func (m *sustained) rebuild(ctx context.Context) error {
	if m.own == nil || m.sends == 0 || !m.opts.Rebuild {
		return nil
	}
	if err := m.own.stop(); err != nil {
		return err
	}
	began := time.Now()
	command := exec.CommandContext(ctx, m.own.program, "rebuild", "all", "--json", "--data-dir", m.own.dir)
	rebuilt, used, err := rebuilding(command)
	if err != nil {
		return err
	}
	took := time.Since(began)
	for _, r := range rebuilt {
		m.row(load.Row{What: "rebuild of " + r.Projection, Value: r.Rate(), Unit: "events/s", AtLeast: true})
	}
	scale := 100_000 / float64(m.sends)
	what := fmt.Sprintf("rebuild of all, for each 100,000 sends (of %s)", humanize.Comma(int64(m.sends)))
	m.row(load.Row{What: what, Value: scale * took.Seconds(), Unit: "s"})
	m.row(load.Row{What: what + ", processor time", Value: scale * used.Seconds(), Unit: "s"})
	return nil
}

// rebuilding runs a rebuild of projections, and returns how each one ended and the processor time of the command.
func rebuilding(command *exec.Cmd) (done []runner.RebuildProgress, used time.Duration, err error) {
	output, err := command.Output()
	if err != nil {
		if exit, is := errors.AsType[*exec.ExitError](err); is {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, 0, fmt.Errorf("rebuild: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(output)); lines.Scan(); {
		var r runner.RebuildProgress
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, 0, fmt.Errorf("decode the output of the rebuild: %w", err)
		}
		if r.Done {
			done = append(done, r)
		}
	}
	return done, command.ProcessState.UserTime() + command.ProcessState.SystemTime(), nil
}
