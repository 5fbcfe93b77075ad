package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/load"
)

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
