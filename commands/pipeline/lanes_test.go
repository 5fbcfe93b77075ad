package pipeline

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What works takes a second each: so many seconds tell how many worked at once.
func TestLanesNarrowWhileItIsBusyAndNeverClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var busy atomic.Bool
		l := newLanes(4, func() int {
			if busy.Load() {
				return 1
			}
			return 4
		})
		var working, most atomic.Int64
		run := func(n int) time.Duration {
			began := time.Now()
			for range n {
				if !l.enter(t.Context()) {
					t.Fatal("no lane")
				}
				most.Store(max(most.Load(), working.Add(1)))
				go func() {
					await(context.WithoutCancel(t.Context()), nil, time.Second)
					working.Add(-1)
					l.leave()
				}()
			}
			for working.Load() > 0 {
				await(t.Context(), nil, time.Millisecond)
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
		if !l.enter(t.Context()) {
			t.Fatal("no lane")
		}
		time.AfterFunc(time.Minute, func() { busy.Store(false) })
		began := time.Now()
		if !l.enter(t.Context()) {
			t.Fatal("no lane")
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+busyLook {
			t.Errorf("the second lane opened after %v", took)
		}
	})
}

func TestLanesEndWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := newLanes(1, func() int { return 1 })
	if !l.enter(ctx) {
		t.Fatal("no lane")
	}
	cancel()
	if l.enter(ctx) {
		t.Error("a lane opened behind the end")
	}
}

func TestShareGrowsWithTheAgeOfTheOldestItem(t *testing.T) {
	for age, want := range map[time.Duration]int{
		-time.Second: 4, 0: 4, wholeAge / 4: 7, wholeAge / 2: 10, wholeAge - 1: 15, wholeAge: 16, time.Hour: 16,
	} {
		if got := share(16, age); got != want {
			t.Errorf("%d lanes at %v, want %d", got, age, want)
		}
	}
	if share(1, 0) != 1 || share(2, 0) != 1 {
		t.Error("no lane is open")
	}
}

// crowded is a foreground that never pauses.
type crowded struct{}

func (crowded) Busy() bool { return true }

func TestWorkerHasItsShareBesideAForegroundThatNeverPauses(t *testing.T) {
	w := &Worker{Foreground: crowded{}}
	if got := w.open(); got != width/4 {
		t.Errorf("%d lanes where no age is known", got)
	}
	age := wholeAge
	w.Age = func() time.Duration { return age }
	if got := w.open(); got != width {
		t.Errorf("%d lanes where the oldest item waits for %v", got, age)
	}
	w.Foreground = nil
	if age = 0; w.open() != width {
		t.Errorf("%d lanes where nobody crowds", w.open())
	}
}
