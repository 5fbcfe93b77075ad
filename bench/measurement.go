// Package bench measures a running server over its API: speed, memory, recall quality, and what one
// tenant notices of the attacks of another. The program is in cmd/annals-bench; the loads, the
// attacks and the data sets, which tests share, are below internal/bench of the service.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"time"

	"github.com/dustin/go-humanize/english"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/internal/scrapetest"
)

// Config names the server that a benchmark measures.
type Config struct {
	// Manager calls the server with its management key. Nil starts a separate server on a new
	// folder, and removes it afterwards.
	Manager *client.Client
	// DataDir is the data folder of the server that Manager calls.
	DataDir string
	// Misses reports that Misses is called after Answer, which then checks first that it can explain.
	Misses bool
	// OneProject reports that Answer sends all dialogues to one project.
	OneProject bool
	// Program is the program of the service: the separate server, and the commands of its operator.
	Program string
	// Wait is the longest wait until everything that was sent can be recalled.
	Wait time.Duration
	// Progress receives a line for each row.
	Progress io.Writer
}

// passageWords is the length of a text to recall from: about 250 bytes.
const passageWords = 40

// shortWords is the length of a short text: about 120 bytes.
const shortWords = 20

// measurement is one run of a benchmark. It writes to projects that it creates, and does not remove
// them.
type measurement struct {
	Config

	// own is the separate server, nil without one.
	own *ownServer
	// run makes the ids of this run unique.
	run  string
	rows []load.Row
}

func newMeasurement(cfg Config) measurement {
	return measurement{Config: cfg, run: strconv.FormatInt(time.Now().UnixNano(), 36)}
}

// measure runs the parts of a benchmark in order and returns their rows. start starts the separate
// server if there is one.
func (m *measurement) measure(
	ctx context.Context, start func(context.Context) error, parts ...func(context.Context) error,
) (rows []load.Row, err error) {
	defer func() { err = m.end(err) }()
	if err := m.begin(ctx, start); err != nil {
		return nil, err
	}
	for _, part := range parts {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	return m.rows, nil
}

// begin starts the separate server if no server is given, and checks that the server responds.
func (m *measurement) begin(ctx context.Context, start func(context.Context) error) (err error) {
	if m.Manager == nil {
		if m.own, err = newOwn(ctx, m.Program); err != nil {
			return err
		}
		m.DataDir = m.own.dir
		if err := start(ctx); err != nil {
			return err
		}
		if m.Manager, err = m.own.management(); err != nil {
			return err
		}
	}
	return answers(ctx, m.Manager)
}

// end removes the separate server. If the run failed, it first shows the end of the server's log.
func (m *measurement) end(failed error) error {
	if m.own == nil {
		return failed
	}
	if failed != nil {
		m.own.showLog(m.Progress)
	}
	return errors.Join(failed, m.own.remove())
}

// answers fails if a server does not answer. One that is not ready, or serves its readiness elsewhere, answers.
func answers(ctx context.Context, server *client.Client) error {
	_, err := server.Ready(ctx)
	if _, answered := errors.AsType[*client.APIError](err); answered {
		return nil
	}
	return err
}

func (m *measurement) row(r load.Row) {
	m.rows = append(m.rows, r)
	_, _ = fmt.Fprintf(m.Progress, "%s: %.1f %s\n", r.What, r.Value, r.Unit)
}

// metric reads a metric of the server.
func (m *measurement) metric(ctx context.Context, series string) (float64, error) {
	return scrapetest.Metric(ctx, m.Manager.BaseURL(), series)
}

// newProject creates a project with a key.
func (m *measurement) newProject(ctx context.Context, name string) (slug, key string, err error) {
	return newProject(ctx, m.Manager, "Load "+name+" "+m.run)
}

func newProject(ctx context.Context, manager *client.Client, name string) (slug, key string, err error) {
	p, err := manager.CreateProject(ctx, client.NewProject{Name: name})
	if err != nil {
		return "", "", fmt.Errorf("create a project: %w", err)
	}
	k, err := manager.CreateProjectKey(ctx, client.NewProjectKey{Project: p.Slug, Name: "bench"})
	if err != nil {
		return "", "", fmt.Errorf("create a key: %w", err)
	}
	return p.Slug, k.Key, nil
}

// project creates a project, and a client that uses it.
func (m *measurement) project(ctx context.Context, name string) (*client.Client, error) {
	_, key, err := m.newProject(ctx, name)
	if err != nil {
		return nil, err
	}
	return clientOf(m.Manager.BaseURL(), key, client.WithTimeout(patience))
}

// patience is how long a call of a load is repeated: a server on a busy machine refuses writes until derivation has
// caught up, and the load then takes longer.
const patience = 10 * time.Minute

// clientOf makes a client that waits for no server that is away. It sends no idempotency keys: the bounds are those of
// the plain call, and a key costs a single ingest a second append.
func clientOf(url, key string, options ...client.Option) (*client.Client, error) {
	c, err := client.New(url, key, append([]client.Option{
		client.WithConnectWait(0), client.WithoutIdempotencyKeys(),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("address of the server: %w", err)
	}
	return c, nil
}

// awaitSettled waits until no send of a project is in progress, so that the loads do not overlap.
func (m *measurement) awaitSettled(ctx context.Context, to *client.Client) (time.Duration, error) {
	began := time.Now()
	receipt, err := to.Ingest(ctx, client.DataPoint{ID: m.run + "/last", Content: "The last text."})
	if err != nil {
		return 0, fmt.Errorf("wait for the server: %w", err)
	}
	err = waitSettled(ctx, to, receipt.IngestionID, m.Wait)
	return time.Since(began), err
}

// waitSettled waits until no send of a project is in progress. It fails if one of them failed.
func waitSettled(ctx context.Context, to *client.Client, ingestion string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	status, err := to.WaitSettled(ctx, ingestion, nil)
	if err == nil && status.Readiness.Failed > 0 {
		err = fmt.Errorf("%s stopped: annals failed lists them", english.Plural(status.Readiness.Failed, "send", "sends"))
	}
	return err
}

// start starts the separate server and reports how long it took until the server was ready.
func (m *measurement) start(ctx context.Context, what string, must, aim float64) error {
	took, err := m.own.start(ctx)
	if err != nil {
		return err
	}
	m.row(load.Row{What: what, Value: took.Seconds(), Unit: "s", Must: must, Aim: aim})
	return nil
}

// startOwn starts the separate server without a row.
func (m *measurement) startOwn(ctx context.Context) error {
	_, err := m.own.start(ctx)
	return err
}

// startWithModel starts the separate server with the built-in embedding model of a file or folder.
func (m *measurement) startWithModel(ctx context.Context, model string) error {
	var installed json.RawMessage
	if err := operate(ctx, m.own.program, m.own.dir, &installed, "embeddings", "install", model); err != nil {
		return fmt.Errorf("install the model: %w", err)
	}
	m.own.flags = append(m.own.flags, "--embeddings", "builtin")
	return m.startOwn(ctx)
}

// management returns a client with the management key of the separate server.
func (s *ownServer) management() (*client.Client, error) {
	keys, err := Credentials(s.dir)
	if err != nil {
		return nil, err
	}
	return clientOf(s.url, keys[managementKeyName])
}

func (s *ownServer) logDir() string { return filepath.Join(s.dir, "log") }
