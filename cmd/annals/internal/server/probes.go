package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/cmd/annals/internal/probe"
	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/commands/pipeline/model"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/projections/recallindex/elastic"
)

// checkElasticEvery is how often the Elasticsearch is checked. The models are only checked at the start and after
// failed calls, since their calls cost.
const checkElasticEvery = 15 * time.Second

// probes check the servers that background work calls: the model, the endpoint for embeddings and the Elasticsearch.
type probes struct {
	model, embeddings, index *probe.Server // nil if the process does not call it
}

// observed returns the configuration with endpoints that report how their calls end. They must be made of it.
func (p *probes) observed(cfg Config) Config {
	if cfg.Model.URL != "" && cfg.Derive && cfg.Roles.Has(RolePipeline) {
		p.model = newModelProbe(cfg, "model", "the model that derives memory", "ANNALS_MODEL_")
		cfg.Model.Observe = p.model.Observe
	}
	if cfg.Embeddings.URL != "" && cfg.Roles.HasAny(rolesOfModels) {
		p.embeddings = newModelProbe(cfg, "embeddings", "the endpoint for embeddings", "ANNALS_EMBEDDINGS_")
		cfg.Embeddings.Observe = p.embeddings.Observe
	}
	return cfg
}

// newModelProbe makes the probe of a model. settings begins the names of its settings.
func newModelProbe(cfg Config, label, name, settings string) *probe.Server {
	return probe.New(probe.Config{
		Label: label, Name: name, Logger: cfg.Logger,
		Describe: func(err error) probe.Trouble {
			failure, is := errors.AsType[*pipeline.Failure](err)
			if !is {
				return probe.Trouble{Cause: err.Error()}
			}
			t := probe.Trouble{Cause: failure.Message}
			for _, end := range failure.Settings {
				t.Settings = append(t.Settings, settings+end)
			}
			return t
		},
	})
}

// open adds what the probes call, once the storage is open. cfg is that of observed.
func (p *probes) open(cfg Config, st *storage) error {
	if p.model != nil {
		extractor, err := model.NewExtractor(cfg.Model)
		if err != nil {
			return err
		}
		p.model.Check = extractor.Probe
	}
	if p.embeddings != nil {
		embedder, err := model.NewEmbedder(cfg.Embeddings)
		if err != nil {
			return err
		}
		p.embeddings.Check = embedder.Probe
	}
	if index, is := st.index.(*elastic.Index); is {
		p.index = newIndexProbe(cfg, index.Probe)
	}
	return nil
}

// newIndexProbe makes the probe of the Elasticsearch.
func newIndexProbe(cfg Config, check func(context.Context) error) *probe.Server {
	options := *cfg.Index
	return probe.New(probe.Config{
		Label: "elasticsearch", Name: "the Elasticsearch", Check: check, Every: checkElasticEvery,
		Describe: func(err error) probe.Trouble {
			return probe.Trouble{Cause: err.Error(), Settings: indexSettings(options, err)}
		},
		Logger: cfg.Logger,
	})
}

// indexSettings returns the settings of the Elasticsearch that may be wrong if it cannot be used.
func indexSettings(options elastic.Options, err error) []string {
	var list []string
	for _, field := range options.Suspects(err) {
		if field == "URL" {
			list = append(list, "ANNALS_INDEX")
		} else {
			list = append(list, "ANNALS_INDEX_"+strings.ToUpper(field))
		}
	}
	return list
}

// all returns the probes of this process.
func (p *probes) all() []*probe.Server {
	list := []*probe.Server{p.model, p.embeddings, p.index}
	return slices.DeleteFunc(list, func(s *probe.Server) bool { return s == nil })
}

// tasks returns the tasks that probe.
func (p *probes) tasks() []task {
	var list []task
	for _, s := range p.all() {
		list = append(list, task{"probe of " + s.Label, s.Run})
	}
	return list
}

// conditions returns which servers cannot be used, with the settings that may be wrong. Only operators read the causes.
func (p *probes) conditions() (list condition.List) {
	for _, s := range p.all() {
		t, failing := s.Trouble()
		if !failing {
			continue
		}
		public, private, settings := " cannot be used: the log has the cause", t.Cause, strings.Join(t.Settings, ", ")
		if settings != "" {
			public = " cannot be used: check " + settings + "; the log has the cause"
			private += " (" + settings + ")"
		}
		c := remark(condition.ServersDown, s.Name+public)
		c.Of, c.Private = s.Label, s.Name+" cannot be used: "+private
		list = append(list, c)
	}
	return list
}

// settingsOfFailure returns the settings that may be wrong if sends fail with a code.
func (p *probes) settingsOfFailure(_ context.Context, code string) []string {
	of := p.model
	if isIndexFailure(code) {
		of = p.index
	}
	if of == nil {
		return nil
	}
	t, _ := of.Trouble()
	return t.Settings
}

// failureLogEvery is how often failed sends of one code are logged at most.
const failureLogEvery = time.Minute

// failureCodes are the codes with which sends fail.
var failureCodes = []string{
	ingestion.ModelUnavailable, ingestion.ModelResponseUnreadable, ingestion.IndexUnavailable, ingestion.ContentRejected,
	ingestion.Internal,
}

func isIndexFailure(code string) bool { return code == ingestion.IndexUnavailable }

// sendFailures counts and logs the sends that fail in this process.
type sendFailures struct {
	count *prometheus.CounterVec
	// settings returns the settings that may be wrong if sends fail with a code.
	settings func(ctx context.Context, code string) []string
	now      func() time.Time
	logger   *slog.Logger

	mu     sync.Mutex
	byCode map[string]*failureLog
}

// failureLog is when a code was last logged, and how many sends failed with it since.
type failureLog struct {
	at    time.Time
	since int
}

func newSendFailures(settings func(context.Context, string) []string, logger *slog.Logger) *sendFailures {
	f := &sendFailures{
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "annals_sends_failed_total", Help: "Sends that failed, by the code of their failure.",
		}, []string{"code"}),
		settings: settings, now: time.Now, logger: logger, byCode: map[string]*failureLog{},
	}
	for _, code := range failureCodes {
		f.count.WithLabelValues(code) // 0, so that the first failure is an increase
	}
	return f
}

// failed notes a send that failed.
func (f *sendFailures) failed(ctx context.Context, code, message string) {
	f.count.WithLabelValues(code).Inc()
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.byCode[code]
	if log == nil {
		log = &failureLog{}
		f.byCode[code] = log
	}
	log.since++
	now := f.now()
	if !log.at.IsZero() && now.Sub(log.at) < failureLogEvery {
		return
	}
	f.logger.WarnContext(ctx, "sends failed; annals failed lists them", "sends", log.since, "code", code, "err", message,
		"settings", f.settings(ctx, code))
	log.at, log.since = now, 0
}
