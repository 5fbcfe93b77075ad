package requestlog

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/panics"
)

const (
	// RowBytes is the room of a call without its bodies. It is reserved before the call is handled.
	RowBytes = 8 << 10

	// flushEvery is the pause between two flushes, batchRows and batchBytes what one of them writes.
	flushEvery = 500 * time.Millisecond
	batchRows  = 2000
	batchBytes = 8 << 20
	// flushTimeout bounds one flush, shutdownTimeout all that are left at the end.
	flushTimeout    = 30 * time.Second
	shutdownTimeout = 15 * time.Second
)

// Writer writes calls in batches, in a goroutine of its own (Run). A call reserves room before it is
// handled (Open), so that its row always finds a place in the queue. While the database does not
// answer, the queue fills up, calls wait for room, and then they are refused.
type Writer struct {
	db    *pgxpool.Pool
	log   *slog.Logger
	terms metering.PlanTerms
	room  *allowance.Allowance

	mu      sync.Mutex
	queue   []row
	wake    chan struct{}
	metrics metrics

	// kinds and days are used by Run only: what is known to be stored.
	kinds map[kind]int64
	days  map[time.Time]bool
	// stripped are the projects of which a person was erased, also used by Run only.
	stripped map[uuid.UUID]strippedUntil
}

type metrics struct {
	rows, failures prometheus.Counter
	flush          prometheus.Histogram
}

// NewWriter makes a writer. The terms of the plans set how many days bodies are kept.
func NewWriter(db *pgxpool.Pool, terms metering.PlanTerms, log *slog.Logger) *Writer {
	return &Writer{
		db: db, log: log, terms: terms, wake: make(chan struct{}, 1), kinds: map[kind]int64{}, days: map[time.Time]bool{},
		stripped: map[uuid.UUID]strippedUntil{},
		room:     admission.LoggedCalls.New(),
		metrics: metrics{
			rows: prometheus.NewCounter(prometheus.CounterOpts{
				Name: "annals_request_log_rows_total", Help: "Calls written to the request log.",
			}),
			failures: prometheus.NewCounter(prometheus.CounterOpts{
				Name: "annals_request_log_flush_failures_total",
				Help: "Flushes of the request log that failed and are tried again.",
			}),
			flush: prometheus.NewHistogram(prometheus.HistogramOpts{
				Name: "annals_request_log_flush_seconds", Help: "Time of one flush of the request log.",
				Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30},
			}),
		},
	}
}

// Register registers the metrics of the writer.
func (w *Writer) Register(registry prometheus.Registerer) error {
	queued := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "annals_request_log_queue_bytes", Help: "Bytes reserved for calls that are not in the request log yet.",
	}, func() float64 { return float64(w.Queued()) })
	for _, c := range []prometheus.Collector{w.metrics.rows, w.metrics.failures, w.metrics.flush, queued} {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// Open reserves room for the row of a call. The hold is the call's until Add takes it, and must be
// released if the call is not added. The error is service-unavailable if there is no room in time.
func (w *Writer) Open(ctx context.Context, o allowance.Owner) (*allowance.Hold, error) {
	hold := w.room.Open(o)
	return hold, hold.Reserve(ctx, RowBytes)
}

// Queued returns how many bytes are reserved for calls that are not in the request log yet.
func (w *Writer) Queued() int64 { return w.room.InUse() }

// RetainsBodies reports whether the bodies of calls under a plan are kept at all.
func (w *Writer) RetainsBodies(plan metering.Plan) bool { return w.terms.Of(plan).RetentionDays > 0 }

// Add puts a call into the queue. It never waits.
func (w *Writer) Add(r Record) {
	added := rowOf(r)
	w.mu.Lock()
	w.queue = append(w.queue, added)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// next takes the oldest calls from the queue, as many as one flush writes.
func (w *Writer) next() []row {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, size := 0, 0
	for n < len(w.queue) && n < batchRows && size < batchBytes {
		if p := w.queue[n].payload; p != nil {
			size += len(p.Request) + len(p.Response)
		}
		n++
	}
	batch := w.queue[:n:n]
	w.queue = w.queue[n:]
	if len(w.queue) == 0 {
		w.queue = nil
	}
	return batch
}

func (w *Writer) putBack(batch []row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(batch, w.queue...)
}

// Run writes what is added until the context ends, and then what is left.
func (w *Writer) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-w.wake:
			w.drain(ctx)
			_ = backoff.Pause(ctx, flushEvery, nil)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	w.drain(last)
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.queue); n > 0 {
		w.log.ErrorContext(ctx, "request log flush at shutdown failed, calls are lost", "calls", n)
	}
	return nil
}

// drain writes until the queue is empty or the context ends.
func (w *Writer) drain(ctx context.Context) {
	retry := backoff.Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second}
	for ctx.Err() == nil {
		batch := w.next()
		if len(batch) == 0 {
			return
		}
		for {
			err := w.flush(ctx, batch)
			if err == nil {
				break
			}
			w.metrics.failures.Inc()
			if ctx.Err() != nil {
				w.putBack(batch)
				return
			}
			w.log.ErrorContext(ctx, "request log flush failed, will retry", "calls", len(batch), "err", err)
			_ = retry.Wait(ctx)
		}
		retry = backoff.Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second}
	}
}

// flush writes a batch, and releases the room of its calls. A batch with a call that the database
// refuses, or that is stored already, is halved down to that call.
func (w *Writer) flush(ctx context.Context, batch []row) error {
	limited, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	began := time.Now()
	err := panics.Call(limited, w.log, "flush of the request log panicked", func() error {
		return w.write(limited, batch)
	})
	w.metrics.flush.Observe(time.Since(began).Seconds())
	switch {
	case err == nil, isStored(err) && len(batch) == 1:
		w.metrics.rows.Add(float64(len(batch)))
	case !isRefused(err):
		return err
	case len(batch) > 1:
		half := len(batch) / 2
		return errors.Join(w.flush(ctx, batch[:half]), w.flush(ctx, batch[half:]))
	default:
		w.log.ErrorContext(ctx, "database refuses a call of the request log, it is dropped",
			"requestId", batch[0].requestID, "err", err)
	}
	for _, r := range batch {
		r.hold.Release()
	}
	return nil
}

// isStored reports whether an earlier try was committed although its answer was lost: then the row
// violates the primary key.
func isStored(err error) bool {
	p, is := errors.AsType[*pgconn.PgError](err)
	return is && p.Code == "23505"
}

// isRefused reports whether the same rows would be refused again.
func isRefused(err error) bool {
	if _, panicked := errors.AsType[*panics.Error](err); panicked {
		return true
	}
	p, is := errors.AsType[*pgconn.PgError](err)
	return is && (p.Code[:2] == "22" || p.Code[:2] == "23" || p.Code[:2] == "54")
}
