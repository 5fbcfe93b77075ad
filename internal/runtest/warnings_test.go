package runtest_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// written is a test whose output is kept.
type written struct {
	*testing.T
	out bytes.Buffer
}

func (w *written) Output() io.Writer { return &w.out }

func TestWarnings_RepeatsAreDropped(t *testing.T) {
	w := &written{T: t}
	logger := runtest.Warnings(w)
	for range 10 {
		logger.With("projection", "trace").Warn("lease not taken")
		logger.Info("not a warning")
	}
	logger.WithGroup("store").Warn("lease not taken")
	logger.Warn("stream lost")
	shown := w.out.String()
	if strings.Count(shown, "lease not taken") != 3 || strings.Count(shown, "stream lost") != 1 ||
		!strings.Contains(shown, "not shown") || strings.Contains(shown, "not a warning") {
		t.Error(shown)
	}
}
