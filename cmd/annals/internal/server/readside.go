package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/engine"
	recording "github.com/annals-project/annals/commands/reads"
	"github.com/annals-project/annals/commands/tenancy"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/sharedread"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/export"
	"github.com/annals-project/annals/projections/history"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/reads"
	readtexts "github.com/annals-project/annals/projections/reads/shown"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
	"github.com/annals-project/annals/projections/trace"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/projections/usage/limiter"
	"github.com/annals-project/annals/projections/why"
)

// readSide is the projections and the queries on their tables.
type readSide struct {
	runtime    *runner.Runtime
	projectors []projections.Projector
	// waiter waits for projections on behalf of calls, background on behalf of background work.
	waiter, background *runner.Waiter
	// queries serve calls, and work serves background work.
	queries
	work      queries
	keys      auth.Keys
	analyzers domainrecall.Analyzers
	backlog   *backlog
	// replica answers some reads of calls; nil for none.
	replica *replica.Reader
}

// queries read the tables of the projections by one pool of connections.
type queries struct {
	access     access.Queries
	dataPoints datapoints.Queries
	// directory caches the rules of projects.
	directory *directory.Queries
	usage     usage.Queries
	limits    *limiter.Limiter
	charges   limiter.PendingCharges
}

func newQueries(
	cfg Config, db *pgxpool.Pool, store eventstore.Store, namespaces stream.Namespaces, wait *runner.Waiter,
) queries {
	q := queries{
		access:     access.Queries{DB: db, Namespaces: namespaces},
		dataPoints: datapoints.Queries{DB: db, Store: store, Wait: wait},
		usage:      usage.Queries{DB: db, PlanTerms: cfg.PlanTerms},
		limits:     limiter.New(db, cfg.PlanTerms, wait, cfg.Logger),
		charges:    limiter.PendingCharges{DB: db},
	}
	q.directory = directory.NewQueries(db, store, wait, q.dataPoints, q.charges)
	return q
}

func buildProjections(ctx context.Context, s *Server) (a adds, err error) {
	cfg, st := s.cfg, s.storage
	if s.read, err = newReadSide(ctx, cfg, st, s.journal.Namespaces, s.semantic.projected, s.registry); err != nil {
		return adds{}, err
	}
	s.journal.Pace = engine.NewBatchPace(s.read.background, cfg.Logger, time.Now)
	applied := &comparison{
		log: st.compared, runtime: s.read.runtime, logID: runner.LogIDOf(st.store, st.codec), logger: cfg.Logger,
	}
	applied.compare(ctx) // before anything is applied
	a.base = []task{{"projections", s.read.runtime.Run}}
	a.watch = []task{{"comparison of the log", applied.run}}
	a.operator = []operatorapi.Route{operatorapi.ExportRoute(s.export()), operatorapi.ExportPersonRoute(s.personCopies())}
	if s.auditReads, err = s.newAuditReads(); err != nil {
		return adds{}, err
	}
	a.operator = append(a.operator, operatorapi.AuditRoutes(s.auditOperations())...)
	if cfg.Roles.Has(RoleProjector) {
		asides := tenancy.EventAsides{Journal: s.journal, Projections: s.read.runtime, IsStuck: s.isStuckAt}
		a.operator = append(a.operator, operatorapi.ProjectionRoutes(s.read.runtime, asides, cfg.now)...)
	}
	if s.read.replica != nil {
		a.watch = append(a.watch, task{"postgres replica", s.read.replica.Run})
		s.registry.MustRegister(s.read.replica)
	}
	return a, nil
}

// export reads whole projects.
func (s *Server) export() export.Service {
	return export.Service{
		Reader:   export.Reader{DB: s.storage.db, Blobs: s.storage.journal()},
		Projects: s.read.access, Head: s.head(), Now: s.cfg.now,
	}
}

