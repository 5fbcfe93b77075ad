package commands

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestForegroundIsBusyWhileCallersCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Foreground
		want := func(busy bool, when string) {
			t.Helper()
			if f.Busy() != busy {
				t.Errorf("busy is %t %s", !busy, when)
			}
		}
		want(false, "before anybody came")
		var leave []func()
		for range crowd - 1 {
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
		pass(calm - 1)
		want(true, "until the calm is over")
		pass(1)
		want(false, "behind the calm")
		// A batch is as many as its items, also when it is the only one and was never seen while it lasted.
		f.enter(1000)()
		want(true, "behind a batch")
		pass(calm)
		want(false, "long behind a batch")
	})
}

// pass lets time pass.
func pass(d time.Duration) { <-time.After(d) }
