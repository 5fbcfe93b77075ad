package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/annals-project/annals/internal/client"
	"github.com/annals-project/annals/internal/load"
)

// SustainedCmd is "annals bench sustained". It creates the projects that it writes to, and does not
// remove them.
type SustainedCmd struct {
	Remote

	ManagementKey string `name:"management-key" setting:"ANNALS_MANAGEMENT_KEY" help:"Management key; use the variable."`

	Own      bool          `name:"own" help:"Start a separate server on a new folder, and remove it afterwards."`
	Program  string        `name:"program" type:"existingfile" placeholder:"FILE" help:"With --own: annals to measure."`
	Rate     int           `name:"rate" default:"1000" help:"Single sends a second of the steady load, 1 to 20,000."`
	Over     int           `name:"over" default:"0" help:"Sends a second of an overload, at most 20,000; 0: none."`
	For      time.Duration `name:"for" default:"1m" help:"How long each load lasts, at most 1h."`
	Projects int           `name:"projects" default:"1" help:"Projects that receive the sends in turn, 1 to 1,000."`
	UnderWay int           `name:"under-way" default:"512" help:"Sends in flight at most, 1 to 4,096."`
	Burst    time.Duration `name:"burst" default:"5s" help:"Length of a burst at full speed before the loads; 0: none."`
	Passages int           `name:"passages" default:"10000" help:"Texts for the recall part, at most 100,000; 0: none."`
	Rebuild  bool          `name:"rebuild" default:"true" negatable:"" help:"With --own: rebuild all projections last."`
	Wait     time.Duration `name:"wait" default:"15m" help:"Longest wait until every send has ended."`
	Strict   bool          `name:"strict" help:"Fail if a bound is missed."`
	JSON     bool          `name:"json" help:"Print the rows as one JSON value."`
}

// Validate is called by the parser.
func (c *SustainedCmd) Validate() error {
	errs := []error{
		within("rate", c.Rate, 1, 20_000), within("over", c.Over, 0, 20_000), within("projects", c.Projects, 1, 1000),
		within("under-way", c.UnderWay, 1, 4096), within("passages", c.Passages, 0, 100_000),
	}
	if c.For <= 0 || c.For > time.Hour {
		errs = append(errs, fmt.Errorf("--for is %v: want at most 1h", c.For))
	}
	if c.Burst < 0 || c.Burst > 5*time.Minute {
		errs = append(errs, fmt.Errorf("--burst is %v: want 0 to 5m", c.Burst))
	}
	return errors.Join(errs...)
}

// Run runs the measurements one after the other.
func (c *SustainedCmd) Run(ctx context.Context, env *Env) (err error) {
	m := &sustained{cmd: c, measurement: measurement{
		cmd: &LoadCmd{Clients: 32, Wait: c.Wait}, log: env.Stderr, run: strconv.FormatInt(time.Now().UnixNano(), 36),
	}}
	err = m.serverOf(ctx, &c.Remote, c.ManagementKey, c.Own, func() error {
		m.own.self = cmp.Or(c.Program, m.own.self)
		_, err := m.own.start(ctx)
		return err
	})
	defer func() { err = m.end(err) }()
	if err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{m.recalls, m.burst, m.steady, m.beyond, m.rebuild} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return m.report(env.Stdout, c.JSON, c.Strict)
}

// sustained is one run of the bench.
type sustained struct {
	measurement
	cmd *SustainedCmd
	// most is the rate of the burst in sends a second, 0 without a burst.
	most float64
	// sends counts the acknowledged sends of all loads.
	sends int
}

// burst sends at full speed.
func (m *sustained) burst(ctx context.Context) error {
	if m.cmd.Burst == 0 {
		return nil
	}
	to, err := m.project(ctx, "burst")
	if err != nil {
		return err
	}
	got, err := load.Single(ctx, to, m.measurement.cmd.Clients, m.cmd.Burst, m.run)
	if err != nil {
		return err
	}
	m.most, m.sends = got.PerSecond, m.sends+len(got.Times)
	what := fmt.Sprintf("burst of %v, %d clients", m.cmd.Burst, m.measurement.cmd.Clients)
	m.row(load.Row{What: what, Value: got.PerSecond, Unit: "/s", AtLeast: true})
	_, err = m.settle(ctx, to)
	return err
}

