package datafolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// RefuseBackup returns an error if the folder is a backup: what opens the log in it would write a new one there, and a
// service would have other keys and nothing of what is backed up.
func (f Folder) RefuseBackup() error {
	_, err := os.Stat(filepath.Join(f.Dir, BackupList))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("data folder %s is a file, or is below one: name a folder with ANNALS_DATA_DIR (--data-dir)", f.Dir)
	case err != nil:
		return fmt.Errorf("read the data folder that ANNALS_DATA_DIR (--data-dir) names: %w", err)
	}
	return fmt.Errorf("%s is a backup, not a data folder: annals restore %q --data-dir DIR makes a data folder of it",
		f.Dir, f.Dir)
}

// IsNew reports whether no service has written a log or keys into the folder yet.
func (f Folder) IsNew() bool {
	for _, name := range []string{"log", HashKeyFile, CredentialsFile} {
		if _, err := os.Stat(filepath.Join(f.Dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}
