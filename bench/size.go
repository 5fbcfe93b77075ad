package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dustin/go-humanize"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/internal/bench/load"
)

// SizeOptions are the sizes of Size.
type SizeOptions struct {
	// Passages are how many texts the store has, one size after the other, growing.
	Passages []int
	Queries  int
	// Model is the file or folder of the built-in embedding model, as minilm.Install takes it; "" measures
	// recall by words alone.
	Model string
}

// sizes is one run of Size.
type sizes struct {
	measurement
	opts SizeOptions
	to   *client.Client
	held int
	p50  float64
}

// Size writes to the log of a separate server directly, lets the server build everything else from
// it, and measures recall, memory and start as the store grows.
func Size(ctx context.Context, cfg Config, opts SizeOptions) ([]load.Row, error) {
	m := &sizes{measurement: newMeasurement(cfg), opts: opts}
	m.run = "size"
	return m.measure(ctx, m.startServer, m.create, m.grow)
}

// startServer starts the server, with the embedding model if there is one.
func (m *sizes) startServer(ctx context.Context) error {
	m.own.limit = m.Wait
	if m.opts.Model != "" {
		return m.startWithModel(ctx, m.opts.Model)
	}
	return m.startOwn(ctx)
}

// create creates the project and stops the server.
func (m *sizes) create(ctx context.Context) (err error) {
	m.to, err = m.project(ctx, "size")
	return errors.Join(err, m.own.stop())
}

// grow measures one size after the other.
func (m *sizes) grow(ctx context.Context) error {
	for _, size := range m.opts.Passages {
		if err := m.at(ctx, size); err != nil {
			return err
		}
	}
	return nil
}

// at measures one size.
func (m *sizes) at(ctx context.Context, size int) error {
	of := fmt.Sprintf(", %s passages", humanize.Comma(int64(size)))
	began := time.Now()
	if err := m.fill(ctx, size); err != nil {
		return err
	}
	m.rate("events written a second"+of, size, began)
	began = time.Now()
	if _, err := m.own.start(ctx); err != nil {
		return err
	}
	if _, err := m.awaitSettled(ctx, m.to); err != nil {
		return err
	}
	m.rate("events projected and indexed a second"+of, size, began)
	if err := m.embed(ctx, of, size); err != nil {
		return err
	}
	if err := m.resident(ctx, "memory after that"+of, load.Row{}); err != nil {
		return err
	}
	if err := m.own.stop(); err != nil {
		return err
	}
	if err := m.start(ctx, "start to ready"+of, 5, 2); err != nil {
		return err
	}
	grown := float64(size) / float64(max(m.held, 1))
	m.held = size
	spent, err := m.processor(ctx)
	if err != nil {
		return err
	}
	from, until := load.Window(size)
	times, err := load.Recalls(ctx, m.to, m.opts.Queries, from, until)
	if err != nil {
		return err
	}
	p50, row := times.Percentile(0.50), load.Row{Must: 10}
	switch {
	case size > 100_000:
		row = load.Row{Must: 40, Aim: 20}
	case m.opts.Model != "":
		row = load.Row{Must: 20}
	}
	row.What, row.Value, row.Unit = "recall with three filters, p50"+of, p50, "ms"
	m.row(row)
	m.row(load.Row{What: "recall with three filters, p99" + of, Value: times.Percentile(0.99), Unit: "ms"})
	if m.p50 > 0 {
		what := fmt.Sprintf("recall beside that of a store %.0f times smaller", grown)
		m.row(load.Row{What: what, Value: p50 / m.p50, Unit: "x", Must: 3})
	}
	m.p50 = p50
	if err := m.spent(ctx, "recall"+of, spent, len(times)); err != nil {
		return err
	}
	if err := m.resident(ctx, "memory without Postgres"+of, load.Row{Must: 1024, Aim: 500}); err != nil {
		return err
	}
	return m.own.stop()
}

// rate reports the events a second since began, while the store grew to size.
func (m *sizes) rate(what string, size int, began time.Time) {
	events := eventsOfText * float64(size-m.held)
	m.row(load.Row{What: what, Value: events / time.Since(began).Seconds(), Unit: "/s", AtLeast: true})
}

// embed waits until the texts have vectors, if there is a model.
func (m *sizes) embed(ctx context.Context, of string, size int) error {
	if m.opts.Model == "" {
		return nil
	}
	began := time.Now()
	if err := waitEmbedded(ctx, m.Config); err != nil {
		return err
	}
	perSecond := float64(size-m.held) / time.Since(began).Seconds()
	m.row(load.Row{What: "texts embedded a second" + of, Value: perSecond, Unit: "/s", AtLeast: true})
	return nil
}

// resident reports the memory of the service.
func (m *sizes) resident(ctx context.Context, what string, row load.Row) error {
	bytes, err := m.metric(ctx, "process_resident_memory_bytes")
	row.What, row.Value, row.Unit = what, bytes/(1<<20), "MiB"
	m.row(row)
	return err
}

// eventsOfText is the number of events for each text.
const eventsOfText = 2

// fill writes to the log while the server is stopped.
func (m *sizes) fill(ctx context.Context, size int) (err error) {
	silent := slog.New(slog.DiscardHandler)
	n, err := node.Start(ctx, node.Config{Dir: m.own.logDir(), Logger: silent})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	at := n.Connection()
	store, err := esdb.Open(esdb.Config{
		ConnectionString: at.ConnectionString(), Username: at.Username, Password: at.Password, RootCAs: at.RootCAs,
		Logger: silent, Connections: 4,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		return err
	}
	key, err := hashKey(m.own.dir)
	if err != nil {
		return err
	}
	namespaces := stream.NewNamespaces(key)
	filling := load.Fill{Store: store, Codec: codec, Words: passageWords, Callers: 256}
	recorded, err := store.Read(ctx, stream.Registry, 0, eventstore.Forwards, 100)
	if err != nil {
		return err
	}
	for _, r := range recorded {
		e, err := codec.Decode(r)
		if err != nil {
			return err
		}
		// The last project is the one of this run; every new service begins with another project.
		if created, ok := e.(*registry.ProjectCreated); ok {
			filling.Project = created.ProjectID
			if filling.Namespace, err = namespaces.Of(created.Namespace); err != nil {
				return err
			}
		}
	}
	return filling.Run(ctx, m.held, size)
}
