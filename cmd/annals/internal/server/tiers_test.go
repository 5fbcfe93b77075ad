package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annals-project/annals/internal/panics"
)

func TestRunTiers_PanicOfATaskIsItsError(t *testing.T) {
	stopped := make(chan struct{})
	err := runTiers(t.Context(), slog.New(slog.DiscardHandler),
		[]task{{"edge", func(ctx context.Context) error { <-ctx.Done(); close(stopped); return nil }}},
		[]task{{"store", func(context.Context) error { panic("disk") }}})
	if _, is := errors.AsType[*panics.Error](err); !is || !strings.Contains(err.Error(), "store: panic: disk") {
		t.Errorf("error is %v, want the panic of the task", err)
	}
	<-stopped
}

func TestRestarting_TaskThatPanicsRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, runs := time.Now(), 0
		var last time.Duration
		again := restarting(slog.New(slog.DiscardHandler), []task{{"worker", func(ctx context.Context) error {
			if runs++; runs <= 8 {
				panic("item")
			}
			last = time.Since(began)
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}}})
		if err := again[0].run(ctx); !errors.Is(err, context.Canceled) || runs != 9 {
			t.Errorf("it ran %d times and ended with %v", runs, err)
		}
		if want := (1 + 2 + 4 + 8 + 16 + 32 + 60 + 60) * time.Second; last != want {
			t.Errorf("the pauses are %s, want %s", last, want)
		}
	})
}

func TestRestarting_ErrorEndsTheTask(t *testing.T) {
	broken := errors.New("broken")
	again := restarting(slog.New(slog.DiscardHandler), []task{{"worker", func(context.Context) error { return broken }}})
	if err := again[0].run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("error is %v, want %v", err, broken)
	}
}

// A process whose roles leave a tier without tasks runs until its context ends.
func TestRunTiers_TierWithoutTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		edge := []task{{"edge", func(ctx context.Context) error { <-ctx.Done(); return nil }}}
		if err := runTiers(ctx, slog.New(slog.DiscardHandler), edge, nil); err != nil || time.Since(began) < time.Hour {
			t.Errorf("ended after %s with %v", time.Since(began), err)
		}
	})
}
