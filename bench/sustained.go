package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dustin/go-humanize"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/load"
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
