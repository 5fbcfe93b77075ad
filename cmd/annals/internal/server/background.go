package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/commands/pipeline/model"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/erasures"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/runner"
	"github.com/annals-project/annals/projections/usage/limiter"
)

// preparationEvery is how often a running service looks for organizations whose creation was
// interrupted.
const preparationEvery = 10 * time.Second

// background is the work that no call waits for. Its tasks start once the projections have caught
// up. What the roles of the process do not need is nil.
type background struct {
	worker      *pipeline.Worker // nil also if derivation is switched off
	confirmer   *pipeline.Confirmer
	finisher    *pipeline.Finisher
	embedder    *pipeline.Embedder // nil also without embeddings, or if derivation is switched off
	metering    *commands.Metering
	preparation *preparation
	maintainer  *requestlog.Maintainer

	backpressure *backpressure
	leases       datapoints.Queries
	cfg          Config
}

// backgroundParts is what the background work needs.
type backgroundParts struct {
	cfg          Config
	storage      *storage
	journal      *commands.Journal
	read         *readSide
	write        *writeSide
	index        *localIndex
	backpressure *backpressure
	models       models
	semantic     semantic
	load         *commands.LoadGauge
	failures     *sendFailures
}

func newBackground(p backgroundParts) (*background, error) {
	cfg, has := p.cfg, p.cfg.Roles.parts()
	b := &background{backpressure: p.backpressure, leases: datapoints.Queries{DB: p.storage.work}, cfg: cfg}
	if has.firstStart {
		b.preparation = &preparation{prepare: p.write.prepareOrganizations, every: preparationEvery, logger: cfg.Logger}
	}
	if !has.pipeline {
		return b, nil
	}
	b.confirmer = &pipeline.Confirmer{
		Journal: p.journal, Sends: p.read.work, Progress: p.read.background, IndexErr: p.read.indexErr,
		SendFailed: p.failures.failed, Logger: cfg.Logger, Now: cfg.now,
	}
	b.finisher = newFinisher(p)
	b.maintainer = &requestlog.Maintainer{DB: p.storage.work, Terms: cfg.PlanTerms, Log: cfg.Logger, Now: cfg.now}
	b.metering = &commands.Metering{
		Journal: p.journal, Pending: limiter.PendingCharges{DB: p.storage.work}, Waiter: p.read.background,
		Logger: cfg.Logger, Now: cfg.now,
	}
	if !cfg.Derive {
		return b, nil
	}
	b.worker = &pipeline.Worker{
		LoadGauge: p.load, Age: p.backpressure.age, Journal: p.journal,
		Queue: throttledQueue{p.read.work, p.backpressure}, Progress: p.read.background,
		Pace:      commands.NewBatchPace(p.read.background, cfg.Logger, time.Now),
		Extractor: pipeline.Builtin{}, Logger: cfg.Logger, Holder: uuid.NewString(), Now: cfg.now,
	}
	if cfg.Model.URL != "" {
		var err error
		if b.worker.Extractor, err = model.NewExtractor(cfg.Model); err != nil {
			return nil, err
		}
		b.worker.Slow = true
	}
	if p.semantic.finder != nil {
		b.embedder = &pipeline.Embedder{
			Journal: p.journal, List: embeddings.Queries{DB: p.storage.work}, Progress: p.read.background,
			Vectors: p.semantic.vectors, Live: p.semantic.live, Logger: cfg.Logger, Now: cfg.now,
		}
	}
	return b, nil
}

func newFinisher(p backgroundParts) *pipeline.Finisher {
	cfg, st, waiter := p.cfg, p.storage, p.read.background
	identities := directory.NewQueries(st.work, st.store, waiter, p.read.work, limiter.PendingCharges{DB: st.work})
	calls := &requestlog.Blanker{DB: st.work}
	f := &pipeline.Finisher{
		Journal: p.journal, FanOuts: p.read.work, Identities: identities, Eraser: newEraser(p, identities, calls),
		People:       newPeople(p, calls),
		Reservations: limiter.New(st.work, cfg.PlanTerms, waiter, cfg.Logger),
		Progress:     waiter, Logger: cfg.Logger, Now: cfg.now,
		IsSetAside: func(at eventstore.Position) bool {
			e, is := p.read.runtime.IsSetAside()[at]
			return is && (len(e.Projections) == 0 || slices.Contains(e.Projections, datapoints.Name))
		},
	}
	f.People.Pending = f.Pending
	return f
}

// newPeople makes what erases people. A process without the role write deletes by commands of its own.
func newPeople(p backgroundParts, calls *requestlog.Blanker) *erasure.People {
	people := peopleOf(p.cfg, p.storage, p.read, p.journal)
	people.Calls = calls
	if p.write != nil {
		people.Commands = commands.PersonCommands{Service: p.write.service}
		return people
	}
	people.Commands = commands.PersonCommands{Service: commands.New(commands.Config{
		Journal: p.journal, Waiter: p.read.background, FollowUps: p.read.background, Sends: p.read.work,
		DataPoints: p.read.work, Records: p.read.directory, Directory: p.read.directory, PlanTerms: p.cfg.PlanTerms,
	})}
	return people
}

