package pipeline

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annals-project/annals/eventstore/backoff"
)

// What works takes a second each: so many seconds tell how many worked at once.
func TestThrottle_NarrowsWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var busy atomic.Bool
		l := newThrottle(4, func() int {
			if busy.Load() {
				return 1
			}
			return 4
		})
		var working, most atomic.Int64
		run := func(n int) time.Duration {
			began := time.Now()
			for range n {
				if !l.acquire(t.Context()) {
					t.Fatal("no lane")
				}
				most.Store(max(most.Load(), working.Add(1)))
				go func() {
					_ = backoff.Pause(context.WithoutCancel(t.Context()), time.Second, nil)
					working.Add(-1)
					l.release()
				}()
			}
			for working.Load() > 0 {
				_ = backoff.Pause(t.Context(), time.Millisecond, nil)
			}
			return time.Since(began).Round(100 * time.Millisecond)
		}
		if took := run(8); took != 2*time.Second || most.Load() != 4 {
			t.Errorf("8 took %v with at most %d at once", took, most.Load())
		}
		busy.Store(true)
		most.Store(0)
		if took := run(3); took != 3*time.Second || most.Load() != 1 {
			t.Errorf("while busy 3 took %v with at most %d at once", took, most.Load())
		}
		// It widens as soon as it is calm, though nobody left meanwhile.
		if !l.acquire(t.Context()) {
			t.Fatal("no lane")
		}
		time.AfterFunc(time.Minute, func() { busy.Store(false) })
		began := time.Now()
		if !l.acquire(t.Context()) {
			t.Fatal("no lane")
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+busyPoll {
			t.Errorf("the second lane opened after %v", took)
		}
	})
}

func TestThrottle_ContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := newThrottle(1, func() int { return 1 })
	if !l.acquire(ctx) {
		t.Fatal("no lane")
	}
	cancel()
	if l.acquire(ctx) {
		t.Error("a slot opened after the end")
	}
}

func TestThrottle_ShareGrowsWithAge(t *testing.T) {
	for age, want := range map[time.Duration]int{
		-time.Second: 4, 0: 4, fullWidthAge / 4: 7, fullWidthAge / 2: 10, fullWidthAge - 1: 15, fullWidthAge: 16,
		time.Hour: 16,
	} {
		if got := busyWidth(16, age); got != want {
			t.Errorf("%d lanes at %v, want %d", got, age, want)
		}
	}
	if busyWidth(1, 0) != 1 || busyWidth(2, 0) != 1 {
		t.Error("no lane is open")
	}
}

// idle is a load gauge of a service without callers.
type idle struct{}

func (idle) Busy() bool { return false }

// noAge is the age of the oldest item in an empty queue.
func noAge() time.Duration { return 0 }

// busyGauge is a foreground that never pauses.
type busyGauge struct{}

func (busyGauge) Busy() bool { return true }

func TestThrottle_ForegroundNeverPauses(t *testing.T) {
	w := &Worker{LoadGauge: busyGauge{}, Age: noAge, Now: time.Now}
	if got := w.currentWidth(); got != width/4 {
		t.Errorf("%d lanes where no age is known", got)
	}
	age := fullWidthAge
	w.Age = func() time.Duration { return age }
	if got := w.currentWidth(); got != width {
		t.Errorf("%d lanes where the oldest item waits for %v", got, age)
	}
	w.LoadGauge = idle{}
	if age = 0; w.currentWidth() != width {
		t.Errorf("%d lanes where nobody crowds", w.currentWidth())
	}
}
