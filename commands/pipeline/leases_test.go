package pipeline

import (
	"fmt"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

// accept accepts texts that nobody derives.
func (w *harness) accept(count int) {
	w.t.Helper()
	for n := range count {
		w.ingest(item(fmt.Sprint("text ", n), "Ana likes tea."))
	}
	w.passHead()
}

// The items of a process that was killed are free within leaseDuration; those of one that works are
// renewed.
func TestWorker_RenewsLeases(t *testing.T) {
	w := newIdleHarness(t)
	w.accept(3)
	killed, works, other := w.worker("killed"), w.worker("works"), w.worker("other")
	if items := killed.lease(t.Context(), work.LaneLive, 1); len(items) != 1 {
		t.Fatalf("leased %v", items)
	}
	if items := works.lease(t.Context(), work.LaneLive, 2); len(items) != 2 {
		t.Fatalf("leased %v", items)
	}
	for range 2 {
		w.clock.move(leaseDuration / 2)
		items := other.lease(t.Context(), work.LaneLive, leaseSize)
		if w.clock.now().Before(at.Add(leaseDuration)) && len(items) != 0 {
			t.Fatalf("leased %v, which others hold", items)
		} else if !w.clock.now().Before(at.Add(leaseDuration)) && (len(items) != 1 || !items[0].Suspect) {
			t.Fatalf("leased %v, want the item of the killed process as a suspect", items)
		}
		runtest.Must(t, works.renewOnce(t.Context()))
	}
	// A lease that is never released is renewed only up to the limit.
	for elapsed := leaseDuration; elapsed < renewLimit; elapsed += leaseDuration / 2 {
		w.clock.move(leaseDuration / 2)
		runtest.Must(t, works.renewOnce(t.Context()))
	}
	w.clock.move(leaseDuration)
	if items := other.lease(t.Context(), work.LaneLive, leaseSize); len(items) != 3 {
		t.Errorf("leased %d items after the limit, want 3", len(items))
	}
}

// A lease that is released or given up is not renewed.
func TestWorker_RenewsOnlyWhatItHolds(t *testing.T) {
	w := newIdleHarness(t)
	w.accept(2)
	worker := w.worker("one")
	items := worker.lease(t.Context(), work.LaneLive, 2)
	if len(items) != 2 || len(worker.held.takenAfter(time.Time{})) != 2 {
		t.Fatalf("leased %v", items)
	}
	worker.release(t.Context(), []result{{dataPoint: items[0].DataPoint}})
	if held := worker.held.takenAfter(time.Time{}); len(held) != 1 || held[0] != items[1].DataPoint {
		t.Errorf("held %v, want the second item", held)
	}
	worker.Progress = nil // its release panics, which is logged
	worker.release(t.Context(), []result{{dataPoint: items[1].DataPoint}})
	if held := worker.held.takenAfter(time.Time{}); len(held) != 0 {
		t.Errorf("held %v after a release that failed", held)
	}
	again := worker.lease(t.Context(), work.LaneLive, 2)
	if len(again) != 1 || again[0].DataPoint != items[0].DataPoint {
		t.Errorf("leased %v, want the released item", again)
	}
}