// peopleOf makes what finds people, begins their erasure and shows its state, in any process.
func peopleOf(cfg Config, st *storage, read *readSide, journal *commands.Journal) *erasure.People {
	return &erasure.People{
		Streams: erasure.Streams{Journal: journal.Journal, Logger: cfg.Logger}, Names: erasures.Names{DB: st.work},
		DataPoints: read.work, Records: read.directory, Authors: journal, Progress: read.background, Now: cfg.now,
	}
}

// newEraser makes the eraser with what it purges from the disk.
func newEraser(
	p backgroundParts, identities *directory.Queries, calls *requestlog.Blanker,
) *erasure.Eraser {
	cfg, st := p.cfg, p.storage
	tables := runner.Vacuum{
		DB: st.work, Others: calls.Tables,
		Projectors: []projections.Projector{
			datapoints.New(nil), memories.New(nil, nil), directory.New(nil, stream.Namespaces{}, nil),
		},
		Leftovers: p.read.runtime.DropLeftovers,
	}
	e := &erasure.Eraser{
		Streams:   erasure.Streams{Journal: p.journal.Journal, Logger: cfg.Logger},
		Deletions: p.read.work, Blobs: p.read.work, Identities: identities,
		Rows: commands.BulkRows{Journal: p.journal, Directory: identities}, Authors: p.journal,
		Calls: calls, Progress: p.read.background, Index: st.index, Store: erasure.Cluster, HasIndex: p.index.isFed,
		Now: cfg.now,
	}
	if p.models.projected {
		e.ExtraProjections = []string{embeddings.Name}
		tables.Projectors = append(tables.Projectors, embeddings.New())
	}
	e.Tables = tables
	if st.node != nil {
		e.Store = st.node
	} else {
		cfg.Logger.Info("the event store is a cluster: cleaned does not wait for its scavenge to purge deleted text")
	}
	return e
}

// tasks returns the tasks of the background work.
func (b *background) tasks() []task {
	var list []task
	if b.maintainer != nil {
		list = append(list, task{"request log maintenance", b.maintainer.Run})
	}
	if b.preparation != nil {
		list = append(list, task{"preparation", b.preparation.run})
	}
	if b.finisher != nil {
		list = append(list,
			task{"confirmer", b.confirmer.Run}, task{"finisher", b.finisher.Run}, task{"metering", b.metering.Run})
	}
	if b.worker != nil {
		list = append(list, task{"pipeline", b.derive})
	}
	if b.embedder != nil {
		list = append(list, task{"embedder", b.embedder.Run})
	}
	return list
}

// derive is the task of the worker. It first ends the leases that earlier processes left.
func (b *background) derive(ctx context.Context) error {
	for {
		err := errors.Join(b.endOldLeases(ctx), b.backpressure.begin(ctx))
		if err == nil {
			return b.worker.Run(ctx)
		}
		b.cfg.Logger.WarnContext(ctx, "ending leases of earlier processes failed, derivation waits, will retry", "err", err)
		if !sleep(ctx, time.Second) {
			return nil
		}
	}
}

// endOldLeases ends the leases of processes that have ended, and removes leases that nothing needs.
func (b *background) endOldLeases(ctx context.Context) error {
	now := b.cfg.now()
	if b.cfg.EventStore == Embedded {
		// Only one process works on an embedded log, so every lease belongs to a process that has ended.
		if err := b.leases.AbandonLeases(ctx, now); err != nil {
			return err
		}
	}
	return b.leases.ForgetLeases(ctx, now)
}

// stuck returns the deletions that this process cannot complete.
func (b *background) stuck() []pipeline.Stuck {
	if b.finisher == nil {
		return nil
	}
	return b.finisher.Stuck()
}

// isStuckAt reports whether the event at a position is a deletion that this process cannot complete.
func (b *background) isStuckAt(at eventstore.Position) bool {
	return slices.ContainsFunc(b.stuck(), func(d pipeline.Stuck) bool { return d.Position == at })
}

// stuckFanOuts counts the other fan-outs that this process cannot complete.
func (b *background) stuckFanOuts() int {
	if b.finisher == nil {
		return 0
	}
	return b.finisher.StuckFanOuts()
}

// flushRecalls appends all counted recalls to the log, for a backup, which reads the log alone. On
// failure it only logs: a backup without the last recalls is better than none.
func (b *background) flushRecalls(ctx context.Context) {
	if err := b.metering.Flush(ctx); err != nil {
		b.cfg.Logger.WarnContext(ctx, "usage flush failed, the backup lacks the latest recalls", "err", err)
	}
}

// preparation completes organizations whose creation was interrupted.
type preparation struct {
	prepare func(context.Context) error
	every   time.Duration
	logger  *slog.Logger
}

func (p *preparation) run(ctx context.Context) error {
	for sleep(ctx, p.every) {
		if err := p.prepare(ctx); err != nil && ctx.Err() == nil {
			p.logger.WarnContext(ctx, "preparation of an organization failed, will retry", "err", err)
		}
	}
	return nil
}
