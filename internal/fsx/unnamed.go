package fsx

import (
	"fmt"
	"os"
)

// Unnamed creates a temporary file without a name: nothing is left of it when the process ends in whatever way. The
// caller must close it, which frees the disk.
func Unnamed() (*os.File, error) {
	file, err := os.CreateTemp("", "annals-")
	if err != nil {
		return nil, fmt.Errorf("create a temporary file: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close() // it is empty
		return nil, fmt.Errorf("create a temporary file: %w", err)
	}
	return file, nil
}
