package datafolder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/annals-project/annals/internal/fsx"
)

// LastBackupFile is the file of the data folder that records the last backup. It is in no backup.
const LastBackupFile = "last-backup.json"

// lastBackup is the content of LastBackupFile.
type lastBackup struct {
	Created  time.Time `json:"created"`
	Position uint64    `json:"position"`
}

// recordBackup records a backup that is complete.
func recordBackup(dataDir string, b lastBackup) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := fsx.WriteFile(filepath.Join(dataDir, LastBackupFile), append(text, '\n')); err != nil {
		return fmt.Errorf("the backup is complete, but not recorded in the data folder: %w", err)
	}
	return nil
}

// LastBackup returns when the last backup of a data folder was made, false if none was.
func LastBackup(dataDir string) (at time.Time, ok bool, err error) {
	text, err := os.ReadFile(filepath.Join(dataDir, LastBackupFile))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, false, nil
	}
	var last lastBackup
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	if err != nil {
		return time.Time{}, false, fmt.Errorf("read %s: %w", LastBackupFile, err)
	}
	return last.Created, true, nil
}
