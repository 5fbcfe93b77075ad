package main

import (
	"fmt"
	"syscall"
)

// noCoreDumps keeps what is in memory, keys and texts of customers, out of core files: of this process, and of the programs that it
// starts, which inherit the limit.
func noCoreDumps() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("switch core dumps off: %w", err)
	}
	return nil
}
