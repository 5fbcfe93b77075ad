package model

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns how long the thread has used a processor; 0 if that is unknown.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
