package memory

import (
	"fmt"
	"syscall"
)

// NoCoreDumps disables core files of this process and of the programs that it starts, because its
// memory holds keys and texts of customers.
func NoCoreDumps() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("switch core dumps off: %w", err)
	}
	return nil
}
