package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// A step that fails is tried again with a warning, and one that fails because the service stops ends without one.
func TestStartup_RetryUntilStop(t *testing.T) {
	var log bytes.Buffer
	s := &startup{logger: slog.New(slog.NewTextHandler(&log, nil))}
	ctx, stop := context.WithCancel(t.Context())
	tries := 0
	done := s.retry(ctx, step{"look", func(ctx context.Context) error {
		if tries++; tries == 1 {
			return errors.New("out of ideas")
		}
		stop()
		return ctx.Err()
	}})
	if text := log.String(); done || tries != 2 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "out of ideas") {
		t.Errorf("%v after %d tries:\n%s", done, tries, text)
	}
}
