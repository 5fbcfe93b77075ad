package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/cut"
	"github.com/annals-project/annals/internal/build"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
)

// checkTimeout bounds one check of a part.
const checkTimeout = 2 * time.Second

// maxNamed bounds the deletions that /readyz names one by one.
const maxNamed = 8

// health reports what is not ready, and what else an operator should know.
type health struct {
	reading      *memo[reading]
	runtime      *runner.Runtime
	storage      *storage
	index        *localIndex // nil if no role needs the index
	backpressure *backpressure
	semantic     semantic
	probes       *probes
	stuck        func() []pipeline.Stuck
	denied       func() *erasure.DeniedError
	roles        Roles
	admission    *opening
	progress     *startProgress
	logger       *slog.Logger
	calls, work  usedUp
	// causes are the last causes that were logged.
	causes atomic.Pointer[string]
}

func buildHealth(_ context.Context, s *Server) (adds, error) {
	s.health = &health{
		reading: newReading(s.storage, s.read.runtime, s.cfg), runtime: s.read.runtime, storage: s.storage, index: s.index,
		backpressure: s.backpressure, semantic: s.semantic, probes: s.probes, stuck: s.stuck, denied: s.denied,
		roles:     s.cfg.Roles,
		admission: &opening{wentBack: s.storage.wentBack}, progress: &startProgress{now: time.Now}, logger: s.cfg.Logger,
	}
	s.health.register(s.registry)
	s.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &stateMetrics{s},
	)
	build.Get().Register(s.registry)
	return adds{}, nil
}

// The servers that every role needs, as parts.
const (
	postgresPart   = "postgres"
	eventStorePart = "event store"
)

// The reasons that /readyz shows to every client. They are constant: texts of errors, servers and customers are
// in the cause only.
const (
	silent        condition.Reason = "it does not answer"
	refuses       condition.Reason = "it refuses what the service needs"
	refusesUser   condition.Reason = "it refuses the user or the password: check ANNALS_EVENTSTORE and the user's rights"
	storeStopped  condition.Reason = "writes are refused until the service is restarted"
	olderCopy     condition.Reason = "the log is an older copy: restore the newer one, or accept the older one and rebuild"
	keysAway      condition.Reason = "keys cannot be looked up: every call is refused"
	poolUsedUp    condition.Reason = "every connection for calls is in use"
	workUsedUp    condition.Reason = "every connection for background work is in use"
	notDeleted    condition.Reason = "it is committed and cannot be completed: what it deletes is still served"
	stopped       condition.Reason = "stopped"
	stoppedAt     condition.Reason = "stopped at an event that it cannot apply"
	repeatsPage   condition.Reason = "repeats a page"
	cannotBegin   condition.Reason = "cannot begin"
	lastTryFailed condition.Reason = "its last try failed"
	fedElsewhere  condition.Reason = "another process feeds its index, and an embedded index serves one process only: " +
		"stop the other"

	awaitPostgres   condition.Reason = "they wait for postgres"
	awaitEventStore condition.Reason = "they wait for the event store"
)

// erasureDenied is shown to every client, as the reasons are.
const erasureDenied = "the event store denies its user a right that erasure needs: " +
	"what was deleted is not recalled, and stays in the store"

// lockAwaited is shown to every client too.
const lockAwaited = "statements wait for a table that another session of Postgres has locked"

// restoredRemark describes the streams that somebody else hid in the event store, "" for none. Only operators read
// their names.
func restoredRemark(hidden *cut.Store, private bool) string {
	names := hidden.Restored()
	if len(names) == 0 {
		return ""
	}
	count := strconv.Itoa(len(names))
	if len(names) == cut.MaxNamed {
		count += " or more"
	}
	remark := "somebody else deleted, truncated or aged streams of the service in the event store, and that was undone (" +
		count + " since the start)"
	if private {
		remark += ": " + strings.Join(names[:min(len(names), namedStreams)], ", ")
	}
	return remark
}

const (
	// maxDamaged is the most damaged streams that a remark counts, and namedStreams the most that it names.
	maxDamaged   = 100
	namedStreams = 10
)

