package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/bench/load"
)

// AuditOptions are flags: the sizes of Audit.
type AuditOptions struct {
	Passages int           `name:"passages" default:"10000" help:"Texts to recall from, in thousands: 1,000 to 1,000,000."`
	Rate     int           `name:"rate" default:"500" help:"Single sends a second beside the checkpoints, 1 to 20,000."`
	For      time.Duration `name:"for" default:"20s" help:"How long the sends last, at most 1h."`
	Queries  int           `name:"queries" default:"200" help:"Recalls to measure with each setting of reads, 1 to 100,000."`
	Proofs   int           `name:"proofs" default:"100" help:"Proofs to make, 1 to 1,000."`
}

// Validate is called by the parser.
func (o AuditOptions) Validate() error {
	if o.Passages < 1000 || o.Passages > 1_000_000 || o.Rate < 1 || o.Rate > 20_000 || o.For <= 0 || o.For > time.Hour ||
		o.Queries < 1 || o.Queries > 100_000 || o.Proofs < 1 || o.Proofs > 1000 {
		return errors.New("want --passages of 1000 to 1000000, --rate of 1 to 20000, --for of at most 1h, " +
			"--queries of 1 to 100000, and --proofs of 1 to 1000")
	}
	return nil
}

// auditRun is one run of Audit.
type auditRun struct {
	measurement
	opts AuditOptions
	slug string
	to   *client.Client
}

// Audit measures what the audit log costs on a separate server: how far checkpoints lag during sends, how fast the
// trees are built again, how long a proof takes, and what recall costs in a project whose reads are proved.
func Audit(ctx context.Context, cfg Config, opts AuditOptions) ([]load.Row, error) {
	if cfg.Manager != nil {
		return nil, errors.New("annals-bench audit changes settings of the server, so it measures one of its own alone")
	}
	m := &auditRun{measurement: newMeasurement(cfg), opts: opts}
	return m.measure(ctx, m.startOwn, m.fill, m.lag, m.build, m.prove, m.proved)
}

// fill sends the texts to recall from.
func (m *auditRun) fill(ctx context.Context) error {
	slug, key, err := m.newProject(ctx, "audit")
	if err != nil {
		return err
	}
	if m.to, err = clientOf(m.Manager.BaseURL(), key, client.WithTimeout(patience)); err != nil {
		return err
	}
	m.slug = slug
	if _, _, err := load.Batches(ctx, m.to, m.opts.Passages/1000, 1000, passageWords, 2, m.run); err != nil {
		return err
	}
	_, err = m.awaitSettled(ctx, m.to)
	return err
}

// The samples of the lag of checkpoints, and its bound: they are signed every five seconds.
const (
	lagEvery  = 500 * time.Millisecond
	lagBound  = 10
	lagMetric = "annals_audit_checkpoint_lag_seconds"
)

// lag watches how old the oldest event without a checkpoint gets during sends at a fixed rate.
func (m *auditRun) lag(ctx context.Context) error {
	watched, stop := context.WithCancel(ctx)
	defer stop()
	most := make(chan float64, 1)
	go func() {
		var longest float64
		defer func() { most <- longest }()
		tick := time.NewTicker(lagEvery)
		defer tick.Stop()
		for {
			select {
			case <-watched.Done():
				return
			case <-tick.C:
			}
			// A sample that fails is left out: the sends below fail if the server is gone.
			if seconds, err := m.metric(watched, lagMetric); err == nil {
				longest = max(longest, seconds)
			}
		}
	}()
	before, err := m.processor(ctx)
	if err != nil {
		return err
	}
	got, err := load.Sustained{
		To: []*client.Client{m.to}, PerSecond: float64(m.opts.Rate), Lasts: m.opts.For, UnderWay: 512,
		Run: m.run + "/audit", Blind: true,
	}.Start(ctx)
	if err != nil {
		return err
	}
	of := fmt.Sprintf(" at %s sends a second", humanize.Comma(int64(m.opts.Rate)))
	if err := m.spent(ctx, "single sends"+of, before, got.Acknowledged); err != nil {
		return err
	}
	m.row(load.Row{What: "due to receipt" + of + ", p99", Value: got.Receipts.Percentile(0.99), Unit: "ms"})
	stop()
	m.row(load.Row{What: "oldest event without a checkpoint" + of + ", most", Value: <-most, Unit: "s", Must: lagBound})
	_, err = m.awaitSettled(ctx, m.to)
	return err
}

// build builds the trees again while the server runs.
func (m *auditRun) build(ctx context.Context) error {
	command := exec.CommandContext(ctx, m.own.program, "rebuild", "audit", "--json", "--data-dir", m.own.dir)
	rebuilt, _, err := rebuilding(command)
	for _, r := range rebuilt {
		m.row(load.Row{
			What: "trees built again, read from the log", Value: r.Rate(), Unit: "events/s", AtLeast: true, Must: 20_000,
		})
	}
	return err
}

