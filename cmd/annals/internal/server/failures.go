package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/domain/ingestion"
)

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
