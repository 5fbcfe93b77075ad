package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
	"github.com/annals-project/annals/readapi"
)

// checkTimeout bounds one check of a part.
const checkTimeout = 2 * time.Second

// maxNamed bounds the deletions that /readyz names one by one.
const maxNamed = 8

// health reports what is not ready, and what else an operator should know.
type health struct {
	runtime      *runner.Runtime
	directory    *directory.Queries
	storage      *storage
	index        *localIndex // nil if no role needs the index
	backpressure *backpressure
	semantic     semantic
	stuck        func() []pipeline.Stuck
	has          parts
	admission    *opening
	logger       *slog.Logger
	// causes are the last causes that were logged.
	causes atomic.Pointer[string]
}

func newHealth(
	cfg Config, st *storage, read *readSide, index *localIndex, pressure *backpressure, semantic semantic,
	stuck func() []pipeline.Stuck, admission *opening,
) *health {
	return &health{
		runtime: read.runtime, directory: read.directory, storage: st, index: index, backpressure: pressure,
		semantic: semantic, stuck: stuck, has: cfg.Roles.parts(), admission: admission, logger: cfg.Logger,
	}
}

// notReady returns the parts that cannot work, and why. It logs each new set of causes once.
func (h *health) notReady(ctx context.Context) []readapi.NotReady {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var parts []readapi.NotReady
	if h.has.projections { // other processes report their own
		parts = h.projectionsNotReady(ctx)
	}
	add := func(part, reason string, cause error) { parts = append(parts, notReady(part, reason, cause)) }
	if reason, cause := h.storage.logTrouble(ctx); reason != "" {
		add("event store", reason, cause)
	}
	if err := h.storage.work.Ping(ctx); err != nil {
		add("postgres", "it does not answer; the log names the cause", err)
	} else if err := h.storage.db.Ping(ctx); err != nil {
		add("postgres", "every connection for calls is in use; the log names the cause", err)
	}
	stuck := h.stuck()
	for _, s := range stuck[:min(len(stuck), maxNamed)] {
		why := fmt.Sprintf("committed at position %d, cannot be completed (one of %d): what it deletes is still served; "+
			"the log names the cause", s.Position, len(stuck))
		add("deletion "+s.ID.String(), why, s.Err)
	}
	if reason := h.admission.reason(); reason != "" {
		add("service", reason, nil)
	}
	h.logCauses(ctx, parts)
	return parts
}

// projectionsNotReady returns the projections that cannot work.
func (h *health) projectionsNotReady(ctx context.Context) []readapi.NotReady {
	var parts []readapi.NotReady
	for _, s := range h.runtime.Health(ctx) {
		name := "projection " + s.Name
		switch {
		case s.Stop != nil && s.Stop.Stream != "":
			reason := fmt.Sprintf("stopped at position %d, %s of %s; the log names the cause", s.Stop.Position,
				s.Stop.Type, s.Stop.Stream)
			parts = append(parts, notReady(name, reason, s.Stop))
		case s.Stop != nil:
			parts = append(parts, notReady(name, "stopped; the log names the cause", s.Stop))
		case s.Repeat != nil:
			parts = append(parts, notReady(name, s.Repeat.Error(), nil)) // its cause is brief
		case s.LastErr != nil:
			parts = append(parts, notReady(name, "its last try failed; the log names the cause", s.LastErr))
		case s.Name == recallindex.Name && !s.Active && h.index.ownsIndex:
			reason := "another process feeds its index, and an embedded index serves one process only: stop the other"
			parts = append(parts, notReady(name, reason, nil))
		}
	}
	return parts
}

func notReady(part, reason string, cause error) readapi.NotReady {
	n := readapi.NotReady{Part: part, Reason: reason}
	if cause != nil {
		n.Cause = cause.Error()
	}
	return n
}

// logCauses logs the causes unless they are the last that were logged.
func (h *health) logCauses(ctx context.Context, parts []readapi.NotReady) {
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

// remarks returns what is refused, lost and set aside.
func (h *health) remarks() readapi.Remarks {
	r := readapi.Remarks{
		WritesRefused: h.backpressure.reasons(), OpenTooLong: h.backpressure.openTooLong(),
		SemanticSearchOff: h.semantic.reason(),
	}
	if h.has.reads {
		r.RecallElsewhere = h.index.unavailableReason()
	}
	if h.storage.index != nil {
		for _, l := range h.storage.index.Losses() {
			r.RecallIncomplete = append(r.RecallIncomplete, l.Part)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	var err error
	if r.BulkWritesLost, err = h.directory.AbandonedBulks(ctx); err != nil {
		// This is usual before the first start of the projection.
		h.logger.DebugContext(ctx, "abandoned bulk writes cannot be counted", "err", err)
	}
	for _, e := range h.runtime.IsSetAside() {
		r.SetAside = append(r.SetAside, readapi.SetAside{Position: e.Position, Type: e.Type, Projections: e.Projections})
	}
	slices.SortFunc(r.SetAside, func(a, b readapi.SetAside) int { return cmp.Compare(a.Position, b.Position) })
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
