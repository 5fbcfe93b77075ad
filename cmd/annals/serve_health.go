package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/readapi"
)

// checkLimit bounds one look at a part.
const checkLimit = 2 * time.Second

// mostNamed bounds the deletions that /readyz names one by one.
const mostNamed = 8

// notReady names what cannot do its work, and why. Causes go to the log, each set of them once.
func (p *process) notReady(ctx context.Context) []readapi.NotReady {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	var parts []readapi.NotReady
	add := func(part, reason string, cause error) {
		unready := readapi.NotReady{Part: part, Reason: reason}
		if cause != nil {
			unready.Cause = cause.Error()
		}
		parts = append(parts, unready)
	}
	for _, s := range p.runtime.Health(ctx) {
		switch {
		case s.Stop != nil && s.Stop.Stream != "":
			add("projection "+s.Name, fmt.Sprintf("stopped at position %d, %s of %s; the log names the cause", s.Stop.Position, s.Stop.Type, s.Stop.Stream), s.Stop)
		case s.Stop != nil:
			add("projection "+s.Name, "stopped; the log names the cause", s.Stop)
		case s.Repeat != nil:
			add("projection "+s.Name, s.Repeat.Error(), nil) // its cause is brief
		case s.Trouble != nil:
			add("projection "+s.Name, "its last try failed; the log names the cause", s.Trouble)
		case s.Name == recallindex.Name && !s.Active && p.settings.EventStore == Embedded:
			add("projection "+s.Name, "another process feeds its index, and an embedded index serves one process only: stop the other", nil)
		}
	}
	if reason, cause := p.st.logTrouble(ctx); reason != "" {
		add("event store", reason, cause)
	}
	if err := p.st.work.Ping(ctx); err != nil {
		add("postgres", "it does not answer; the log names the cause", err)
	} else if err := p.st.db.Ping(ctx); err != nil {
		add("postgres", "every connection for calls is taken; the log names the cause", err)
	}
	stuck := p.finisher.Stuck()
	for _, s := range stuck[:min(len(stuck), mostNamed)] {
		why := fmt.Sprintf("committed at position %d, cannot be completed (one of %d): what it deletes is still served; "+
			"the log names the cause", s.Position, len(stuck))
		add("deletion "+s.ID.String(), why, s.Err)
	}
	if reason := p.door.reason(); reason != "" {
		add("service", reason, nil)
	}
	p.logCauses(ctx, parts)
	return parts
}

// logCauses logs the causes of what is not ready, unless they were the last to be logged.
func (p *process) logCauses(ctx context.Context, parts []readapi.NotReady) {
	var causes []string
	for _, part := range parts {
		if part.Cause != "" {
			causes = append(causes, part.Part+": "+part.Cause)
		}
	}
	said := strings.Join(causes, "; ")
	if before := p.causes.Swap(&said); said != "" && (before == nil || *before != said) {
		p.log.WarnContext(ctx, "service is not ready", "causes", causes)
	}
}

// remarks are what is refused, what is lost, and what is set aside.
func (p *process) remarks() readapi.Remarks {
	r := readapi.Remarks{
		WritesRefused: p.pressure.reasons(), OpenTooLong: p.pressure.openTooLong(), RecallElsewhere: p.index.elsewhere(),
	}
	for _, l := range p.st.index.Losses() {
		r.RecallIncomplete = append(r.RecallIncomplete, l.Part)
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkLimit)
	defer cancel()
	var err error
	if r.BulkWritesLost, err = p.directory.LostBulks(ctx); err != nil {
		p.log.DebugContext(ctx, "lost bulk writes are not counted", "err", err) // as before the first start of its projection
	}
	for _, e := range p.runtime.Aside() {
		r.SetAside = append(r.SetAside, readapi.SetAside{Position: e.Position, Type: e.Type, Projections: e.Projections})
	}
	slices.SortFunc(r.SetAside, func(a, b readapi.SetAside) int { return cmp.Compare(a.Position, b.Position) })
	return r
}

// stopped reports whether a projection stopped, or has repeated one page for minutes. What cannot be found out is no stop.
func (p *process) stopped(ctx context.Context, name string) bool {
	err := p.waiter.Stopped(ctx, name)
	_, stop := errors.AsType[*projections.Stop](err)
	_, repeat := errors.AsType[*projections.Repeat](err)
	return stop || repeat
}

