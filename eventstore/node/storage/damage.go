package storage

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
)

// panicked is a panic of the engine, on damage that it does not report as an error.
type panicked struct{ value any }

func (p *panicked) Error() string { return fmt.Sprint(p.value) }

// openError returns one line with the reason why a folder cannot be opened, and what to do.
func openError(dir string, err error) error {
	var panic *panicked
	switch {
	case inUse(err):
		return inUseError(dir, err)
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, os.ErrExist):
		return fmt.Errorf("data folder %s is not a folder: name another, or move what is in its way", dir)
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("data folder %s cannot be written by this user: %w", dir, err)
	case noSpace(err):
		return fmt.Errorf("the disk of data folder %s is full: make space and start again (%w)", dir, err)
	case strings.Contains(err.Error(), "unknown format major version"),
		strings.Contains(err.Error(), "written in format major version"):
		return newerError(dir, err.Error())
	case pebble.IsCorruptionError(err),
		record.IsInvalidRecord(err),
		errors.Is(err, os.ErrNotExist),
		errors.As(err, &panic),
		strings.Contains(err.Error(), "manifest"),
		strings.Contains(err.Error(), "MANIFEST"):
		return damagedError(dir, err)
	default:
		return fmt.Errorf("the log in %s cannot be opened: %w", dir, err)
	}
}

// damagedError reports a log that differs from how it was closed.
func damagedError(dir string, detail error) error {
	return fmt.Errorf("the log in %s is damaged: %w; keep it as it is, and restore a backup into a new folder", dir,
		detail)
}

// newerError reports a log that this program is too old for.
func newerError(dir, detail string) error {
	return fmt.Errorf("data folder %s was written by a newer version of this program (%s): "+
		"run that version, or restore a backup that this one made", dir, detail)
}

// inUse reports whether another process, or this one, holds the lock of the folder. For its own
// process pebble reports it only in the message.
func inUse(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || err != nil && strings.Contains(err.Error(), "lock held by current process")
}
