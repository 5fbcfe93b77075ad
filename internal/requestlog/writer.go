package requestlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/pg/schemas"
	"github.com/annals-project/annals/internal/pgarray"
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

// deletionLock is the advisory lock between flushes, which share it, and Blank, which takes it alone.
// Either a flush sees what Blank recorded, or Blank finds what the flush has written.
const deletionLock = `x'616e6e616c74'::bigint # ` + schemas.LockKey

const (
	lockDeletion      = `select pg_advisory_xact_lock(` + deletionLock + `)`
	shareDeletionLock = `select pg_advisory_xact_lock_shared(` + deletionLock + `)`
)

// writing begins the transaction of a flush. A process that is frozen in it delays a deletion no
// longer than the timeout. A crash of the database may lose the newest rows, on which no answer
// depends.
var writing = pgx.TxOptions{BeginQuery: `begin isolation level read committed;
	set local idle_in_transaction_session_timeout = '10s'; set local synchronous_commit = off`}

// write writes a batch in one transaction.
func (w *Writer) write(ctx context.Context, batch []row) error {
	days := map[time.Time]bool{}
	for _, r := range batch {
		days[dayOf(r.receivedAt)] = true
	}
	for day := range days {
		if w.days[day] {
			continue
		}
		if err := createDay(ctx, w.db, day); err != nil {
			return err
		}
		if len(w.days) > 1000 {
			clear(w.days)
		}
		w.days[day] = true
	}
	if err := w.storeKinds(ctx, batch); err != nil {
		return err
	}
	err := pgx.BeginTxFunc(ctx, w.db, writing, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, shareDeletionLock); err != nil {
			return err
		}
		blanked, err := blankedOf(ctx, tx, batch)
		if err == nil {
			err = w.strip(ctx, tx, batch)
		}
		if err != nil {
			return err
		}
		if err := w.copyRows(ctx, tx, batch, blanked); err != nil {
			return err
		}
		return w.addCounts(ctx, tx, batch)
	})
	if err != nil {
		// A partition may have been dropped since.
		clear(w.days)
		return fmt.Errorf("write %d calls: %w", len(batch), err)
	}
	return nil
}

// maxKinds is how many kinds a writer remembers.
const maxKinds = 10_000

// storeKinds stores the kinds of a batch that are not known yet.
func (w *Writer) storeKinds(ctx context.Context, batch []row) error {
	unknown := map[kind]bool{}
	for _, r := range batch {
		if _, known := w.kinds[r.kind]; !known {
			unknown[r.kind] = true
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	if len(w.kinds) > maxKinds {
		clear(w.kinds)
		for _, r := range batch {
			unknown[r.kind] = true
		}
	}
	list := slices.SortedFunc(maps.Keys(unknown), func(a, b kind) int {
		return cmp.Or(strings.Compare(a.project.String(), b.project.String()), cmp.Compare(a.endpoint, b.endpoint),
			cmp.Compare(a.status, b.status), cmp.Compare(a.errorCode, b.errorCode), cmp.Compare(a.keyName, b.keyName),
			cmp.Compare(a.keyPrefix, b.keyPrefix))
	})
	columns := []any{
		pgarray.IDs(list, func(k kind) uuid.UUID { return k.project }),
		pgarray.Column(list, func(k kind) string { return k.endpoint }),
		pgarray.Column(list, func(k kind) int { return k.status }),
		pgarray.Column(list, func(k kind) string { return k.errorCode }),
		pgarray.Column(list, func(k kind) string { return k.keyName }),
		pgarray.Column(list, func(k kind) string { return k.keyPrefix }),
	}
	const names = `project_id, endpoint, status, error_code, key_name, key_prefix`
	const given = `unnest($1::uuid[], $2::text[], $3::int[], $4::text[], $5::text[], $6::text[])`
	if _, err := w.db.Exec(ctx, `insert into ops.request_kinds (`+names+`, name_key)
		select *, sha256(convert_to(key_name, 'UTF8')) from `+given+` as n (`+names+`) on conflict do nothing`,
		columns...); err != nil {
		return fmt.Errorf("store kinds of calls: %w", err)
	}
	rows, err := w.db.Query(ctx, `select kind, `+names+` from ops.request_kinds
		join `+given+` as n (`+names+`) using (`+names+`)`, columns...)
	if err != nil {
		return fmt.Errorf("read kinds of calls: %w", err)
	}
	var id int64
	var k kind
	_, err = pgx.ForEachRow(rows, []any{&id, &k.project, &k.endpoint, &k.status, &k.errorCode, &k.keyName, &k.keyPrefix},
		func() error { w.kinds[k] = id; return nil })
	if err != nil {
		return fmt.Errorf("read kinds of calls: %w", err)
	}
	return nil
}

// blankedFor is how long blanked data points and projects are recorded. A call that waits longer is written
// without text.
const blankedFor = 48 * time.Hour

// blankedOf returns which data points of a batch were blanked recently.
func blankedOf(ctx context.Context, tx pgx.Tx, batch []row) (map[uuid.UUID]bool, error) {
	var some bool
	if err := tx.QueryRow(ctx, `select exists (select from ops.blanked_points)`).Scan(&some); err != nil || !some {
		return nil, err
	}
	ids := map[uuid.UUID]bool{}
	for _, r := range batch {
		for _, id := range r.ids {
			ids[id] = true
		}
	}
	rows, err := tx.Query(ctx, `select data_point from ops.blanked_points where data_point = any($1::uuid[])`,
		pgarray.Keys(ids))
	if err != nil {
		return nil, err
	}
	blanked := map[uuid.UUID]bool{}
	var id uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error { blanked[id] = true; return nil })
	return blanked, err
}

// strip removes the text of calls that may be about a person who was erased after they came into memory.
func (w *Writer) strip(ctx context.Context, tx pgx.Tx, batch []row) error {
	rows, err := tx.Query(ctx, `select project_id, blanked_at from ops.blanked_projects`)
	if err != nil {
		return err
	}
	var project uuid.UUID
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&project, &at}, func() error {
		if !w.stripped[project].at.Equal(at) {
			w.stripped[project] = strippedUntil{at, time.Now()}
		}
		return nil
	}); err != nil {
		return err
	}
	for i := range batch {
		r := &batch[i]
		until, some := w.stripped[r.project]
		if some && !r.added.After(until.seen) || time.Since(r.added) >= blankedFor/2 {
			_, r.path, _ = strings.Cut(r.kind.endpoint, " ")
			r.identity, r.payload, r.requestHeaders, r.responseHeaders = nil, nil, "{}", "{}"
			if r.webhook, err = withoutFilter(r.webhook); err != nil {
				return err
			}
		}
	}
	return nil
}

