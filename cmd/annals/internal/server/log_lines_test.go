package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Lines of warnings and errors are counted, also those of loggers with attributes, and those that the level leaves out.
func TestLogLines_AreCounted(t *testing.T) {
	lines, out := newLogLines(), &bytes.Buffer{}
	logger := slog.New(countingHandler{slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelError}), lines})
	logger.InfoContext(t.Context(), "a")
	logger.With("k", "v").WarnContext(t.Context(), "b")
	logger.WithGroup("g").ErrorContext(t.Context(), "c")
	for level, want := range map[string]float64{"warn": 1, "error": 1} {
		if got := testutil.ToFloat64(lines.WithLabelValues(level)); got != want {
			t.Errorf("%s: %v lines", level, got)
		}
	}
	if strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), "msg=c") {
		t.Errorf("logged:\n%s", out)
	}
}