// indexTrouble is what keeps the recall index from taking writes, nil for nothing.
func (p *process) indexTrouble(ctx context.Context) error {
	for _, s := range p.runtime.Health(ctx) {
		if s.Name != recallindex.Name {
			continue
		}
		if s.Stop != nil {
			return s.Stop
		}
		return s.Trouble
	}
	return errors.New("the recall index is not fed by this process")
}

// projectionMetrics counts what the projectors do.
func projectionMetrics(registry prometheus.Registerer) projections.Hooks {
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "annals_projection_events_total", Help: "Events of the log that a projection has passed.",
	}, []string{"projection"})
	pages := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "annals_projection_page_seconds", Help: "Time that a page took from its arrival to its commit.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
	}, []string{"projection"})
	stopped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "annals_projection_stopped_total", Help: "How often a projection stopped at an event that it cannot apply.",
	}, []string{"projection"})
	registry.MustRegister(events, pages, stopped)
	return projections.Hooks{
		Page: func(name string, passed, _ int, took time.Duration) {
			events.WithLabelValues(name).Add(float64(passed))
			pages.WithLabelValues(name).Observe(took.Seconds())
		},
		Stopped: func(name string) { stopped.WithLabelValues(name).Inc() },
	}
}

var (
	refusedMetric = prometheus.NewDesc("annals_writes_refused",
		"1 while writes are refused: projections lag far, more is sent than can be derived, the disk is nearly full, "+
			"or the event store cannot write.", []string{"why"}, nil)
	asideMetric = prometheus.NewDesc("annals_events_set_aside", "How many events projections pass over.", nil, nil)

	openMetric = prometheus.NewDesc("annals_open_age_seconds",
		"Age of the oldest item that waits for derivation, and of the oldest captured send that is not searchable.",
		[]string{"for"}, nil)

	lagMetric = prometheus.NewDesc("annals_projection_lag",
		"How far a projection is behind the log, in positions.", []string{"projection"}, nil)
	stallMetric = prometheus.NewDesc("annals_feed_stalls_total",
		"How often the subscription to the log stalled while the log grew, and was restarted.", nil, nil)
	logMetric = prometheus.NewDesc("annals_node_total",
		"What the embedded event store wrote since its start.", []string{"what"}, nil)
)

// partMetrics reads the state of the parts when it is asked for.
type partMetrics struct{ p *process }

// Describe implements prometheus.Collector.
func (m *partMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- refusedMetric
	out <- asideMetric
	out <- openMetric
	out <- lagMetric
	out <- stallMetric
	out <- logMetric
}

// Collect implements prometheus.Collector.
func (m *partMetrics) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), checkLimit)
	defer cancel()
	for _, s := range m.p.runtime.Health(ctx) {
		out <- prometheus.MustNewConstMetric(lagMetric, prometheus.GaugeValue, float64(s.Lag()), s.Name)
	}
	found := m.p.pressure.found()
	for why, refused := range map[string]bool{
		"behind": found.behind != "", "waiting": found.waited.late != "", "disk": found.nearlyFull != "",
		"log": m.p.pressure.stopped() != nil,
	} {
		value := 0.0
		if refused {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(refusedMetric, prometheus.GaugeValue, value, why)
	}
	out <- prometheus.MustNewConstMetric(asideMetric, prometheus.GaugeValue, float64(len(m.p.runtime.Aside())))
	out <- prometheus.MustNewConstMetric(stallMetric, prometheus.CounterValue, float64(m.p.runtime.FeedStalls()))
	for what, accepted := range map[string]time.Time{"derivation": found.waited.Item, "index": found.waited.Captured} {
		age := m.p.pressure.since(accepted).Seconds()
		out <- prometheus.MustNewConstMetric(openMetric, prometheus.GaugeValue, age, what)
	}
	if m.p.st.node == nil {
		return
	}
	stats := m.p.st.node.Stats()
	out <- prometheus.MustNewConstMetric(logMetric, prometheus.CounterValue, float64(stats.Appends), "appends")
	out <- prometheus.MustNewConstMetric(logMetric, prometheus.CounterValue, float64(stats.Events), "events")
	out <- prometheus.MustNewConstMetric(logMetric, prometheus.CounterValue, float64(stats.Fsyncs), "fsyncs")
}
