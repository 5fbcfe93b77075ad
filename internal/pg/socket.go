package pg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	// socketPort only names the socket: it is in a folder of its own.
	socketPort = "5432"
	socketName = ".s.PGSQL." + socketPort
	// maxSocketPath is what fits an address of the system, without the final zero; Linux takes 107 bytes, macOS 103.
	maxSocketPath = 103
	// shortPrefix marks the short folders, so that one left by a killed process is known again.
	shortPrefix = "annals-pg-"
)

// socketFolder holds the server's socket: below the data folder, or a short one elsewhere where that path is too long.
type socketFolder struct {
	path      string
	elsewhere bool
}

// openSocketFolder makes the folder, mode 0700 and owned by the server's user.
func openSocketFolder(home string, who identity) (socketFolder, error) {
	path := filepath.Join(home, "socket")
	if socketPathFits(path) {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return socketFolder{}, fmt.Errorf("socket folder: %w", err)
		}
		return socketFolder{path: path}, who.own(path)
	}
	var errs []error
	for _, base := range []string{os.TempDir(), "/tmp"} {
		path, err := os.MkdirTemp(base, shortPrefix)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !socketPathFits(path) {
			errs = append(errs, fmt.Errorf("%s is too long for a socket", path), os.Remove(path))
			continue
		}
		return socketFolder{path: path, elsewhere: true}, who.own(path)
	}
	return socketFolder{}, fmt.Errorf("socket folder: %w", errors.Join(errs...))
}

// socketPathFits also refuses a comma, at which clients split lists of hosts.
func socketPathFits(folder string) bool {
	return len(filepath.Join(folder, socketName)) <= maxSocketPath && !strings.Contains(folder, ",")
}

func (f socketFolder) remove() error {
	if !f.elsewhere {
		return nil
	}
	if err := os.RemoveAll(f.path); err != nil {
		return fmt.Errorf("remove socket folder: %w", err)
	}
	return nil
}

// removeLeft removes the short socket folder of a server that was killed; any other folder is left alone.
func removeLeft(folder string) error {
	if !strings.HasPrefix(filepath.Base(folder), shortPrefix) {
		return nil
	}
	for _, name := range []string{socketName, socketName + ".lock", ""} {
		if err := os.Remove(filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove socket folder of an earlier server: %w", err)
		}
	}
	return nil
}
