package pg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// cacheFolder is where fetched programs are. For root nobody else can change what is in it, or put another folder in its place: it
// is in the data folder or, where the server's user cannot enter that or others can write to it, below /var/lib.
func (s *Server) cacheFolder(ctx context.Context, dataDir, home string, who identity) (string, error) {
	if os.Geteuid() != 0 {
		cache := filepath.Join(home, "cache")
		return cache, os.MkdirAll(cache, 0o755)
	}
	base := s.cfg.elsewhere
	if base == "" {
		base = "/var/lib"
	}
	var errs []error
	for _, folder := range []string{filepath.Join(dataDir, "postgres-programs"), filepath.Join(base, "annals-postgres-programs")} {
		err := makeCache(folder)
		if err == nil {
			err = who.enters(ctx, folder)
		}
		if err == nil {
			return folder, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("no folder for fetched binaries: %w", errors.Join(errs...))
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
	// A folder that is there may be narrower than the mask asks for, so its mode is not changed.
	if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return onlyRootChanges(folder, false)
}

// onlyRootChanges is an error for a folder that belongs to another user, or that others may write to. In a sticky one nobody else
// replaces what is root's.
func onlyRootChanges(dir string, sticky bool) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, known := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", dir)
	case !known || stat.Uid != 0:
		return fmt.Errorf("%s does not belong to root", dir)
	case info.Mode().Perm()&0o022 != 0 && (!sticky || info.Mode()&fs.ModeSticky == 0):
		return fmt.Errorf("others than root may write to %s", dir)
	}
	return nil
}
