package hostile

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Resident returns the resident memory of a process in bytes, 0 if the system does not report it.
func Resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look at a process: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("look at a process: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, nil
}
