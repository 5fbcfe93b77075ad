package commands

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/annals-project/annals/internal/panics"
)

// A panic in a goroutine of a fan-out is an error of the call. It does not end the process.
func TestEach_OneItemPanics(t *testing.T) {
	l := &Journal{Logger: slog.New(slog.DiscardHandler)}
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
