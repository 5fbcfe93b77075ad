package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/ownership"
	"github.com/annals-project/annals/internal/pg/schemas"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/recall"
)

// semantic is what semantic search needs. Without a model for embeddings it is the zero value.
type semantic struct {
	// vectors is the model that embeds, live the one that recall uses.
	vectors pipeline.Vectors
	live    *liveModel
	finder  *embeddings.Finder
	// off is why search is lexical although vectors are stored, "" if they are used or none are stored.
	off string
	// projected is set if vectors are projected.
	projected bool
}

func buildEmbeddings(ctx context.Context, s *Server) (adds, error) {
	models, err := newModels(ctx, s.cfg, s.storage)
	if err != nil {
		return adds{}, err
	}
	if s.semantic, err = newSemantic(ctx, s.cfg, s.storage, models); err != nil {
		return adds{}, err
	}
	s.semantic.register(s.registry)
	stored := embeddings.Queries{DB: s.storage.db}
	a := adds{operator: []operatorapi.Route{operatorapi.EmbeddingRoute(stored, s.semantic.model())}}
	if s.semantic.live != nil {
		a.work = []task{{"embedding model", s.semantic.live.follow}}
		if s.cfg.Roles.Has(RoleProjector) {
			a.work = append(a.work, task{"stored vectors", s.semantic.tend})
		}
	}
	return a, nil
}

// newSemantic makes the finder. A process that runs projections drops that of the embeddings if none are projected,
// since nothing would keep it up to date and the log has all of it.
func newSemantic(ctx context.Context, cfg Config, st *storage, models models) (semantic, error) {
	if !models.projected && cfg.Roles.Has(RoleProjector) {
		if err := dropEmbeddings(ctx, st.db, st.logID, cfg.Logger); err != nil {
			return semantic{}, err
		}
		if cfg.Builtin == BuiltinNone { // then none is missing at a later start either
			if err := (embeddings.LiveModel{DB: st.db}).Forget(ctx); err != nil {
				return semantic{}, err
			}
		}
	}
	vectors := models.configured()
	if vectors == nil {
		return semantic{off: models.reportNone(ctx, cfg), projected: models.projected}, nil
	}
	stored := embeddings.LiveModel{DB: st.db}
	name, err := stored.Begin(ctx, vectors.Name())
	if err != nil {
		return semantic{}, err
	}
	live := &liveModel{models: models, stored: stored, logger: cfg.Logger}
	live.finder = embeddings.NewFinder(unavailable, embeddings.NewColumns(st.db, name), cfg.Logger)
	live.use(ctx, name)
	return semantic{vectors: vectors, live: live, finder: live.finder, projected: models.projected}, nil
}

// unavailable is a model that cannot be called.
func unavailable(context.Context, string) ([]float32, error) {
	return nil, errors.New("the model that made the vectors is no longer configured")
}

// liveModel is the model whose vectors recall compares.
type liveModel struct {
	models models
	stored embeddings.LiveModel
	finder *embeddings.Finder
	logger *slog.Logger
	// missing is how many data points the configured model had not embedded when they were counted last.
	missing atomic.Int64

	mu      sync.Mutex
	name    string
	vectors pipeline.Vectors
}

// Vectors implements pipeline.Live.
func (l *liveModel) Vectors() pipeline.Vectors {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.vectors
}

// Switch implements pipeline.Live.
func (l *liveModel) Switch(ctx context.Context, name string) error {
	if err := l.stored.Switch(ctx, name); err != nil {
		return err
	}
	l.logger.InfoContext(ctx, "recall uses the vectors of another embedding model", "model", name)
	l.use(ctx, name)
	return nil
}

// use makes this process search by the vectors of a model.
func (l *liveModel) use(ctx context.Context, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name == l.name {
		return
	}
	vectors, embed := l.models.named(name)
	if vectors == nil {
		l.logger.WarnContext(ctx, "the embedding model of the stored vectors cannot be called: recall searches by words "+
			"alone until the configured model has made its own", "model", name, "configured", l.models.configured().Name())
		embed = unavailable
	}
	l.name, l.vectors = name, vectors
	l.finder.Use(embed, embeddings.NewColumns(l.stored.DB, name).WithLeast(l.models.least(name)))
}

