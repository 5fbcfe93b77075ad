package server

import (
	"context"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// countedLevels are the levels whose lines are counted: what fails in the background is logged with one of them.
var countedLevels = []slog.Level{slog.LevelWarn, slog.LevelError}

// newLogLines makes the counter of the log lines.
func newLogLines() *prometheus.CounterVec {
	lines := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "annals_log_lines_total", Help: "Lines of the log with the levels warn and error.",
	}, []string{"level"})
	for _, level := range countedLevels {
		lines.WithLabelValues(strings.ToLower(level.String()))
	}
	return lines
}

// countingHandler counts lines, and passes them on. It counts also those that the next handler leaves out.
type countingHandler struct {
	slog.Handler
	lines *prometheus.CounterVec
}

// Enabled implements slog.Handler.
func (h countingHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || h.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h countingHandler) Handle(ctx context.Context, r slog.Record) error {
	switch {
	case r.Level >= slog.LevelError:
		h.lines.WithLabelValues("error").Inc()
	case r.Level >= slog.LevelWarn:
		h.lines.WithLabelValues("warn").Inc()
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h countingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return countingHandler{h.Handler.WithAttrs(attrs), h.lines}
}

// WithGroup implements slog.Handler.
func (h countingHandler) WithGroup(name string) slog.Handler {
	return countingHandler{h.Handler.WithGroup(name), h.lines}
}