// personCopies reads what a project has of an identity.
func (s *Server) personCopies() export.PersonService {
	return export.PersonService{
		Service: s.export(), Directory: s.read.directory, Reads: reads.Queries{DB: s.storage.db},
		Naming: func(ctx context.Context, project auth.Project, name string) (n int, more, searched bool, err error) {
			ids, more, failed := s.trace().Naming(ctx, project, name)
			if failed != nil {
				s.cfg.Logger.WarnContext(ctx, "texts that name a person are not searched", "err", failed)
				return 0, false, false, ctx.Err()
			}
			n, err = s.read.dataPoints.CountOfOthers(ctx, project.ID, ids, name)
			return n, more, err == nil, err
		},
	}
}

// head waits for what the log holds, for the queries of an operator.
func (s *Server) head() projections.Head {
	return projections.Head{Log: s.storage.store, Waiter: s.read.waiter}
}

func newReadSide(
	ctx context.Context, cfg Config, st *storage, namespaces stream.Namespaces, vectors bool,
	registry *prometheus.Registry,
) (*readSide, error) {
	r := &readSide{analyzers: domainrecall.NewAnalyzers(), backlog: &backlog{}}
	r.projectors = projectors(cfg, st, namespaces, vectors, r.analyzers)
	keys, changed := newKeys(cfg, access.Queries{DB: st.db, Namespaces: namespaces})
	var err error
	runs := runner.Config{
		Remote: !cfg.Roles.Has(RoleProjector),
		DB:     st.work, Calls: st.db, Store: st.store, Codec: st.codec, Logger: cfg.Logger,
		Hooks: projectionMetrics(registry, changed), LogID: runner.LogIDOf(st.store, st.codec), Projectors: r.projectors,
	}
	if cfg.Roles.Has(RoleWrite) {
		runs.Observer = r.backlog
	}
	if r.runtime, err = runner.New(runs); err != nil {
		return nil, err
	}
	r.waiter, r.background = r.runtime.Waiter(), r.runtime.BackgroundWaiter()
	r.keys = auth.FailClosed(keys, func(ctx context.Context) error { return r.waiter.Stopped(ctx, access.Name) })
	r.queries = newQueries(cfg, st.db, st.store, namespaces, r.waiter)
	r.work = newQueries(cfg, st.work, st.store, namespaces, r.background)
	r.replica, err = openReplica(ctx, cfg, st, r)
	return r, err
}

