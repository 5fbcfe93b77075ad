// Package fsx writes files that survive a crash.
package fsx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// WriteFile replaces a file atomically and syncs it with its folder: a crash leaves the old file or
// the new one. Its mode is 0600.
func WriteFile(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, openErr := os.Open(dir)
	if openErr != nil {
		return openErr
	}
	return errors.Join(d.Sync(), d.Close())
}

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
