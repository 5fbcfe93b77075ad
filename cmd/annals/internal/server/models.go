package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/commands/pipeline/model"
	"github.com/annals-project/annals/internal/minilm"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/ownership"
	"github.com/annals-project/annals/internal/pg/schemas"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/recall"
)

// Builtin is when the built-in embedding model embeds, if there is no endpoint.
type Builtin string

// The values of Config.Builtin. BuiltinWanted differs from BuiltinAuto in a process that lacks the model: vectors are
// projected nevertheless, as the processes that have it need it, and the start warns.
const (
	BuiltinNone   Builtin = ""
	BuiltinAuto   Builtin = "auto"
	BuiltinWanted Builtin = "builtin"
)

// ParseBuiltin reads ANNALS_EMBEDDINGS: auto, which is the default, builtin or none. hasEndpoint is set if an endpoint
// embeds, which none contradicts.
func ParseBuiltin(text string, hasEndpoint bool) (Builtin, error) {
	switch text {
	case "":
		return BuiltinAuto, nil
	case string(BuiltinAuto), string(BuiltinWanted):
		return Builtin(text), nil
	case "none":
		if hasEndpoint {
			return "", errors.New("is none, but ANNALS_EMBEDDINGS_URL is set: remove one of them")
		}
		return BuiltinNone, nil
	}
	return "", fmt.Errorf("is %q: want auto, none or builtin", text)
}

// ParseLeast reads ANNALS_EMBEDDINGS_LEAST, the least cosine of hits by an endpoint's model: from 0 to 1, or empty
// for 0, which is no limit.
func ParseLeast(text string, hasEndpoint bool) (float64, error) {
	if text == "" {
		return 0, nil
	}
	least, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || !(least >= 0 && least <= 1): // also what is not a number
		return 0, fmt.Errorf("is %q: want a cosine from 0 to 1, such as 0.3, or nothing for no limit", text)
	case least > 0 && !hasEndpoint:
		return 0, errors.New("is set, but ANNALS_EMBEDDINGS_URL is not: the built-in model has its own")
	}
	return least, nil
}

// models are the embedding models that this process can call.
type models struct {
	endpoint *model.Embedder // nil without one
	builtin  *model.Builtin  // nil if it is not to be used or not installed
	// damaged is why the built-in model cannot be used although it is installed, nil if it can.
	damaged error
	// endpointLeast is the least cosine of hits by the endpoint, 0 for no limit.
	endpointLeast float64
	// stored is the model of the stored vectors, "" if there are none. projected is set if vectors are projected.
	stored    string
	projected bool
}

// newModels opens the models, and reads which one made the stored vectors.
func newModels(ctx context.Context, cfg Config, st *storage) (m models, err error) {
	if cfg.Embeddings.URL != "" {
		if m.endpoint, err = model.NewEmbedder(cfg.Embeddings); err != nil {
			return m, err
		}
		m.endpointLeast = cfg.EmbeddingsLeast
	}
	if cfg.Builtin != BuiltinNone {
		if err = m.openBuiltin(ctx, cfg); err != nil {
			return m, err
		}
	}
	if m.configured() != nil || cfg.Builtin == BuiltinNone {
		m.projected = m.configured() != nil
		return m, nil
	}
	// Projected vectors stay until their model is there again, and those of erased texts leave meanwhile.
	live, stored, err := embeddings.LiveModel{DB: st.db}.Stored(ctx)
	if err != nil {
		return m, err
	}
	m.projected = live != "" || cfg.Builtin == BuiltinWanted
	if stored {
		m.stored = live
	}
	return m, nil
}

// openBuiltin opens the built-in model if it is installed. With BuiltinAuto one that cannot be used, such as that of
// another version of the program, counts as not installed. One that the configuration names must be usable.
func (m *models) openBuiltin(ctx context.Context, cfg Config) error {
	path, open := cfg.Data.Model(), cfg.openEncoder
	if open == nil {
		open = func(dir string) (model.Encoder, error) { return minilm.Open(dir) }
		if cfg.BuiltinFile != "" {
			open = func(file string) (model.Encoder, error) { return minilm.OpenSource(ctx, file) }
		}
	}
	if cfg.BuiltinFile != "" {
		path = cfg.BuiltinFile
	}
	encoder, err := open(path)
	switch {
	case err == nil:
		m.builtin = model.NewBuiltin(encoder)
	case cfg.BuiltinFile != "":
		return fmt.Errorf("ANNALS_EMBEDDINGS_MODEL cannot be used: %w", err)
	case errors.Is(err, fs.ErrNotExist):
	case cfg.Builtin == BuiltinAuto:
		m.damaged = err
	default:
		return fmt.Errorf("built-in embedding model: %w; install it again", err)
	}
	return nil
}

// configured returns the model that embeds: that of the endpoint, or the built-in one, or nil.
func (m models) configured() pipeline.Vectors {
	switch {
	case m.endpoint != nil:
		return m.endpoint
	case m.builtin != nil:
		return m.builtin
	}
	return nil
}

// named returns a model by its name, with what embeds questions; nil if this process cannot call it. An endpoint is
// asked for any model but the built-in one.
func (m models) named(name string) (pipeline.Vectors, embeddings.Embed) {
	if m.builtin != nil && m.builtin.Name() == name {
		return m.builtin, m.builtin.EmbedQuestion
	}
	if m.endpoint == nil || minilm.IsName(name) {
		return nil, nil
	}
	endpoint := m.endpoint.Named(name)
	return endpoint, func(ctx context.Context, text string) ([]float32, error) {
		found, err := endpoint.Embed(ctx, []string{text})
		if err != nil {
			return nil, err
		}
		return found[0], nil
	}
}

// least returns the least cosine of hits by a model.
func (m models) least(name string) embeddings.Least {
	if minilm.IsName(name) {
		return minilm.LeastCosine
	}
	return func(int) float64 { return m.endpointLeast }
}

// howToInstall is what installs the built-in model.
const howToInstall = "make model, or annals embeddings install FILE"

// reportNone logs that this process has no model, if its roles need one. It returns why search is lexical although
// vectors are stored, "" if none are.
func (m models) reportNone(ctx context.Context, cfg Config) (reason string) {
	switch {
	case !cfg.Roles.HasAny(rolesOfModels) || cfg.Builtin == BuiltinNone:
	case m.stored != "":
		remedy := "set ANNALS_EMBEDDINGS_URL and ANNALS_EMBEDDINGS_NAME as before, or ANNALS_EMBEDDINGS=none to do without"
		if minilm.IsName(m.stored) {
			remedy = "install it (" + howToInstall + ") and start again, or set ANNALS_EMBEDDINGS=none to do without"
		}
		logger := cfg.Logger
		if m.damaged != nil {
			logger = logger.With("err", m.damaged)
		}
		logger.WarnContext(ctx, "the embedding model of the stored vectors is missing: recall searches by words alone",
			"model", m.stored, "remedy", remedy)
		return fmt.Sprintf("the embedding model %s of the stored vectors is missing: recall searches by words alone; %s",
			m.stored, remedy)
	case m.damaged != nil:
		cfg.Logger.WarnContext(ctx, "the built-in embedding model cannot be used: recall searches by words alone",
			"remedy", "install it again: "+howToInstall, "err", m.damaged)
	case cfg.Builtin == BuiltinWanted:
		cfg.Logger.WarnContext(ctx, "the built-in embedding model is not installed: recall searches by words alone",
			"install", howToInstall)
	default:
		cfg.Logger.InfoContext(ctx, "no embedding model is installed: recall searches by words alone",
			"install", howToInstall)
	}
	return ""
}

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
