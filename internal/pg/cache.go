package pg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// cacheFolder returns the folder of fetched programs. If annals runs as root, only root can change or
// replace it: it is in the data folder, or below /var/lib if the server's user cannot read the data
// folder or other users can write to it.
func (s *Server) cacheFolder(ctx context.Context, dataDir, home string, user osUser) (string, error) {
	if os.Geteuid() != 0 {
		cache := filepath.Join(home, "cache")
		return cache, os.MkdirAll(cache, 0o755)
	}
	base := cmp.Or(s.cfg.fallbackBase, "/var/lib")
	var errs []error
	for _, folder := range []string{
		filepath.Join(dataDir, "postgres-programs"), filepath.Join(base, "annals-postgres-programs"),
	} {
		err := makeCache(folder)
		if err == nil {
			err = user.canRead(ctx, folder)
		}
		if err == nil {
			return folder, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("no folder for fetched programs: %w", errors.Join(errs...))
}

// makeCache makes a folder that only root can change.
func makeCache(folder string) error {
	parent, err := filepath.EvalSymlinks(filepath.Dir(folder))
	if err != nil {
		return err
	}
	for dir := parent; ; dir = filepath.Dir(dir) {
		if err := onlyRootChanges(dir, true); err != nil {
			return err
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	// Keep the mode of an existing folder: it may be stricter.
	if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return onlyRootChanges(folder, false)
}

// onlyRootChanges fails if a folder belongs to another user or other users can write to it. If sticky
// is set, a folder with the sticky bit passes: other users cannot replace root's entries in it.
func onlyRootChanges(dir string, sticky bool) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, known := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	case !known || stat.Uid != 0:
		return fmt.Errorf("%s does not belong to root", dir)
	case info.Mode().Perm()&0o022 != 0 && (!sticky || info.Mode()&fs.ModeSticky == 0):
		return fmt.Errorf("users other than root can write to %s", dir)
	}
	return nil
}
