package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/runtest"
)

func TestBackoff_PausesGrowToTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pause := backoff.Backoff{First: 10 * time.Millisecond, Longest: 40 * time.Millisecond}
		for _, want := range []time.Duration{10, 20, 40, 40} {
			want *= time.Millisecond
			began := time.Now()
			runtest.Must(t, pause.Wait(t.Context()))
			if took := time.Since(began); took > want || took < want/2 {
				t.Errorf("paused for %s, want half of %s to all of it", took, want)
			}
		}
		pause.Reset()
		began := time.Now()
		if err := pause.Wait(t.Context()); err != nil || time.Since(began) > 10*time.Millisecond {
			t.Errorf("after a reset: paused for %s, %v", time.Since(began), err)
		}
	})
}

func TestBackoff_ContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	pause := backoff.Backoff{First: time.Hour, Longest: time.Hour}
	if err := pause.Wait(ctx); !errors.Is(err, stopped) {
		t.Errorf("got %v, want the cause of the context", err)
	}
}