// damagedRemark describes the streams that somebody else ended or hid in the event store, "" for none. Only operators
// read their names.
func damagedRemark(damaged []datapoints.DamagedStream, private bool) string {
	if len(damaged) == 0 {
		return ""
	}
	count := strconv.Itoa(len(damaged))
	if len(damaged) == maxDamaged {
		count += " or more"
	}
	remark := "somebody else deleted, truncated or aged streams of the service in the event store (" + count +
		"): annals doctor lists them"
	if private {
		names := make([]string, min(len(damaged), namedStreams))
		for i := range names {
			names[i] = damaged[i].Stream + " " + damaged[i].Damage
		}
		remark += ": " + strings.Join(names, ", ")
	}
	return remark
}

// notReady returns the parts that cannot work, and why: causes before their effects. It logs each new set of causes
// once. Whether the service starts or stops is read at each call: the answer must change at once.
func (h *health) notReady(ctx context.Context) []condition.NotReady {
	now := h.reading.get()
	parts := h.serversNotReady(now)
	if h.roles.Has(RoleProjector) { // other processes report their own
		parts = append(parts, withoutEffects(parts, h.projectionsNotReady(now))...)
	}
	stuck := h.stuck()
	for _, s := range stuck[:min(len(stuck), maxNamed)] {
		cause := fmt.Errorf("one of %d: %w", len(stuck), s.Err)
		parts = append(parts, notReady("deletion "+s.ID.String(), notDeleted, s.Position, cause))
	}
	if reason := h.admission.reason(); reason != "" {
		parts = append(parts, notReady("service", reason, 0, nil))
	}
	h.logCauses(ctx, parts)
	return parts
}

// serversNotReady returns which of Postgres and the event store cannot be used.
func (h *health) serversNotReady(now reading) []condition.NotReady {
	var parts []condition.NotReady
	add := func(part string, reason condition.Reason, cause error) {
		parts = append(parts, notReady(part, reason, 0, cause))
	}
	at := h.reading.now()
	full, workFull := h.calls.check(h.storage.db.Stat(), at), h.work.check(h.storage.work.Stat(), at)
	switch {
	case now.postgres != nil:
		add(postgresPart, reasonOf(now.postgres), now.postgres)
	case now.keys != nil:
		add(postgresPart, keysAway, now.keys)
	case full:
		add(postgresPart, poolUsedUp, nil)
	case workFull:
		add(postgresPart, workUsedUp, nil)
	}
	if reason, cause := h.storage.logTrouble(now.eventStore); reason != "" {
		add(eventStorePart, reason, cause)
	}
	return parts
}

// holdsUp is what the projections wait for while a server is not ready for a reason, "" if they can work.
func holdsUp(n condition.NotReady) condition.Reason {
	switch n.Reason {
	case silent, refusesUser, olderCopy:
	default:
		return ""
	}
	if n.Part == postgresPart {
		return awaitPostgres
	}
	return awaitEventStore
}

// withoutEffects puts one part in the place of the projections that only wait for a server that is not ready. A
// projection that stopped has a cause of its own.
func withoutEffects(servers, projections []condition.NotReady) []condition.NotReady {
	for _, server := range servers {
		why := holdsUp(server)
		if why == "" {
			continue
		}
		own := slices.DeleteFunc(slices.Clone(projections), func(n condition.NotReady) bool {
			return n.Reason != stopped && n.Reason != stoppedAt
		})
		if len(own) == len(projections) {
			return projections
		}
		return append([]condition.NotReady{notReady("projections", why, 0, nil)}, own...)
	}
	return projections
}

// reasonOf is why Postgres cannot be used.
func reasonOf(err error) condition.Reason {
	if _, answers := errors.AsType[*ops.Problem](err); answers {
		return refuses
	}
	return silent
}

