package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/dustin/go-humanize"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/load"
)

// pairPart is one load of a comparison.
type pairPart struct {
	name    string
	measure func(context.Context) error
}

// The parts that a service may lack, and why.
const (
	partNode   = "sends over annals node"
	partPage   = "a page of the console"
	noConsole  = "it has no console that a person signs in to"
	noPassages = "it was not filled"
)

// The clients and batches of a comparison.
const (
	pairBatch        = 100
	pairBatchClients = 4
	pairRecallers    = 8
	pairSenders      = 32
	pairUnderWay     = 512
	pairPages        = 40
)

// embeddedParts are the loads of a service on its embedded event store.
func (m *pairRun) embeddedParts() []pairPart {
	return []pairPart{
		{"batches and fill", m.fill},
		{"recall by 1 client", m.recallOne},
		{"recall by several clients", m.recallSeveral},
		{partPage, m.page},
		{"sustained sends", m.sustained},
		{"sends in a closed loop", m.closedLoop},
		{"live sends beside an import", m.live},
	}
}

// fill sends the passages in batches, and waits until all of them can be recalled.
func (m *pairRun) fill(ctx context.Context) error {
	slug, key, err := m.newProject(ctx, "fill")
	if err != nil {
		return err
	}
	to, err := clientOf(m.Manager.BaseURL(), key, client.WithTimeout(patience))
	if err != nil {
		return err
	}
	used, err := m.used()
	if err != nil {
		return err
	}
	began := time.Now()
	count := max(m.opts.Passages/pairBatch, 1)
	got, _, err := load.Batches(ctx, to, count, pairBatch, passageWords, pairBatchClients, m.run)
	if err != nil {
		return err
	}
	if _, err = m.awaitSettled(ctx, to); err != nil {
		return err
	}
	m.filled, m.slug = to, slug
	lasted := time.Since(began)
	what := fmt.Sprintf("batches of %d", pairBatch)
	m.value(PairRow{What: what + ", accepted", Unit: "texts/s", More: true}, got.PerSecond)
	m.value(PairRow{What: what + ", p50", Unit: "ms"}, got.Times.Percentile(0.50))
	fill := "fill, accepted to searchable"
	m.value(PairRow{What: fill, Unit: "texts/s", More: true}, float64(count*pairBatch)/lasted.Seconds())
	return m.spent(fill, "a text", used, count*pairBatch)
}

// window returns the time of half of the passages.
func (m *pairRun) window() (from, until time.Time) { return load.Window(m.opts.Passages) }

func (m *pairRun) recallOne(ctx context.Context) error {
	if m.filled == nil {
		return lack(noPassages)
	}
	used, err := m.used()
	if err != nil {
		return err
	}
	from, until := m.window()
	times, err := load.Recalls(ctx, m.filled, m.opts.Queries, from, until)
	if err != nil {
		return err
	}
	m.value(PairRow{What: "recall by words, 1 client, p50", Unit: "ms"}, times.Percentile(0.50))
	m.value(PairRow{What: "recall by words, 1 client, p95", Unit: "ms"}, times.Percentile(0.95))
	return m.spent("recall by words, 1 client", "a recall", used, len(times)+load.WarmRecalls)
}

func (m *pairRun) recallSeveral(ctx context.Context) error {
	if m.filled == nil {
		return lack(noPassages)
	}
	used, err := m.used()
	if err != nil {
		return err
	}
	from, until := m.window()
	got, err := load.RecallsBy(ctx, m.filled, pairRecallers, m.opts.For, from, until)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("recall by words, %d clients", pairRecallers)
	m.value(PairRow{What: what, Unit: "/s", More: true}, got.PerSecond)
	m.value(PairRow{What: what + ", p50", Unit: "ms"}, got.Times.Percentile(0.50))
	return m.spent(what, "a recall", used, len(got.Times))
}

// page reads the list of the passages in the console, as the owner who is signed in.
func (m *pairRun) page(ctx context.Context) error {
	if m.filled == nil {
		return lack(noPassages)
	}
	status, err := m.get(ctx, "/sign-in", nil)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return lack(noConsole)
	}
	session, err := ownerSession(ctx, m.own, m.own.console)
	if err != nil {
		return err
	}
	read := func() error {
		status, err := m.get(ctx, "/p/"+m.slug+"/data", session)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("the page of the data points answers %d", status)
		}
		return err
	}
	if err := read(); err != nil { // the first one compiles its templates
		return err
	}
	used, err := m.used()
	if err != nil {
		return err
	}
	var times load.Times
	for range pairPages {
		began := time.Now()
		if err := read(); err != nil {
			return err
		}
		times = append(times, time.Since(began))
	}
	const what = "console, list of data points, signed in"
	m.value(PairRow{What: what + ", p50", Unit: "ms"}, times.Percentile(0.50))
	return m.spent(what, "a page", used, pairPages)
}

// pageLimit bounds a page of the console in bytes.
const pageLimit = 8 << 20

// get reads a page of the console whole.
func (m *pairRun) get(ctx context.Context, path string, session *http.Cookie) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.own.console+path, nil)
	if err != nil {
		return 0, fmt.Errorf("make request: %w", err)
	}
	if session != nil {
		req.AddCookie(session)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, fmt.Errorf("read a page: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, pageLimit)); err != nil {
		return 0, fmt.Errorf("read a page: %w", err)
	}
	return res.StatusCode, nil
}

// sustained sends at fixed rates, whatever the service takes of that.
func (m *pairRun) sustained(ctx context.Context) error {
	for _, rate := range m.opts.Rates {
		if err := m.steady(ctx, rate); err != nil {
			return err
		}
	}
	return nil
}