// off returns why search is lexical although vectors are stored, "" if they are used.
func (l *liveModel) off() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.vectors != nil {
		return ""
	}
	return fmt.Sprintf("the embedding model %s of the stored vectors cannot be called: recall searches by words alone "+
		"until %s has made its own (annals embeddings status)", l.name, l.models.configured().Name())
}

const (
	// followEvery is how often a process reads which model is live, tendEvery how often one with projections counts what
	// is missing and deletes the vectors of the models before, droppedAfter how long after a switch these stay.
	followEvery  = 5 * time.Second
	tendEvery    = time.Minute
	droppedAfter = time.Minute
)

// follow searches by the live model, which another process may switch.
func (l *liveModel) follow(ctx context.Context) error {
	for sleep(ctx, followEvery) {
		name, err := l.stored.Read(ctx)
		if err != nil {
			l.warn(ctx, "live model", err)
			continue
		}
		l.use(ctx, name)
	}
	return nil
}

// tend counts what the configured model has not embedded, and deletes the vectors of models that were live before.
func (s semantic) tend(ctx context.Context) error {
	queries := embeddings.Queries{DB: s.live.stored.DB}
	for first := true; first || sleep(ctx, tendEvery); first = false {
		p, err := queries.Progress(ctx, s.vectors.Name())
		if err == nil {
			s.live.missing.Store(p.Captured - p.Embedded)
			err = s.live.stored.DropOthers(ctx, droppedAfter)
		}
		if err != nil {
			s.live.warn(ctx, "missing and dropped ones", err)
		}
	}
	return nil
}

func (l *liveModel) warn(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		l.logger.WarnContext(ctx, "work on the stored vectors failed, will retry", "what", what, "err", err)
	}
}

// reason returns why search is lexical although vectors are stored, "" if they are used or none are stored.
func (s semantic) reason() string {
	if s.live != nil {
		return s.live.off()
	}
	return s.off
}

// search returns the finder as recall takes it, nil if search is lexical.
func (s semantic) search() recall.Semantic {
	if s.finder == nil {
		return nil
	}
	return s.finder
}

// model returns the name of the model that embeds, "" for none.
func (s semantic) model() string {
	if s.vectors == nil {
		return ""
	}
	return s.vectors.Name()
}

// register adds the metrics of the model.
func (s semantic) register(registry *prometheus.Registry) {
	if s.finder == nil {
		return
	}
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "annals_embeddings_up", Help: "1 while the embedding model answers recalls in time.",
		}, func() float64 {
			up, _ := s.finder.Up()
			return oneIf(up)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "annals_embeddings_missing", Help: "Data points that the embedding model has not embedded yet.",
		}, func() float64 { return float64(s.live.missing.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "annals_recalls_by_words_alone_total",
			Help: "Recalls that the embedding model gave no answer for in time.",
		}, func() float64 {
			_, without := s.finder.Up()
			return float64(without)
		}),
	)
}

// dropEmbeddings drops the schema of the embeddings of a log and the schemas that rebuilds of it left.
func dropEmbeddings(ctx context.Context, db *pgxpool.Pool, logID uuid.UUID, logger *slog.Logger) error {
	live := pg.SchemaPrefixOf(db).Name(embeddings.Name)
	found, err := ownership.Find(ctx, db, []string{live},
		"^"+live+"("+schemas.ShadowSuffix+"|"+schemas.OldSuffix+"[0-9]+)$")
	if err != nil {
		return fmt.Errorf("list schemas of embeddings: %w", err)
	}
	for _, schema := range found {
		if schema.Require(logID) != nil {
			continue
		}
		_, err := db.Exec(ctx, "drop schema if exists "+pgx.Identifier{schema.Name}.Sanitize()+" cascade")
		if err != nil {
			return fmt.Errorf("drop schema %s: %w", schema.Name, err)
		}
		logger.InfoContext(ctx, "schema of embeddings dropped, since no model is set", "schema", schema.Name)
	}
	return nil
}