// steady measures the load that the server must sustain.
func (m *sustained) steady(ctx context.Context) error {
	of := fmt.Sprintf(" at %s sends a second", thousands(int64(m.cmd.Rate)))
	got, seen, err := m.at(ctx, "steady", of, m.cmd.Rate)
	if err != nil {
		return err
	}
	m.row(load.Row{
		What: "acknowledged a second" + of, Value: float64(got.Acknowledged) / m.cmd.For.Seconds(), Unit: "/s",
		AtLeast: true, Must: 0.99 * float64(m.cmd.Rate), Bare: m.most, BareOf: "burst",
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
	if m.cmd.Over == 0 {
		return nil
	}
	of := fmt.Sprintf(" at %s sends a second, beyond what it keeps up with", thousands(int64(m.cmd.Over)))
	got, seen, err := m.at(ctx, "beyond", of, m.cmd.Over)
	if err != nil {
		return err
	}
	m.row(load.Row{
		What: "acknowledged a second" + of, Value: float64(got.Acknowledged) / m.cmd.For.Seconds(), Unit: "/s",
		AtLeast: true,
	})
	m.row(load.Row{What: "refused" + of, Value: share(got.Refused, got.Made), Unit: "%"})
	m.row(load.Row{What: "refused without Retry-After" + of, Value: float64(got.Untold), Unit: "", Must: 1})
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
		m.row(load.Row{
			What: "oldest open item as the server shows it" + of + ", most", Value: w.oldest, Unit: "s", Must: 60,
		})
	}
	m.row(load.Row{What: "memory of the service" + of + ", after a third", Value: w.residentAt(1. / 3), Unit: "MiB"})
	m.row(load.Row{What: "memory of the service" + of + ", at the end", Value: w.residentAt(1), Unit: "MiB"})
}

func share(part, of int) float64 { return 100 * float64(part) / float64(max(of, 1)) }

// target is a project that receives sends.
type target struct {
	slug string
	// calls makes each call once; asks retries.
	calls, asks *client.Client
	// first is the id of a send that precedes the load.
	first string
}

// targets creates the projects of a load.
func (m *sustained) targets(ctx context.Context, name string) ([]target, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, m.cmd.UnderWay
	list := make([]target, m.cmd.Projects)
	for i := range list {
		slug, key, err := m.newProject(ctx, fmt.Sprintf("%s %d", name, i))
		if err != nil {
			return nil, err
		}
		t := target{slug: slug}
		once := client.Options{Attempts: 1, Transport: transport}
		if t.calls, err = client.New(m.manager.Base(), key, once); err != nil {
			return nil, fmt.Errorf("address of the server: %w", err)
		}
		if t.asks, err = client.New(m.manager.Base(), key, client.Options{}); err != nil {
			return nil, fmt.Errorf("address of the server: %w", err)
		}
		receipt, err := t.asks.Ingest(ctx, client.DataPoint{ID: m.run + "/first", Content: "The first text."}, "")
		if err != nil {
			return nil, fmt.Errorf("first send: %w", err)
		}
		t.first = receipt.IngestionID
		list[i] = t
	}
	return list, m.settled(ctx, list)
}

// settled waits until no send of the projects is in progress.
func (m *sustained) settled(ctx context.Context, list []target) error {
	ctx, cancel := context.WithTimeout(ctx, m.cmd.Wait)
	defer cancel()
	for _, t := range list {
		status, err := t.asks.WaitSettled(ctx, t.first, nil)
		if err == nil && status.Readiness.Failed > 0 {
			err = fmt.Errorf("%s stopped: annals failed lists them", plural(status.Readiness.Failed, "send", "sends"))
		}
		if err != nil {
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
	calls, asks := make([]*client.Client, len(list)), make([]*client.Client, len(list))
	for i, t := range list {
		calls[i], asks[i] = t.calls, t.asks
	}
	before, err := m.cost(ctx)
	if err != nil {
		return load.Sends{}, nil, err
	}
	seen := m.watch(ctx, list)
	got, err := load.Sustained{
		To: calls, PerSecond: float64(rate), Lasts: m.cmd.For, UnderWay: m.cmd.UnderWay, Run: m.run + "/" + name,
	}.Start(ctx)
	if err = errors.Join(err, seen.stop()); err != nil {
		return got, seen, err
	}
	if got.Acknowledged == 0 {
		return got, seen, errors.New("no send was acknowledged: nothing was measured")
	}
	m.sends += got.Acknowledged
	over := time.Now()
	if err := m.settled(ctx, list); err != nil {
		return got, seen, err
	}
	m.row(load.Row{What: "settled after the load" + of, Value: time.Since(over).Seconds(), Unit: "s"})
	if err := m.costs(ctx, of, before, got.Acknowledged); err != nil {
		return got, seen, err
	}
	if got.Held > 0 {
		what := fmt.Sprintf("not sent since %d were under way%s", m.cmd.UnderWay, of)
		m.row(load.Row{What: what, Value: share(got.Held, got.Held+got.Made), Unit: "%"})
	}
	if got.Unanswered > 0 {
		what := fmt.Sprintf("not answered%s: %v", of, got.FirstUnanswered)
		m.row(load.Row{What: what, Value: share(got.Unanswered, got.Made), Unit: "%"})
	}
	if got.Overdue > 0 {
		m.row(load.Row{What: "of the sample, given up" + of, Value: float64(got.Overdue), Unit: "", Must: 1})
	}
	return got, seen, m.kept(ctx, of, list, asks, got)
}

// kept counts acknowledged sends that are missing or not completed.
func (m *sustained) kept(ctx context.Context, of string, list []target, asks []*client.Client, got load.Sends) error {
	projects, err := m.manager.Projects(ctx)
	if err != nil {
		return err
	}
	month := map[string]int64{}
	for _, p := range projects {
		month[p.Slug] = p.MonthIngestions
	}
	var there int64
	for _, t := range list {
		there += month[t.slug] - 1 // the first send
	}
	lost := max(0, float64(got.Acknowledged)-float64(there))
	m.row(load.Row{What: "acknowledged and lost" + of, Value: lost, Unit: "", Must: 1})
	asked, open, err := load.Unfinished(ctx, asks, got.Sent)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("not completed in the end, of %s asked for%s", thousands(int64(asked)), of)
	m.row(load.Row{What: what, Value: float64(open), Unit: "", Must: 1})
	return nil
}
