package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/internal/client"
	"github.com/annals-project/annals/internal/load"
)

// SizeCmd is "annals bench size": it fills the log of a server of its own directly, lets the server build everything else from
// it, and measures how recall, memory and start hold up as the store grows.
type SizeCmd struct {
	Remote  `kong:"-"`
	Sizes   []int         `name:"passages" default:"100000,1000000" help:"How many texts, one size after the other, growing, each 1,000 to 2,000,000."`
	Queries int           `name:"queries" default:"500" help:"Recalls to measure, 1 to 100,000."`
	Wait    time.Duration `name:"wait" default:"60m" help:"Longest wait until what was written can be recalled."`
	Strict  bool          `name:"strict" help:"Fail where a bound is missed."`
	JSON    bool          `name:"json" help:"Print the rows as one JSON value."`
}

// Validate is called by the parser.
func (c *SizeCmd) Validate() error {
	last := 999
	for _, size := range c.Sizes {
		if size <= last || size > 2_000_000 {
			return fmt.Errorf("--passages has %d: want growing numbers from 1000 to 2000000", size)
		}
		last = size
	}
	if c.Queries < 1 || c.Queries > 100_000 {
		return fmt.Errorf("--queries is %d: want 1 to 100000", c.Queries)
	}
	return nil
}

// Run measures one size after the other.
func (c *SizeCmd) Run(ctx context.Context, env *Env) (err error) {
	own, err := newOwn(ctx)
	if err != nil {
		return err
	}
	own.limit = c.Wait
	c.DataDir, c.URL = own.dir, own.url
	m := &sizes{cmd: c, measurement: measurement{cmd: &LoadCmd{Wait: c.Wait, Queries: c.Queries}, own: own, log: env.Stderr, run: "size"}}
	defer func() { err = m.end(err) }()
	if err := m.begin(ctx); err != nil {
		return err
	}
	for _, size := range c.Sizes {
		if err := m.measure(ctx, size); err != nil {
			return err
		}
	}
	return m.report(env.Stdout, c.JSON, c.Strict)
}

// sizes is one run of the bench.
type sizes struct {
	measurement
	cmd  *SizeCmd
	to   *client.Client
	held int
	p50  float64
}

// begin makes a project.
func (m *sizes) begin(ctx context.Context) error {
	if _, err := m.own.start(ctx); err != nil {
		return err
	}
	var err error
	if m.manager, err = m.cmd.management(""); err != nil {
		return err
	}
	m.to, err = m.project(ctx, "size")
	return errors.Join(err, m.own.stop())
}

func (m *sizes) measure(ctx context.Context, size int) error {
	of := fmt.Sprintf(", %s passages", thousands(int64(size)))
	began := time.Now()
	if err := m.fill(ctx, size); err != nil {
		return err
	}
	m.row(load.Row{What: "events written a second" + of, Value: eventsOfText * float64(size-m.held) / time.Since(began).Seconds(), Unit: "/s", AtLeast: true})
	began = time.Now()
	if _, err := m.own.start(ctx); err != nil {
		return err
	}
	if _, err := m.settle(ctx, m.to); err != nil {
		return err
	}
	m.row(load.Row{What: "events projected and indexed a second" + of, Value: eventsOfText * float64(size-m.held) / time.Since(began).Seconds(), Unit: "/s", AtLeast: true})
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
	times, err := load.Recalls(ctx, m.to, m.cmd.Queries, from, until)
	if err != nil {
		return err
	}
	p50, row := times.Percentile(0.50), load.Row{Must: 10}
	if size > 100_000 {
		row = load.Row{Must: 40, Aim: 20}
	}
	row.What, row.Value, row.Unit = "recall with three filters, p50"+of, p50, "ms"
	m.row(row)
	m.row(load.Row{What: "recall with three filters, p99" + of, Value: times.Percentile(0.99), Unit: "ms"})
	if m.p50 > 0 {
		m.row(load.Row{What: fmt.Sprintf("recall beside that of a store %.0f times smaller", grown), Value: p50 / m.p50, Unit: "x", Must: 3})
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

// resident adds a row of the memory that the service has.
func (m *sizes) resident(ctx context.Context, what string, row load.Row) error {
	bytes, err := m.manager.Metric(ctx, "process_resident_memory_bytes")
	row.What, row.Value, row.Unit = what, bytes/(1<<20), "MiB"
	m.row(row)
	return err
}

// eventsOfText is how many events there are of each text.
const eventsOfText = 2

// fill writes to the log while the server is stopped.
func (m *sizes) fill(ctx context.Context, size int) (err error) {
	silent := slog.New(slog.DiscardHandler)
	n, err := node.Start(ctx, node.Config{Dir: filepath.Join(m.own.dir, "log"), Logger: silent})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	store, err := esdb.Open(connectTo(n, esdb.Config{Logger: silent, Connections: connections}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		return err
	}
	key, err := readHashKey(&Settings{DataDir: m.own.dir})
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
		// The last project is the one that was made here; the first is that of every new service.
		if created, ok := e.(*registry.ProjectCreated); ok {
			filling.Project = created.ProjectID
			if filling.Namespace, err = namespaces.Of(created.Namespace); err != nil {
				return err
			}
		}
	}
	return filling.Run(ctx, m.held, size)
}
