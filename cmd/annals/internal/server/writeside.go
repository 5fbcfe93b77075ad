package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/identities"
	peoplecmd "github.com/annals-project/annals/commands/people"
	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/commands/pipeline/model"
	"github.com/annals-project/annals/commands/reads"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/erasures"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/visits"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/embeddings"
	readrecords "github.com/annals-project/annals/projections/reads"
	"github.com/annals-project/annals/projections/runner"
	"github.com/annals-project/annals/projections/usage/limiter"
)

// orphanTimeout is how long a sealed value may exist before its key does. A command takes far less.
const orphanTimeout = time.Hour

// preparationEvery is how often a running service looks for organizations whose creation was
// interrupted.
const preparationEvery = 10 * time.Second

// writeSide is the commands.
type writeSide struct {
	service *commands.Service
	// vault keeps the clear values of project keys. sealKeys seal them; the first one seals new
	// values.
	vault    secret.Vault
	sealKeys [][]byte
	access   access.Queries
	// preparation completes organizations while the service runs.
	preparation *preparation
	cfg         Config
}

func buildWrites(ctx context.Context, s *Server) (adds, error) {
	cfg, read := s.cfg, s.read
	keys, err := cfg.Data.OpenSealKeys(ctx, s.storage.db)
	if err != nil {
		return adds{}, err
	}
	sealer, err := secret.NewSealer(keys...)
	if err != nil {
		return adds{}, err
	}
	w := &writeSide{vault: secret.Vault{DB: s.storage.db, Sealer: sealer}, sealKeys: keys, access: read.access, cfg: cfg}
	w.preparation = &preparation{w.prepareOrganizations, preparationEvery, cfg.Logger}
	w.service = commands.New(commands.Config{
		Journal: s.journal, Waiter: read.waiter, FollowUps: read.waiter, Sends: read.dataPoints, DataPoints: read.dataPoints,
		Records: newSharedRecords(read.directory, cfg.Logger), Directory: read.directory,
		SoleWriter: cfg.EventStore == Embedded,
		HashKey:    s.hashKey, Pipeline: cfg.Derive, LoadGauge: s.load, Limits: read.limits, PlanTerms: cfg.PlanTerms,
		MemberLimits: cfg.MemberLimits,
		Events:       limiter.NewEvents(read.limits, cfg.Logger), Accounts: read.usage,
		Vault: w.vault, Preparing: read.access, Credentials: datafolder.Credentials{Dir: cfg.Data.Dir},
	})
	s.write = w
	return adds{}, nil
}

// buildAdministration makes what an operator's commands call, and completes organizations. It comes after the pipeline,
// which erases people and flushes what a backup holds.
func buildAdministration(_ context.Context, s *Server) (adds, error) {
	now, write := s.cfg.now, s.write
	people, orgs := peopleOf(s), access.Tenancy{Queries: s.read.access, Head: s.head()}
	webhooks := access.Webhooks{Tenancy: orgs, Vault: write.vault, URLs: s.urls}
	sends := datapoints.StoppedSends{Queries: s.read.dataPoints, Projects: s.read.access}
	a := adds{
		work: []task{{"preparation", write.preparation.run}},
		steps: []step{{"prepare organizations and vault", func(ctx context.Context) error {
			return errors.Join(write.preparation.prepare(ctx), write.reconcileVault(ctx))
		}}},
	}
	if b := s.background; b != nil {
		people = b.finisher.People
		s.backups = datafolder.Backup{
			Node: s.storage.node, Dir: s.cfg.Data.Dir, HashKey: s.hashKey, SealKeys: write.sealKeys, Flush: b.flushRecalls,
			SignIns: s.dumpSignIns,
		}
		a.operator = append(a.operator, operatorapi.BackupRoute(s.backups))
	}
	a.operator = slices.Concat(
		a.operator, operatorapi.SendRoutes(sends, write.service, now), operatorapi.DamageRoutes(s.read.dataPoints),
		operatorapi.OrganizationRoutes(write.service, now),
		operatorapi.TenancyRoutes(write.service, orgs, now), operatorapi.PeopleRoutes(people, orgs, now),
		operatorapi.WebhookRoutes(tenancy.Webhooks{Service: write.service.Tenancy, Finder: webhooks, URLs: s.urls},
			webhooks, now),
	)
	return a, nil
}

