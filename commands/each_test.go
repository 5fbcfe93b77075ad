package commands

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/annals-project/annals/internal/panics"
)

// A fan-out works on its items in goroutines of its own: a panic there must not end the process.
func TestEach_OneItemPanics(t *testing.T) {
	l := &Log{Logger: slog.New(slog.DiscardHandler)}
	err := l.each(t.Context(), 100, func(_ context.Context, i int) error {
		if i == 7 {
			panic("item")
		}
		return nil
	})
	if p, ok := errors.AsType[*panics.Error](err); !ok || p.Value != "item" || len(p.Stack) == 0 {
		t.Errorf("error %v", err)
	}
}