// strippedUntil is when a person of a project was erased, and when this process learned of it, by its own clock.
type strippedUntil struct{ at, seen time.Time }

// identityKey is what the recalls as an identity are found by, nil for other calls.
func (r *row) identityKey() *uuid.UUID {
	if r.identity == nil || r.hits == nil && !strings.HasSuffix(r.kind.endpoint, "/recall") {
		return nil
	}
	return new(identityKey(r.project, *r.identity))
}

func identityKey(project uuid.UUID, identity string) uuid.UUID {
	return uuid.NewSHA1(project, []byte(identity))
}

func (w *Writer) copyRows(ctx context.Context, tx pgx.Tx, batch []row, blanked map[uuid.UUID]bool) error {
	var bodies []row
	for i := range batch {
		r := &batch[i]
		dead := slices.ContainsFunc(r.ids, func(id uuid.UUID) bool { return blanked[id] })
		if dead {
			r.path = BlankPath(r.kind.endpoint, r.path)
		}
		if r.payload != nil && !dead {
			bodies = append(bodies, *r)
		}
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"ops", "requests"}, []string{
		"project_id", "received_at", "request_id", "kind", "path", "duration_us", "identity", "ingestion_id",
		"credit_tenths",
		"request_bytes", "response_bytes", "request_headers", "response_headers", "plan", "ids", "hits", "webhook",
		"identity_key", "person_id",
	}, pgx.CopyFromSlice(len(batch), func(i int) ([]any, error) {
		r := batch[i]
		return []any{
			r.project, r.receivedAt, r.requestID, w.kinds[r.kind], r.path, r.duration.Microseconds(), r.identity,
			r.ingestionID, r.creditTenths, r.requestBytes, r.responseBytes, r.requestHeaders, r.responseHeaders, r.plan,
			r.ids, r.hits, r.webhook, r.identityKey(), r.person,
		}, nil
	}))
	if err != nil || len(bodies) == 0 {
		return err
	}
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"ops", "request_payloads"}, []string{
		"project_id", "received_at", "request_id", "plan", "request", "response", "request_truncated", "response_truncated",
	}, pgx.CopyFromSlice(len(bodies), func(i int) ([]any, error) {
		r, p := bodies[i], bodies[i].payload
		return []any{
			r.project, r.receivedAt, r.requestID, r.plan, pack(p.Request), pack(p.Response),
			p.RequestTruncated, p.ResponseTruncated,
		}, nil
	}))
	return err
}

// BlankPath returns the path without source id: the template, if there is one in it.
func BlankPath(endpoint, path string) string {
	if _, template, _ := strings.Cut(endpoint, " "); strings.Contains(template, sourceParameter) {
		return template
	}
	return path
}

// sourceParameter is the parameter of a template that is a source id.
const sourceParameter = "{sourceId}"

// addCounts counts a batch. The rows are written in one order, so that no two flushes deadlock.
func (w *Writer) addCounts(ctx context.Context, tx pgx.Tx, batch []row) error {
	type key struct {
		project uuid.UUID
		step    int
		start   time.Time
		kind    int64
	}
	counts, tenths := map[key]int64{}, map[key]int64{}
	for _, r := range batch {
		for _, s := range steps {
			k := key{r.project, int(s), s.floor(r.receivedAt), w.kinds[r.kind]}
			counts[k]++
			tenths[k] += value(r.creditTenths)
		}
	}
	list := slices.SortedFunc(maps.Keys(counts), func(a, b key) int {
		return cmp.Or(strings.Compare(a.project.String(), b.project.String()), cmp.Compare(a.step, b.step),
			a.start.Compare(b.start), cmp.Compare(a.kind, b.kind))
	})
	added, err := tx.Exec(ctx, `insert into ops.request_counts as c (project_id, step, start, kind, calls, credit_tenths)
		select * from unnest($1::uuid[], $2::int[], $3::timestamptz[], $4::bigint[], $5::bigint[], $6::bigint[])
		on conflict (project_id, step, start, kind) do update
			set calls = c.calls + excluded.calls, credit_tenths = c.credit_tenths + excluded.credit_tenths`,
		pgarray.IDs(list, func(k key) uuid.UUID { return k.project }),
		pgarray.Column(list, func(k key) int { return k.step }),
		pgarray.Column(list, func(k key) time.Time { return k.start }),
		pgarray.Column(list, func(k key) int64 { return k.kind }),
		pgarray.Column(list, func(k key) int64 { return counts[k] }),
		pgarray.Column(list, func(k key) int64 { return tenths[k] }))
	if err == nil && added.RowsAffected() != int64(len(list)) {
		err = errors.New("not every count was written")
	}
	return err
}