// prepareOrganizations completes every organization whose creation was interrupted.
func (w *writeSide) prepareOrganizations(ctx context.Context) error {
	return w.service.PrepareOrganizations(ctx, engine.Call{
		Principal: auth.Principal{Kind: "preparation"}, RequestID: uuid.Must(uuid.NewV7()), ReceivedAt: w.cfg.now(),
	})
}

// reconcileVault drops the values of keys that are not live, and stores the key of the credentials file, which was
// generated before the vault existed. The projection access must be at the head.
func (w *writeSide) reconcileVault(ctx context.Context) error {
	logger := w.cfg.Logger
	dropped, err := w.vault.Tidy(ctx, orphanTimeout, w.access.LiveKeys)
	if err != nil {
		return err
	}
	if dropped > 0 {
		logger.InfoContext(ctx, "values of keys that are not live dropped", "dropped", dropped)
	}
	values, err := datafolder.ReadCredentials(w.cfg.Data.Dir)
	if err != nil || values[datafolder.ProjectKeyName] == "" {
		return err
	}
	clear := values[datafolder.ProjectKeyName]
	holder, ok, err := w.access.KeyByHash(ctx, auth.ProjectKey, secret.Hash(clear))
	if err != nil || !ok {
		return err
	}
	return w.vault.Keep(ctx, holder.KeyID, clear)
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

// background is the pipeline: the work that no call waits for. Its tasks start once the projections have caught up.
type background struct {
	worker    *pipeline.Worker // nil if derivation is switched off
	confirmer *pipeline.Confirmer
	finisher  *pipeline.Finisher
	embedder  *pipeline.Embedder // nil also without embeddings
	metering  *tenancy.Metering

	backpressure *backpressure
	leases       datapoints.Queries
	cfg          Config
}

func buildPipeline(_ context.Context, s *Server) (adds, error) {
	cfg, waiter := s.cfg, s.read.background
	failures := newSendFailures(s.probes.settingsOfFailure, cfg.Logger)
	s.registry.MustRegister(failures.count)
	b := &background{
		backpressure: s.backpressure, leases: s.read.work.dataPoints, cfg: cfg,
		confirmer: &pipeline.Confirmer{
			Journal: s.journal, Sends: s.read.work.dataPoints, Progress: waiter, IndexErr: s.read.indexErr,
			SendFailed: failures.failed, Logger: cfg.Logger, Now: cfg.now,
		},
		finisher: newFinisher(s),
		metering: &tenancy.Metering{
			Journal: s.journal, Pending: s.read.work.charges, Waiter: waiter, Logger: cfg.Logger, Now: cfg.now,
		},
	}
	maintainer := &requestlog.Maintainer{DB: s.storage.work, Terms: cfg.PlanTerms, Log: cfg.Logger, Now: cfg.now}
	ender := &reads.Ender{
		Streams: streamsOf(s), Days: readrecords.Queries{DB: s.storage.work}, Logger: cfg.Logger, Now: cfg.now,
	}
	a := adds{
		work: []task{
			{"request log maintenance", maintainer.Run},
			{"confirmer", b.confirmer.Run},
			{"finisher", b.finisher.Run},
			{"metering", b.metering.Run},
			{"end of read records", ender.Run},
		},
		steps:    []step{{"complete deletions", b.finisher.CatchUp}},
		operator: operatorapi.EraseRoutes(b.finisher),
	}
	s.background = b
	if !cfg.Derive {
		return a, nil
	}
	b.worker = &pipeline.Worker{
		LoadGauge: s.load, Age: s.backpressure.age, Journal: s.journal,
		Queue: s.read.work.dataPoints, Paused: s.backpressure.pausesDerivation, Progress: waiter,
		Pace:      engine.NewBatchPace(waiter, cfg.Logger, time.Now),
		Extractor: pipeline.Builtin{}, Logger: cfg.Logger, Holder: uuid.NewString(), Now: cfg.now,
	}
	if cfg.Model.URL != "" {
		var err error
		if b.worker.Extractor, err = model.NewExtractor(cfg.Model); err != nil {
			return adds{}, err
		}
		b.worker.Slow = true
	}
	a.work = append(a.work, task{"pipeline", b.derive})
	if s.semantic.finder != nil {
		b.embedder = &pipeline.Embedder{
			Journal: s.journal, List: embeddings.Queries{DB: s.storage.work}, Progress: waiter,
			Vectors: s.semantic.vectors, Live: s.semantic.live, Logger: cfg.Logger, Now: cfg.now,
		}
		a.work = append(a.work, task{"embedder", b.embedder.Run})
	}
	return a, nil
}

func newFinisher(s *Server) *pipeline.Finisher {
	cfg, read, waiter := s.cfg, s.read, s.read.background
	calls := &requestlog.Blanker{DB: s.storage.work}
	f := &pipeline.Finisher{
		Journal: s.journal, FanOuts: read.work.dataPoints, Identities: read.work.directory, Eraser: newEraser(s, calls),
		People:       newPeople(s, calls),
		Reservations: read.work.limits,
		Progress:     waiter, Logger: cfg.Logger, Now: cfg.now,
		IsSetAside: func(at eventstore.Position) bool {
			e, is := read.runtime.IsSetAside()[at]
			return is && (len(e.Projections) == 0 || slices.Contains(e.Projections, datapoints.Name))
		},
	}
	f.People.Pending = f.Pending
	return f
}

// newPeople makes what erases people. A process without the role write deletes by commands of its own.
func newPeople(s *Server, calls *requestlog.Blanker) *erasure.People {
	people, read := peopleOf(s), s.read
	people.Calls = calls
	if s.write != nil {
		people.Commands = commands.PersonCommands{Service: s.write.service}
		return people
	}
	people.Commands = commands.PersonCommands{Service: commands.New(commands.Config{
		Journal: s.journal, Waiter: read.background, FollowUps: read.background, Sends: read.work.dataPoints,
		DataPoints: read.work.dataPoints, Records: read.directory, Directory: read.directory, PlanTerms: s.cfg.PlanTerms,
	})}
	return people
}

// peopleOf makes what finds people, begins their erasure and shows its state, in any process.
func peopleOf(s *Server) *erasure.People {
	return &erasure.People{
		Streams: streamsOf(s), Names: erasures.Names{DB: s.storage.work}, DataPoints: s.read.work.dataPoints,
		Records: s.read.directory, Progress: s.read.background,
	}
}

// streamsOf makes what ends streams of the log.
func streamsOf(s *Server) erasure.Streams {
	return erasure.Streams{Journal: s.journal.Journal, Projects: s.journal, Logger: s.cfg.Logger, Now: s.cfg.now}
}

// newEraser makes the eraser with what it purges from the disk.
func newEraser(s *Server, calls *requestlog.Blanker) *erasure.Eraser {
	cfg, st, work := s.cfg, s.storage, s.read.work
	e := &erasure.Eraser{
		Streams: streamsOf(s), Deletions: work.dataPoints, Blobs: work.dataPoints, Identities: work.directory,
		People: work.access, Rows: identities.BulkRows{Journal: s.journal, Directory: work.directory},
		Calls: calls, Progress: s.read.background, Index: st.index, Store: erasure.Cluster, HasIndex: s.index.isFed,
		Tables: runner.Vacuum{
			DB: st.work, LogID: runner.LogIDOf(st.store, st.codec), Others: calls.Tables,
			Projectors: s.read.projectors, Leftovers: s.read.runtime.DropLeftovers,
		},
	}
	if s.semantic.projected {
		e.ExtraProjections = []string{embeddings.Name}
	}
	if st.node != nil {
		e.Store = st.node
	} else {
		cfg.Logger.Info("the event store is a cluster: cleaned does not wait for its scavenge to purge deleted text")
	}
	return e
}

// derive is the task of the worker. It first ends the leases that earlier processes left.
func (b *background) derive(ctx context.Context) error {
	for {
		err := errors.Join(b.endOldLeases(ctx), b.backpressure.begin(ctx))
		if err == nil {
			return b.worker.Run(ctx)
		}
		if ctx.Err() != nil { // the stop is the cause
			return nil
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
func (s *Server) stuck() []pipeline.Stuck {
	if s.background == nil {
		return nil
	}
	return s.background.finisher.Stuck()
}

// denied returns what the event store denies erasure, nil for nothing.
func (s *Server) denied() *erasure.DeniedError {
	if s.background == nil {
		return nil
	}
	return s.background.finisher.Denied()
}

// isStuckAt reports whether the event at a position is a deletion that this process cannot complete.
func (s *Server) isStuckAt(at eventstore.Position) bool {
	return slices.ContainsFunc(s.stuck(), func(d pipeline.Stuck) bool { return d.Position == at })
}

// stuckFanOuts counts the other fan-outs that this process cannot complete.
func (s *Server) stuckFanOuts() int {
	if s.background == nil {
		return 0
	}
	return s.background.finisher.StuckFanOuts()
}

// flushRecalls appends all counted recalls to the log, for a backup, which reads the log alone. On
// failure it only logs: a backup without the last recalls is better than none.
func (b *background) flushRecalls(ctx context.Context) {
	if err := b.metering.Flush(ctx); err != nil {
		b.cfg.Logger.WarnContext(ctx, "usage flush failed, the backup lacks the latest recalls", "err", err)
	}
}

// buildVisits makes what appends to the log what people did without a change.
func buildVisits(_ context.Context, s *Server) (adds, error) {
	s.visits = visits.Queue{
		DB: s.storage.work,
		Decode: func(name string, payload []byte) (event.Event, error) {
			return s.storage.codec.Decode(eventstore.Recorded{Type: name, Data: payload})
		},
	}
	writer := peoplecmd.Visits{Journal: s.journal, Queue: s.visits, MembersOf: s.membersOf, Now: s.cfg.now}
	s.operatorLog = newOperatorLog(s.cfg.Data.Dir)
	return adds{work: []task{{"visits", writer.Run}, {"operator log", s.recordEarlierReads}}}, nil
}

// membersOf returns the organizations of which a person is a member.
func (s *Server) membersOf(ctx context.Context, person uuid.UUID) ([]uuid.UUID, error) {
	p, _, err := s.read.access.Memberships(ctx, person)
	ids := make([]uuid.UUID, len(p.Memberships))
	for i, m := range p.Memberships {
		ids[i] = m.Organization
	}
	return ids, err
}

// refusals counts refused sign-ins. An address that nobody has is in the log of the process too, without the address.
type refusals struct {
	count *prometheus.CounterVec
	log   *slog.Logger
}

func newRefusals(log *slog.Logger) refusals {
	r := refusals{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "annals_sign_ins_refused_total", Help: "Refused sign-ins with a password or a code, by the reason.",
	}, []string{"reason"}), log}
	for _, why := range []signin.Refusal{signin.NobodyHas, signin.Wrong, signin.TooMany, signin.NotInvited} {
		r.count.WithLabelValues(string(why))
	}
	return r
}

// refused is signin.Config.Refused.
func (r refusals) refused(ctx context.Context, c signin.Client, why signin.Refusal) {
	r.count.WithLabelValues(string(why)).Inc()
	if why == signin.NobodyHas {
		r.log.InfoContext(ctx, "sign-in refused: nobody has the address", "network", c.Address, "requestId", c.Request)
	}
}