func (m *pairRun) steady(ctx context.Context, rate int) error {
	what := fmt.Sprintf("single sends, %s a second offered", humanize.Comma(int64(rate)))
	_, key, err := m.newProject(ctx, fmt.Sprintf("steady %d", rate))
	if err != nil {
		return err
	}
	to, err := m.onceClient(key)
	if err != nil {
		return err
	}
	used, err := m.used()
	if err != nil {
		return err
	}
	got, err := load.Sustained{
		To: []*client.Client{to}, PerSecond: float64(rate), Lasts: m.opts.For, UnderWay: pairUnderWay,
		Run: fmt.Sprintf("%s/steady/%d", m.run, rate), Blind: true,
	}.Start(ctx)
	if err != nil {
		return err
	}
	if got.Acknowledged == 0 {
		return errors.New("no send was acknowledged: nothing was measured")
	}
	offered := got.Made + got.Held
	m.value(PairRow{What: what + ", taken", Unit: "/s", More: true}, float64(got.Acknowledged)/m.opts.For.Seconds())
	m.value(PairRow{What: what + ", not taken", Unit: "%"}, share(offered-got.Acknowledged, offered))
	m.value(PairRow{What: what + ", due to receipt, p50", Unit: "ms"}, got.Receipts.Percentile(0.50))
	patient, err := clientOf(m.Manager.BaseURL(), key, client.WithTimeout(patience)) // the overload may still refuse
	if err != nil {
		return err
	}
	if _, err := m.awaitSettled(ctx, patient); err != nil {
		return err
	}
	return m.spent(what, aSend, used, got.Acknowledged)
}

func (m *pairRun) closedLoop(ctx context.Context) (err error) {
	m.closed, err = m.single(ctx, fmt.Sprintf("single sends, %d clients", pairSenders))
	return err
}

// overNode makes the same load as closedLoop on a service over annals node.
func (m *pairRun) overNode(ctx context.Context) error {
	rate, err := m.single(ctx, fmt.Sprintf("single sends over annals node, %d clients", pairSenders))
	if err == nil && m.closed > 0 {
		m.value(PairRow{What: "sends over annals node, as a share of embedded", Unit: "x", More: true}, rate/m.closed)
	}
	return err
}

// single sends single texts in a closed loop.
func (m *pairRun) single(ctx context.Context, what string) (rate float64, err error) {
	to, err := m.project(ctx, "closed loop")
	if err != nil {
		return 0, err
	}
	used, err := m.used()
	if err != nil {
		return 0, err
	}
	got, err := load.Single(ctx, to, pairSenders, m.opts.For, m.run)
	if err != nil {
		return 0, err
	}
	m.value(PairRow{What: what, Unit: "/s", More: true}, got.PerSecond)
	m.value(PairRow{What: what + ", p50", Unit: "ms"}, got.Times.Percentile(0.50))
	if _, err = m.awaitSettled(ctx, to); err != nil {
		return 0, err
	}
	return got.PerSecond, m.spent(what, aSend, used, len(got.Times))
}

// live makes live sends during an import of the same project.
func (m *pairRun) live(ctx context.Context) error {
	_, key, err := m.newProject(ctx, "import")
	if err != nil {
		return err
	}
	to, err := m.onceClient(key)
	if err != nil {
		return err
	}
	used, err := m.used()
	if err != nil {
		return err
	}
	got, err := m.besideImport(ctx, []*client.Client{to}, m.opts.Import)
	if err != nil {
		return err
	}
	live, texts := got.live[0], importSize*got.imported.Accepted
	what := fmt.Sprintf("import of %s texts beside live sends", humanize.Comma(int64(m.opts.Import)))
	m.value(PairRow{What: what + ", completed", Unit: "texts/s", More: true}, float64(texts)/got.lasted.Seconds())
	m.value(PairRow{What: what + ", refused batches", Unit: ""}, float64(got.imported.Refused))
	const beside = "live sends beside the import"
	notTaken := live.Made + live.Held - live.Acknowledged
	m.value(PairRow{What: beside + ", not taken", Unit: "%"}, share(notTaken, live.Made+live.Held))
	if len(live.Recalled) > 0 {
		m.value(PairRow{What: beside + ", receipt to recalled, p95", Unit: "ms"}, live.Recalled.Percentile(0.95))
	}
	return m.spent(what, "a text", used, texts)
}

// usedTime is the processor time of the service and of its Postgres so far, in seconds; 0 where the system does not
// show it.
type usedTime struct{ service, postgres float64 }

func (m *pairRun) used() (u usedTime, err error) {
	pid := m.own.process.Process.Pid
	if u.service, err = processorOf("/proc", pid); err != nil {
		return u, err
	}
	u.postgres, err = processorBelow("/proc", pid)
	return u, err
}

// aSend is what the processor time of a send is for.
const aSend = "a send with all that follows"

// spent adds the processor time for each of count operations since before.
func (m *pairRun) spent(what, each string, before usedTime, count int) error {
	after, err := m.used()
	if err != nil || after.service == 0 {
		return err
	}
	of := func(whose string, seconds float64) {
		what := fmt.Sprintf("%s: processor time of %s for %s", what, whose, each)
		m.value(PairRow{What: what, Unit: "µs", Below: true}, 1e6*seconds/float64(count))
	}
	of("the service", after.service-before.service)
	if after.postgres > 0 {
		of("Postgres", after.postgres-before.postgres)
	}
	return nil
}

// listens reports whether something listens on an address.
func listens(ctx context.Context, addr string) bool {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}