// projectionsNotReady returns the projections that cannot work.
func (h *health) projectionsNotReady(now reading) []condition.NotReady {
	var parts []condition.NotReady
	for _, s := range now.projections {
		add := func(reason condition.Reason, at eventstore.Position, cause error) {
			parts = append(parts, notReady("projection "+s.Name, reason, at, cause))
		}
		switch {
		case s.Stop != nil && s.Stop.Stream != "":
			add(stoppedAt, s.Stop.Position, s.Stop)
		case s.Stop != nil:
			add(stopped, 0, s.Stop)
		case s.Repeat != nil && s.Repeat.Next == 0:
			add(cannotBegin, 0, s.Repeat)
		case s.Repeat != nil:
			add(repeatsPage, s.Repeat.Next, s.Repeat)
		case s.LastErr != nil:
			add(lastTryFailed, 0, s.LastErr)
		case s.Name == recallindex.Name && !s.Active && h.index.ownsIndex && h.admission.open.Load():
			add(fedElsewhere, 0, nil)
		}
	}
	return parts
}

func notReady(part string, reason condition.Reason, at eventstore.Position, cause error) condition.NotReady {
	n := condition.NotReady{Part: part, Reason: reason, Position: uint64(at)}
	if cause != nil {
		n.Cause = cause.Error()
	}
	return n
}

// logCauses logs the causes unless they are the last that were logged.
func (h *health) logCauses(ctx context.Context, parts []condition.NotReady) {
	var causes []string
	for _, part := range parts {
		if part.Cause != "" {
			causes = append(causes, part.Part+": "+part.Cause)
		}
	}
	joined := strings.Join(causes, "; ")
	if before := h.causes.Swap(&joined); joined != "" && (before == nil || *before != joined) {
		h.logger.WarnContext(ctx, "service is not ready", "causes", causes)
	}
}

// remarks returns what is refused, lost and set aside. Only what operators read holds texts of errors, and names
// that somebody chose.
func (h *health) remarks(private bool) condition.Remarks {
	now := h.reading.get()
	r := condition.Remarks{
		WritesRefused: h.backpressure.reasons(), OpenTooLong: h.backpressure.openTooLong(),
		SemanticSearchOff: h.semantic.reason(), BulkWritesLost: now.abandonedBulks,
		ServersDown: h.probes.remarks(private), SendsFailed: failedRemark(now.failedSends, private),
	}
	if c, ok := h.progress.of(now.projections); ok {
		r.CatchingUp = c.String()
	}
	if h.admission.reason() != "" { // what waits does so because of the start
		r.OpenTooLong = ""
	}
	if !private && r.SemanticSearchOff != "" {
		r.SemanticSearchOff = "the model of the stored vectors is missing or cannot be called: " +
			"recall searches by words alone (the log names the model; make model installs the built-in one)"
	}
	if now.awaitedLock != "" {
		if r.LockAwaited = lockAwaited; private {
			r.LockAwaited += ": " + now.awaitedLock
		}
	}
	if denied := h.denied(); denied != nil {
		if r.ErasureDenied = erasureDenied; private {
			r.ErasureDenied += ": " + denied.Error()
		}
	}
	r.StreamsRestored = restoredRemark(h.storage.hidden, private)
	r.StreamsDamaged = damagedRemark(now.damaged, private)
	if err := h.backpressure.stopped(); err != nil && !private {
		for i, reason := range r.WritesRefused {
			r.WritesRefused[i] = strings.TrimSuffix(reason, ": "+err.Error())
		}
	}
	if h.roles.Has(RoleRead) {
		r.RecallElsewhere = h.index.unavailableReason()
	}
	if h.storage.index != nil {
		for _, l := range h.storage.index.Losses() {
			r.RecallIncomplete = append(r.RecallIncomplete, l.Part)
		}
	}
	for _, e := range h.runtime.IsSetAside() {
		r.SetAside = append(r.SetAside, condition.SetAside{Position: e.Position, Type: e.Type, Projections: e.Projections})
	}
	slices.SortFunc(r.SetAside, func(a, b condition.SetAside) int { return cmp.Compare(a.Position, b.Position) })
	return r
}

// register adds the metric that shows whether the service is ready.
func (h *health) register(registry prometheus.Registerer) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "annals_ready", Help: "1 while /readyz answers 200.",
	}, func() float64 {
		if len(h.notReady(context.Background())) == 0 {
			return 1
		}
		return 0
	}))
}
