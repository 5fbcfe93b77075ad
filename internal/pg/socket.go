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
	// socketPort is only part of the name of the socket.
	socketPort = "5432"
	socketName = ".s.PGSQL." + socketPort
	// maxSocketPath is the most bytes of a socket path, without the final zero: 107 on Linux, 103 on
	// macOS.
	maxSocketPath = 103
	// shortPrefix identifies the temporary folders, so that a folder left by a killed process is removed.
	shortPrefix = "annals-pg-"
)

// socketFolder contains the server's socket. It is below the data folder, or a temporary folder if
// that path is too long.
type socketFolder struct {
	path      string
	temporary bool
}

// openSocketFolder creates the folder, with mode 0700 and owned by the server's user.
func openSocketFolder(home string, user osUser) (socketFolder, error) {
	path := filepath.Join(home, "socket")
	if socketPathFits(path) {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return socketFolder{}, fmt.Errorf("socket folder: %w", err)
		}
		return socketFolder{path: path}, user.takeOver(path)
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
		return socketFolder{path: path, temporary: true}, user.takeOver(path)
	}
	return socketFolder{}, fmt.Errorf("socket folder: %w", errors.Join(errs...))
}

// socketPathFits also rejects a comma, since clients split lists of hosts at commas.
func socketPathFits(folder string) bool {
	return len(filepath.Join(folder, socketName)) <= maxSocketPath && !strings.Contains(folder, ",")
}

func (f socketFolder) remove() error {
	if !f.temporary {
		return nil
	}
	if err := os.RemoveAll(f.path); err != nil {
		return fmt.Errorf("remove socket folder: %w", err)
	}
	return nil
}

// removeOrphanedSocket removes the temporary socket folder of a server that was killed, and no other folder.
func removeOrphanedSocket(folder string) error {
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
