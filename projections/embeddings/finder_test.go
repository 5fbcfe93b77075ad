package embeddings

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A dead endpoint costs the timeout once. A probe runs next to the recalls, and none waits for it.
func TestFinder_DeadEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, dead := 0, true
		f := NewFinder(func(ctx context.Context, _ string) ([]float32, error) {
			calls++
			if dead {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return []float32{1}, nil
		}, NewColumns(nil, "m"), slog.New(slog.DiscardHandler))
		ask := func(want time.Duration) {
			t.Helper()
			began := time.Now()
			if found := f.Find(t.Context(), Query{Size: 1}, "text"); found != nil && len(found.Hits) > 0 {
				t.Errorf("hits %v", found.Hits)
			}
			if took := time.Since(began); took != want {
				t.Errorf("it took %s, want %s", took, want)
			}
			synctest.Wait()
		}
		ask(searchTimeout)
		ask(0)
		ask(0)
		if up, without := f.Up(); up || without != 3 || calls != 1 {
			t.Errorf("up %v, %d without, %d calls", up, without, calls)
		}
		<-time.After(firstPause)
		ask(0) // starts a probe
		if calls != 2 {
			t.Errorf("%d calls", calls)
		}
		<-time.After(probeTimeout)
		synctest.Wait()
		ask(0) // now pauses for twice as long
		if calls != 2 {
			t.Errorf("%d calls within the second rest", calls)
		}
		dead = false
		<-time.After(2 * firstPause)
		ask(0)
		if up, _ := f.Up(); !up || calls != 3 {
			t.Errorf("up %v after %d calls", up, calls)
		}
		ask(0) // the model replies, but these columns have no database
		if up, without := f.Up(); !up || without != 7 || calls != 4 {
			t.Errorf("up %v, %d without, %d calls", up, without, calls)
		}
	})
}

func TestFinder_CancelledRecall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := NewFinder(func(context.Context, string) ([]float32, error) {
		cancel()
		return nil, errors.New("canceled")
	}, NewColumns(nil, "m"), slog.New(slog.DiscardHandler))
	f.Find(ctx, Query{Size: 1}, "text")
	if up, _ := f.Up(); !up {
		t.Error("it rests")
	}
}