// prove makes proofs of sends, as an auditor with the management key gets them.
func (m *auditRun) prove(ctx context.Context) error {
	keys, err := Credentials(m.own.dir)
	if err != nil {
		return err
	}
	var organizations []struct {
		ID string `json:"id"`
	}
	if err := operate(ctx, m.own.program, m.own.dir, &organizations, "org", "list"); err != nil {
		return err
	}
	ids := make([]string, m.opts.Proofs)
	for i := range ids {
		receipt, err := m.to.Ingest(ctx, client.DataPoint{
			ID: fmt.Sprintf("%s/proved-%d", m.run, i), Content: fmt.Sprintf("Text %d to prove.", i),
		})
		if err != nil {
			return err
		}
		ids[i] = receipt.IngestionID
	}
	if _, err := m.awaitSettled(ctx, m.to); err != nil {
		return err
	}
	var times load.Times
	for _, id := range ids {
		path := "/api/v1/audit/" + organizations[0].ID + "/proofs?project=" + m.slug + "&ingestion=" + id
		took, err := m.proof(ctx, path, keys[managementKeyName])
		if err != nil {
			return err
		}
		times = append(times, took)
	}
	m.row(load.Row{What: "proofs of a send, p50", Value: times.Percentile(0.50), Unit: "ms", Must: 5})
	m.row(load.Row{What: "proofs of a send, p99", Value: times.Percentile(0.99), Unit: "ms"})
	return nil
}

// proof reads the proofs of a send, once a checkpoint covers it.
func (m *auditRun) proof(ctx context.Context, path, key string) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for pause := (backoff.Backoff{First: 100 * time.Millisecond, Longest: time.Second}); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.own.url+path, nil)
		if err != nil {
			return 0, fmt.Errorf("make request: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		began := time.Now()
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return 0, fmt.Errorf("read proofs: %w", err)
		}
		body, err := io.ReadAll(io.LimitReader(res.Body, pageLimit))
		if err = errors.Join(err, res.Body.Close()); err != nil {
			return 0, fmt.Errorf("read proofs: %w", err)
		}
		if res.StatusCode == http.StatusOK {
			return time.Since(began), nil
		}
		if pause.Wait(ctx) != nil {
			return 0, fmt.Errorf("read proofs: status %d: %.300s", res.StatusCode, body)
		}
	}
}

// provedRounds is how often recalls with each setting alternate, so that other work of the machine affects all.
const provedRounds = 4

// proved compares recall with and without proved reads.
func (m *auditRun) proved(ctx context.Context) error {
	session, err := ownerSession(ctx, m.own, m.own.console)
	if err != nil {
		return err
	}
	from, until := load.Window(m.opts.Passages)
	one, several := map[string]load.Times{}, map[string]load.Times{}
	appends := map[int]load.Times{}
	for range provedRounds {
		for _, mode := range []string{"off", "kept", "proved"} {
			if err := m.setReads(ctx, session, mode); err != nil {
				return err
			}
			times, err := load.Recalls(ctx, m.to, max(m.opts.Queries/provedRounds, 1), from, until)
			if err != nil {
				return err
			}
			one[mode] = append(one[mode], times...)
			by, err := load.RecallsBy(ctx, m.to, pairRecallers, time.Second, from, until)
			if err != nil {
				return err
			}
			several[mode] = append(several[mode], by.Times...)
		}
		for _, clients := range []int{1, pairRecallers} {
			times, err := m.appends(ctx, clients)
			if err != nil {
				return err
			}
			appends[clients] = append(appends[clients], times...)
		}
	}
	for _, clients := range []int{1, pairRecallers} {
		what := fmt.Sprintf("re-send of an unchanged text: a call with one append, %s, p50",
			english.Plural(clients, "client", "clients"))
		m.row(load.Row{What: what, Value: appends[clients].Percentile(0.50), Unit: "ms"})
	}
	for _, mode := range []string{"off", "kept", "proved"} {
		m.row(load.Row{What: "recall, reads " + mode + ", 1 client, p50", Value: one[mode].Percentile(0.50), Unit: "ms"})
		what := fmt.Sprintf("recall, reads %s, %d clients, p50", mode, pairRecallers)
		m.row(load.Row{What: what, Value: several[mode].Percentile(0.50), Unit: "ms"})
	}
	return nil
}

// appends times calls that append one event each, from some clients at once.
func (m *auditRun) appends(ctx context.Context, clients int) (load.Times, error) {
	times := make([]load.Times, clients)
	group, ctx := errgroup.WithContext(ctx)
	for c := range clients {
		group.Go(func() error {
			same := client.DataPoint{ID: fmt.Sprintf("%s/same-%d", m.run, c), Content: "The same text again."}
			for i := range max(m.opts.Queries/provedRounds, 1) + 1 {
				began := time.Now()
				if _, err := m.to.Ingest(ctx, same); err != nil {
					return err
				}
				if i > 0 { // the first one may store the text
					times[c] = append(times[c], time.Since(began))
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return slices.Concat(times...), err
}

// setReads sets how the reads of the project are recorded, as its Owner does it in the console.
func (m *auditRun) setReads(ctx context.Context, session *http.Cookie, mode string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	form := url.Values{"mode": {mode}, "days": {"365"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.own.console+"/p/"+m.slug+"/reads/setting",
		strings.NewReader(form.Encode()))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", m.own.console)
	req.AddCookie(session)
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("set reads: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusSeeOther {
		return fmt.Errorf("set reads to %s: status %d", mode, res.StatusCode)
	}
	return nil
}
