package runner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/fault"
)

func wantUnavailable(t testing.TB, err error, text string) {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Kind != fault.Unavailable || f.Code != fault.CodeServiceUnavailable || !strings.Contains(f.Msg, text) {
		t.Errorf("got %v, want service-unavailable with %q", err, text)
	}
}

func TestWait_Deadline(t *testing.T) {
	w := newWorld(t)
	rt := w.runtime(t, nil, tally{family: "apple"})
	run(t, rt)
	last := w.add(t, "apple-1", 1)
	for name, waiter := range map[string]*Waiter{"local": rt.Waiter(), "remote": NewWaiter(w.db)} {
		mustWait(t, waiter, last, "apples")
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		wantUnavailable(t, waiter.Wait(ctx, last+1, "apples"), "late")
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if err := waiter.Wait(ctx, last+1, "apples"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: a cancelled wait ended with %v", name, err)
		}
	}
}

func TestWait_ProjectionWithoutTables(t *testing.T) {
	w := newWorld(t)
	remote := NewWaiter(w.db)
	if at, err := remote.Position(t.Context(), "apples"); at != 0 || err != nil {
		t.Errorf("position %d, %v", at, err)
	}
	waited := make(chan error, 1)
	last := w.add(t, "apple-1", 1)
	ctx := limited(t)
	go func() { waited <- remote.Wait(ctx, last, "apples") }()
	run(t, w.runtime(t, nil, tally{family: "apple"}))
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

func TestWatch_CheckpointMoves(t *testing.T) {
	w := newWorld(t)
	rt := w.runtime(t, nil, tally{family: "apple"})
	moved, stop := rt.Waiter().Watch("apples")
	defer stop()
	run(t, rt)
	for n := range 3 {
		last := w.add(t, "apple-1", n)
		for {
			select {
			case <-moved:
			case <-limited(t).Done():
				t.Fatal("no waiter was woken")
			}
			at, err := rt.Waiter().Position(t.Context(), "apples")
			if err != nil {
				t.Fatal(err)
			}
			if at >= last {
				break
			}
		}
	}
}