// openReplica opens the replica of Postgres, nil without one or if no role of the process reads there.
// The storage closes it.
func openReplica(ctx context.Context, cfg Config, st *storage, read *readSide) (*replica.Reader, error) {
	if cfg.PostgresReplica == "" || !cfg.Roles.Has(RoleRead) {
		return nil, nil //nolint:nilnil // a nil reader reads nothing
	}
	versions := map[string]int{}
	for _, p := range read.projectors {
		versions[p.Name()] = p.Version()
	}
	opened, err := replica.Open(ctx, replica.Config{
		URL: cfg.PostgresReplica, Primary: st.db, Versions: versions, Request: read.waiter.Request, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("the replica that ANNALS_POSTGRES_REPLICA names cannot be used: %w", err)
	}
	st.replica = opened
	return opened, nil
}

// projectors returns the projectors of the service, in the order in which all of them are rebuilt. With vectors, those
// of an embedding model are projected too.
func projectors(
	cfg Config, st *storage, namespaces stream.Namespaces, vectors bool, analyzers domainrecall.Analyzers,
) []projections.Projector {
	journal := st.journal()
	list := []projections.Projector{
		access.New(), datapoints.New(journal), memories.New(journal, cfg.Logger),
		recallindex.New(st.index, journal, analyzers, cfg.Logger), usage.New(),
		directory.New(journal, namespaces, cfg.Logger),
		trace.NewProjector(journal), reads.New(), history.New(), audit.New(st.store, st.codec),
	}
	if vectors {
		list = append(list, embeddings.New())
	}
	return list
}

// isStopped reports whether a projection stopped, or has repeated one page for minutes. It returns
// false if that cannot be read.
func (r *readSide) isStopped(ctx context.Context, name string) bool {
	err := r.waiter.Stopped(ctx, name)
	_, stop := errors.AsType[*runner.Stop](err)
	_, repeat := errors.AsType[*runner.Repeat](err)
	return stop || repeat
}

// indexErr returns why the recall index applies no events, nil if it does.
func (r *readSide) indexErr(ctx context.Context) error {
	for _, s := range r.runtime.Health(ctx) {
		if s.Name != recallindex.Name {
			continue
		}
		if s.Stop != nil {
			return s.Stop
		}
		if s.LastErr == nil && s.Repeat != nil {
			return s.Repeat // the process that feeds the index reports it
		}
		return s.LastErr
	}
	return errors.New("the recall index is not fed by this process")
}

// sharedKeys looks up the keys of projects that calls bring at the same time with one statement. It caches none, since
// another process could revoke it.
type sharedKeys struct {
	access.Queries
	reads *sharedread.Reads[[32]byte, access.ProjectKey]
}

func newSharedKeys(queries access.Queries, logger *slog.Logger) sharedKeys {
	return sharedKeys{queries, sharedread.New(logger, queries.ProjectKeys)}
}

// KeyByHash implements auth.Keys.
func (k sharedKeys) KeyByHash(ctx context.Context, kind auth.Kind, hash [32]byte) (auth.Holder, bool, error) {
	if kind != auth.ProjectKey {
		return k.Queries.KeyByHash(ctx, kind, hash)
	}
	found, err := k.reads.Get(ctx, hash)
	if err != nil {
		return auth.Holder{}, false, err
	}
	key, ok := found[hash]
	return key.Holder, ok && key.Err == nil, key.Err
}

// sharedRecords looks up the identity records of the authors of sends that come at the same time with one statement.
type sharedRecords struct {
	directory *directory.Queries
	reads     *sharedread.Reads[directory.Record, struct{}]
}

func newSharedRecords(queries *directory.Queries, logger *slog.Logger) sharedRecords {
	return sharedRecords{queries, sharedread.New(logger, queries.KnownRecords)}
}

// mostShared is the most records of one call that are looked up with those of others.
const mostShared = 16

// Known implements identities.Records.
func (r sharedRecords) Known(
	ctx context.Context, project auth.Project, ids []uuid.UUID,
) (map[uuid.UUID]struct{}, error) {
	if len(ids) > mostShared {
		return r.directory.Known(ctx, project, ids)
	}
	records := make([]directory.Record, len(ids))
	for n, id := range ids {
		records[n] = directory.Record{ProjectID: project.ID, ID: id}
	}
	found, err := r.reads.Get(ctx, records...)
	if err != nil {
		return nil, err
	}
	known := make(map[uuid.UUID]struct{}, len(ids))
	for n, record := range records {
		if _, is := found[record]; is {
			known[ids[n]] = struct{}{}
		}
	}
	return known, nil
}

// buildReads makes what records who was shown which texts.
func buildReads(_ context.Context, s *Server) (adds, error) {
	s.reads = recording.New(recording.Config{
		Journal: s.journal.Journal, Namespaces: s.journal.Namespaces, Leaves: trace.Leaves{DB: s.storage.work},
		Logger: s.cfg.Logger, Now: s.cfg.now,
	})
	return adds{
		watch:    []task{{"read records", s.reads.Run}},
		operator: []operatorapi.Route{operatorapi.ShowReadRoute(s.shown())},
	}, s.reads.Register(s.registry)
}

// shown reads the texts that read records name.
func (s *Server) shown() readtexts.Reader {
	return readtexts.Reader{
		Reads: reads.Queries{DB: s.storage.db}, Log: s.storage.journal(), Texts: s.trace(), Access: s.accessOf(),
		Projects: s.read.access,
	}
}

// accessOf explains who may read what.
func (s *Server) accessOf() why.Access {
	return why.Access{
		Points: s.read.dataPoints, Directory: s.read.directory, Now: s.cfg.now,
		Past: why.Past{DB: s.storage.db, Head: s.head(), Log: s.storage.journal()},
	}
}
