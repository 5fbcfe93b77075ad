package commands

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLoadGauge_Busy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f LoadGauge
		want := func(busy bool, when string) {
			t.Helper()
			if f.Busy() != busy {
				t.Errorf("busy is %t %s", !busy, when)
			}
		}
		want(false, "before the first caller")
		var leave []func()
		for range busyAt - 1 {
			leave = append(leave, f.enter(1))
		}
		want(false, "with fewer than a crowd")
		last := f.enter(1)
		want(true, "with a crowd")
		pass(time.Hour)
		want(true, "while the crowd stays")
		last()
		for _, l := range leave {
			l()
		}
		want(true, "when all are answered at once")
		pass(cooldown - 1)
		want(true, "until the calm is over")
		pass(1)
		want(false, "after the calm")
		// A batch counts as many callers as it has items, even if Busy was not called while it ran.
		f.enter(1000)()
		want(true, "behind a batch")
		pass(cooldown)
		want(false, "long behind a batch")
	})
}

// pass advances the fake clock.
func pass(d time.Duration) { <-time.After(d) }
